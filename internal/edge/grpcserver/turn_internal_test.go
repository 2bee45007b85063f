package grpcserver

import (
	"bytes"
	"context"
	"net"
	"runtime"
	"sync"
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

// highest is the highest value that was recorded.
type highest struct{ atomic.Int64 }

func (h *highest) note(n int64) {
	for was := h.Load(); n > was && !h.CompareAndSwap(was, n); was = h.Load() {
	}
}

// A connection that begins very many calls at once, or ends with them, lets other goroutines run in
// between: only a few of its handlers are ready at a time.
func TestCallsBeginAndEndInTurns(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const streams = 2000
	var turns, left atomic.Int64
	s, err := New(Config{
		Turn: func(_ context.Context, client net.Addr) (func(), error) {
			if client == nil {
				t.Error("Turn is called without the client's address")
			}
			if n := turns.Add(1) - left.Load(); n > 1 {
				t.Errorf("one connection has %d turns at a time", n)
			}
			return func() { left.Add(1) }, nil // at once, as if no other client wanted a turn
		},
		Credentials: insecure.NewCredentials(), Codec: encoding.GetCodecV2("proto"),
		MaxReceive: 1 << 20, MaxStreams: streams, MaxHeader: 16 << 10, StreamWindow: 64 << 10, ConnWindow: 1 << 20,
		HandshakeTimeout: time.Minute, PingAfter: time.Hour, PingTimeout: time.Minute, PingLeast: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	var begun, ended atomic.Int64
	var ready, over highest
	all := make(chan struct{})
	handler := func(_ any, call grpc.ServerStream) error {
		st, _ := grpc.ServerTransportStreamFromContext(call.Context()).(*stream)
		n := begun.Add(1)
		st.conn.mu.Lock()
		ready.note(int64(st.conn.running) - n)
		st.conn.mu.Unlock()
		if n == streams {
			close(all)
		}
		<-call.Context().Done()
		st.conn.mu.Lock()
		over.note(streams - int64(len(st.conn.streams)) - ended.Add(1))
		st.conn.mu.Unlock()
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
	stop := sync.OnceFunc(func() { s.Stop(); <-served })
	defer stop()

	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(append(callsOf(streams), 0, 0)); err != nil { // and the beginning of another frame
		t.Fatal(err)
	}
	select {
	case <-all:
	case <-time.After(time.Minute):
		t.Fatalf("%d of %d calls have begun", begun.Load(), streams)
	}
	for limit := time.Now().Add(10 * time.Second); left.Load() != turns.Load(); runtime.Gosched() {
		if time.Now().After(limit) {
			t.Fatal("the connection keeps a turn while it waits for the rest of a frame")
		}
	}
	if n := turns.Load(); n < streams/maxTurn-1 || n > streams/4 {
		t.Errorf("%d turns for %d calls", n, streams)
	}
	_ = conn.Close()
	stop()
	if b, e := ready.Load(), over.Load(); b > 4*maxTurn || e > 4*maxTurn {
		t.Errorf("%d handlers were ready to begin at a time, and %d to end, want at most %d", b, e, 4*maxTurn)
	}
	if n := left.Load(); n != turns.Load() {
		t.Errorf("%d of %d turns have ended", n, turns.Load())
	}
	if n := ended.Load(); n != streams {
		t.Errorf("%d of %d calls have ended", n, streams)
	}
}

// callsOf returns the frames that begin n calls.
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

// crowd is a listener whose connections all arrive at once.
type crowd struct {
	left    int
	taken   int64
	others  atomic.Int64 // goroutines of connections that have begun
	waiting highest      // accepted connections whose goroutine has not begun
	closed  chan struct{}
}

func (l *crowd) Accept() (net.Conn, error) {
	if l.left == 0 {
		<-l.closed
		return nil, net.ErrClosed
	}
	l.left--
	l.waiting.note(l.taken - l.others.Load())
	l.taken++
	c, far := net.Pipe()
	_ = far.Close()
	return begins{c, l}, nil
}

func (l *crowd) Close() error   { return nil }
func (l *crowd) Addr() net.Addr { return &net.TCPAddr{} }

// begins is a connection whose goroutine first sets a deadline.
type begins struct {
	net.Conn
	of *crowd
}

func (c begins) SetDeadline(t time.Time) error {
	c.of.others.Add(1)
	return c.Conn.SetDeadline(t) //nolint:wrapcheck // a pipe's
}

// Many simultaneous connections are accepted a few at a time: other goroutines run in between.
func TestConnectionsAreAcceptedInTurns(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	s, err := New(Config{
		Credentials: insecure.NewCredentials(), Codec: encoding.GetCodecV2("proto"),
		MaxReceive: 1 << 20, MaxStreams: 10, MaxHeader: 16 << 10, StreamWindow: 64 << 10, ConnWindow: 1 << 20,
		HandshakeTimeout: time.Minute, PingAfter: time.Hour, PingTimeout: time.Minute, PingLeast: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	const conns = 500
	l := &crowd{left: conns, closed: make(chan struct{})}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.Serve(l)
	}()
	for l.others.Load() < conns {
		time.Sleep(time.Millisecond)
	}
	s.Stop()
	close(l.closed)
	<-served
	if got := l.waiting.Load(); got > 2*maxAccepts {
		t.Errorf("%d connections were accepted before any other goroutine ran", got)
	}
}
