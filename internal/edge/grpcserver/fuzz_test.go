package grpcserver_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/shardwatch/shardwatch/internal/edge/grpcserver"
)

// FuzzClient makes a client send arbitrary bytes after the preface. The server neither panics nor
// hangs, and leaves nothing behind, both with handlers that block and with parked handlers.
func FuzzClient(f *testing.F) {
	seed := func(do func(r *raw)) {
		here, there := net.Pipe()
		sent := make(chan []byte)
		go func() {
			b, _ := io.ReadAll(there)
			sent <- b
		}()
		r := newRaw(f, here)
		do(r)
		_ = here.Close()
		f.Add(<-sent)
	}
	seed(func(r *raw) { r.must(r.WriteSettings()) })
	seed(func(r *raw) {
		r.must(r.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1}))
		r.open(1, false, call(unaryMethod)...)
		r.must(r.WriteDataPadded(1, true, message(&pb.SimpleRequest{ResponseSize: 100}), make([]byte, 3)))
		r.must(r.WriteWindowUpdate(1, 10))
		r.must(r.WritePing(false, [8]byte{}))
	})
	seed(func(r *raw) {
		r.must(r.WriteSettings())
		b := r.block(call(duplexMethod, "grpc-timeout", "1S", "x-bin", "AA", "content-length", "100")...)
		r.must(r.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: b[:9]}))
		r.must(r.WriteContinuation(1, true, b[9:]))
		r.must(r.WriteData(1, false, ask(1, 2, 3)))
		r.must(r.WriteRSTStream(1, http2.ErrCodeCancel))
		r.must(r.WriteGoAway(0, 0, nil))
	})
	seed(func(r *raw) { // bandwidth pings around messages of a parked handler
		r.must(r.WriteSettings())
		r.open(1, false, call(duplexMethod)...)
		for range 3 {
			r.must(r.WritePing(false, bandwidthPing))
			r.must(r.WriteData(1, false, ask(9<<10)))
		}
		r.must(r.WriteData(1, true, ask(1)[:3]))
	})
	f.Fuzz(func(t *testing.T, sent []byte) {
		attempt(t, new(testService), sent)
		attempt(t, &parker{serve: answerParked}, sent)
	})
}

// answerParked answers each request with the requested number of bytes, and is parked in between.
func answerParked(p parking, gs grpc.ServerStream) error {
	var next func() error
	next = func() error {
		for {
			if err := p.Park(next); err != nil {
				return err
			}
			m := new(pb.StreamingOutputCallRequest)
			if err := gs.RecvMsg(m); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			for _, want := range m.GetResponseParameters() {
				if err := gs.SendMsg(&pb.StreamingOutputCallResponse{Payload: payload(want.GetSize() & 0xffff)}); err != nil {
					return err
				}
			}
		}
	}
	return next()
}

// attempt sends bytes to a service as a client, and reads the frames of the answer.
func attempt(t *testing.T, service pb.TestServiceServer, sent []byte) {
	cfg := config()
	cfg.MaxStreams, cfg.MaxReceive = 3, 1<<16
	s, err := grpcserver.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	pb.RegisterTestServiceServer(s, service)
	address := listen(t, s)
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	go func() {
		_, _ = c.Write(append([]byte(http2.ClientPreface), sent...))
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	answer, err := io.ReadAll(c)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("the server hangs")
	}
	_ = c.Close()
	s.Stop()
	check := http2.NewFramer(io.Discard, bytes.NewReader(answer))
	for {
		f, err := check.ReadFrame()
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%v in the server's frames", err)
			}
			return
		}
		if f.Header().Length > 16<<10 {
			t.Errorf("%v", f)
		}
	}
}
