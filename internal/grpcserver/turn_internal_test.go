package grpcserver

import (
	"bytes"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec
)

// A connection that begins very many calls at a time lets others run in between: few of its
// handlers are ready at a time.
func TestCallsBeginInTurns(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const streams = 2000
	s, err := New(Config{
		Credentials: insecure.NewCredentials(), Codec: encoding.GetCodecV2("proto"),
		MaxReceive: 1 << 20, MaxStreams: streams, MaxHeader: 16 << 10, StreamWindow: 64 << 10, ConnWindow: 1 << 20,
		HandshakeTimeout: time.Minute, PingAfter: time.Hour, PingTimeout: time.Minute, PingLeast: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	var begun, most atomic.Int64
	all := make(chan struct{})
	handler := func(_ any, call grpc.ServerStream) error {
		st, _ := grpc.ServerTransportStreamFromContext(call.Context()).(*stream)
		n := begun.Add(1)
		st.conn.mu.Lock()
		ready := int64(st.conn.running) - n
		st.conn.mu.Unlock()
		for was := most.Load(); ready > was && !most.CompareAndSwap(was, ready); was = most.Load() {
		}
		if n == streams {
			close(all)
		}
		<-call.Context().Done()
		return nil
	}
	s.RegisterService(&grpc.ServiceDesc{ServiceName: "s", Streams: []grpc.StreamDesc{{StreamName: "M", ClientStreams: true, ServerStreams: true, Handler: handler}}}, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.Serve(l)
	}()
	defer func() { s.Stop(); <-served }()

	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(callsOf(streams)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-all:
	case <-time.After(time.Minute):
		t.Fatalf("%d of %d calls have begun", begun.Load(), streams)
	}
	if n := most.Load(); n > 4*maxTurn {
		t.Errorf("%d handlers were ready at a time, want %d at most", n, 4*maxTurn)
	}
}

// callsOf returns what a client sends to begin so many calls.
func callsOf(n uint32) []byte {
	var out, block bytes.Buffer
	out.WriteString(http2.ClientPreface)
	f, enc := http2.NewFramer(&out, nil), hpack.NewEncoder(&block)
	_ = f.WriteSettings() // to a buffer
	for id := uint32(1); id < 2*n; id += 2 {
		block.Reset()
		for _, h := range [][2]string{
			{":method", "POST"}, {":scheme", "http"}, {":path", "/s/M"}, {":authority", "node"}, {"content-type", "application/grpc"}, {"te", "trailers"},
		} {
			_ = enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}) // to a buffer
		}
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true})
	}
	return out.Bytes()
}
