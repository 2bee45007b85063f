package grpcserver

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Large answers are written in turns of the client. Each stream of a connection sends one full
// output buffer before the next stream does. Small answers take no turn.
func TestLargeAnswersTakeTurns(t *testing.T) {
	const answers, large = 4, 1 << 20
	var turns, taken atomic.Int64
	s, err := New(Config{
		Credentials: insecure.NewCredentials(), Codec: encoding.GetCodecV2("proto"),
		MaxReceive: 1 << 20, MaxStreams: 100, MaxHeader: 16 << 10, StreamWindow: 64 << 10, ConnWindow: 1 << 20,
		HandshakeTimeout: time.Minute, PingAfter: time.Hour, PingTimeout: time.Minute, PingLeast: time.Second,
		Turn: func(context.Context, net.Addr) (func(), error) {
			turns.Add(1)
			taken.Add(1)
			return func() { taken.Add(-1) }, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	begun := make(chan *stream, answers)
	send := func(size int) func(any, grpc.ServerStream) error {
		return func(_ any, call grpc.ServerStream) error {
			st, _ := grpc.ServerTransportStreamFromContext(call.Context()).(*stream)
			begun <- st
			return call.SendMsg(wrapperspb.Bytes(make([]byte, size)))
		}
	}
	s.RegisterService(&grpc.ServiceDesc{ServiceName: "s", Streams: []grpc.StreamDesc{
		{StreamName: "Large", ClientStreams: true, ServerStreams: true, Handler: send(large)},
		{StreamName: "Small", ClientStreams: true, ServerStreams: true, Handler: send(maxOut / 2)},
	}}, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() { _ = s.Serve(l) })
	defer func() { s.Stop(); served.Wait() }()

	order := answersTo(t, l.Addr().String(), func() {}, "/s/Small")
	<-begun
	if n := turns.Load(); n != 0 || len(order) == 0 {
		t.Errorf("%d turns for a small answer in %d frames, want 0", n, len(order))
	}
	var calls []string
	for range answers {
		calls = append(calls, "/s/Large")
	}
	order = answersTo(t, l.Addr().String(), func() { allBlocked(t, <-begun, answers) }, calls...)
	changes := 0
	for i := 1; i < len(order); i++ {
		if order[i] != order[i-1] {
			changes++
		}
	}
	const bursts = answers * large / maxOut
	if changes > 2*bursts {
		t.Errorf("%d frames arrived with %d changes of stream, want at most %d", len(order), changes, 2*bursts)
	}
	if n := turns.Load(); n == 0 || taken.Load() != 0 {
		t.Errorf("%d turns for %d bytes, of which %d have not ended", n, answers*large, taken.Load())
	}
}

// allBlocked waits until so many streams of a connection wait for its window.
func allBlocked(t *testing.T, one *stream, streams int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		one.conn.mu.Lock()
		n := one.conn.blocked.Len()
		one.conn.mu.Unlock()
		if n == streams {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d streams wait for the connection's window", n, streams)
		}
	}
}

// connectRaw opens a connection that ends with the test, after a minute at most. Write errors show
// up when the connection is read.
func connectRaw(t *testing.T, address string, settings ...http2.Setting) *http2.Framer {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		t.Fatal(err)
	}
	f := http2.NewFramer(conn, conn)
	_ = f.WriteSettings(settings...)
	return f
}

// callRaw begins a call; with end set, its request is empty.
func callRaw(f *http2.Framer, stream uint32, path string, end bool) {
	var block headerBlock
	for _, h := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", path}, {":authority", "node"}, {"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		block.add(h[0], h[1])
	}
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.bytes(), EndHeaders: true, EndStream: end})
}

// answersTo makes calls on one connection, and returns the stream of each DATA frame received. When
// the connection's first window is used up, it calls blocked and extends the window.
func answersTo(t *testing.T, address string, blocked func(), paths ...string) (order []uint32) {
	t.Helper()
	f := connectRaw(t, address, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
	for i, path := range paths {
		callRaw(f, uint32(2*i+1), path, true)
	}
	for open, window := len(paths), initialWindow; open > 0; {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatalf("after %d frames: %v", len(order), err)
		}
		switch frame := frame.(type) {
		case *http2.DataFrame:
			order = append(order, frame.StreamID)
			if window -= len(frame.Data()); window == 0 {
				blocked()
				_ = f.WriteWindowUpdate(0, 1<<30)
			}
		case *http2.HeadersFrame:
			if frame.StreamEnded() {
				open--
			}
		case *http2.RSTStreamFrame:
			t.Fatalf("stream %d was reset: %v", frame.StreamID, frame.ErrCode)
		}
	}
	return order
}

// headerBlock encodes headers without state that later blocks would need.
type headerBlock struct{ b []byte }

func (h *headerBlock) add(name, value string) {
	enc := hpack.NewEncoder(h)
	enc.SetMaxDynamicTableSizeLimit(0)
	_ = enc.WriteField(hpack.HeaderField{Name: name, Value: value, Sensitive: true}) // to memory
}

func (h *headerBlock) Write(p []byte) (int, error) {
	h.b = append(h.b, p...)
	return len(p), nil
}

func (h *headerBlock) bytes() []byte { return h.b }
