package grpcserver_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"
)

// bandwidthPing is the payload of the pings with which grpc-go's client measures bandwidth.
var bandwidthPing = [8]byte{2, 4, 16, 16, 9, 14, 7, 7}

// readBytes reads DATA of a stream until there are n bytes, and returns the pings that were answered meanwhile.
func (r *raw) readBytes(id uint32, n int) (answered [][8]byte) {
	r.t.Helper()
	for n > 0 {
		switch f := r.next().(type) {
		case *http2.DataFrame:
			if f.StreamID == id {
				n -= len(f.Data())
			}
		case *http2.PingFrame:
			answered = append(answered, f.Data)
		case *http2.GoAwayFrame:
			r.t.Fatalf("GOAWAY: %v", f.ErrCode)
		}
	}
	return answered
}

// order requests a message with size bytes of content.
func (r *raw) order(id uint32, size int32) {
	r.must(r.WriteData(id, false, message(&pb.StreamingOutputCallRequest{ResponseParameters: sizes(size)})))
}

// The answer to a bandwidth ping waits for 16 KiB of DATA. Other pings are answered at once.
func TestProbesWaitForData(t *testing.T) {
	address, _ := serve(t, config())
	r := greet(t, address)
	r.open(1, false, call(duplexMethod)...)
	r.must(errors.Join(r.WriteWindowUpdate(0, 1<<20), r.WriteWindowUpdate(1, 1<<20)))
	framed := len(message(&pb.StreamingOutputCallResponse{Payload: payload(8 << 10)}))
	for range 3 {
		r.must(r.WritePing(false, bandwidthPing))
		r.must(r.WritePing(false, [8]byte{1}))
		if f := until[*http2.PingFrame](r); f.Data != [8]byte{1} {
			t.Fatalf("%v was answered first", f.Data)
		}
		r.order(1, 8<<10)
		if got := r.readBytes(1, framed); len(got) > 0 {
			t.Errorf("%v was answered after 8 KiB", got)
		}
		r.order(1, 8<<10)
		r.readBytes(1, framed)
		r.must(r.WritePing(false, [8]byte{2}))
		if f := until[*http2.PingFrame](r); f.Data != bandwidthPing {
			t.Errorf("%v was answered after 16 KiB, before the earlier bandwidth ping", f.Data)
		}
		r.alive()
	}
	// After that much DATA, the answer follows the next frames. Two bandwidth pings at a time are both answered.
	r.order(1, 17<<10)
	r.readBytes(1, len(message(&pb.StreamingOutputCallResponse{Payload: payload(17 << 10)})))
	r.must(r.WritePing(false, bandwidthPing))
	r.order(1, 256)
	if got := r.readBytes(1, len(message(&pb.StreamingOutputCallResponse{Payload: payload(256)}))); len(got) > 0 {
		t.Errorf("%v was answered before the DATA", got)
	}
	if f := until[*http2.PingFrame](r); f.Data != bandwidthPing {
		t.Errorf("%v was answered after the DATA", f.Data)
	}
	for range 2 {
		r.must(r.WritePing(false, bandwidthPing))
	}
	if f := until[*http2.PingFrame](r); f.Data != bandwidthPing {
		t.Errorf("%v was answered", f.Data)
	}
}

// On a connection at rest, the answer to a bandwidth ping is sent with the server's own ping.
func TestProbesAreAnsweredAtRest(t *testing.T) {
	cfg := config()
	cfg.PingAfter = 30 * time.Second
	inBubble(t, cfg, &testService{}, func(t *testing.T, r *raw) {
		begun := time.Now()
		r.must(r.WritePing(false, bandwidthPing))
		if f := until[*http2.PingFrame](r); !f.IsAck() || f.Data != bandwidthPing || time.Since(begun) != cfg.PingAfter {
			t.Errorf("%v after %v", f, time.Since(begun))
		}
	})
}

// written is a client's connection that keeps a copy of all written bytes.
type written struct {
	net.Conn
	mu  sync.Mutex
	all bytes.Buffer // guarded by mu
}

func (w *written) Write(p []byte) (int, error) {
	w.mu.Lock()
	w.all.Write(p)
	w.mu.Unlock()
	return w.Conn.Write(p)
}

// A grpc-go client that receives small messages one by one pings once for each 16 KiB, not once for
// each message.
func TestSmallMessagesCauseFewPings(t *testing.T) {
	address, _ := serve(t, config())
	var w *written
	conn := dial(t, address, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		w = &written{Conn: c}
		return w, err
	}))
	s, err := pb.NewTestServiceClient(conn).FullDuplexCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const messages = 1000
	for range messages {
		if err := s.Send(&pb.StreamingOutputCallRequest{ResponseParameters: sizes(256)}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all.Next(len(http2.ClientPreface))
	f, pings := http2.NewFramer(nil, &w.all), 0
	for {
		got, err := f.ReadFrame()
		if err != nil {
			break
		}
		if p, ok := got.(*http2.PingFrame); ok && !p.IsAck() {
			pings++
		}
	}
	if most := messages*300/(16<<10) + 1; pings == 0 || pings > most {
		t.Errorf("the client sent %d pings for %d messages, want 1 to %d", pings, messages, most)
	}
}
