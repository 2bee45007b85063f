package grpcserver

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"
)

// The request of a call that Before refuses is received to its end, but not kept; only then does the
// call end. A request that exceeds the message limit is reset.
func TestARefusedRequestIsNotKept(t *testing.T) {
	const most = 1 << 20
	refused := make(chan *stream, 2)
	s, err := New(Config{
		Credentials: insecure.NewCredentials(), Codec: encoding.GetCodecV2("proto"),
		MaxReceive: most, MaxStreams: 100, MaxHeader: 16 << 10, StreamWindow: 64 << 10, ConnWindow: 1 << 20,
		HandshakeTimeout: time.Minute, PingAfter: time.Hour, PingTimeout: time.Minute, PingLeast: time.Nanosecond,
		Before: func(ctx context.Context, _ string) error {
			st, _ := grpc.ServerTransportStreamFromContext(ctx).(*stream)
			refused <- st
			return status.Error(codes.PermissionDenied, "no")
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.RegisterService(&grpc.ServiceDesc{ServiceName: "s", Streams: []grpc.StreamDesc{
		{StreamName: "Call", ServerStreams: true, Handler: func(any, grpc.ServerStream) error {
			t.Error("the refused call was served")
			return nil
		}},
	}}, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() { _ = s.Serve(l) })
	defer func() { s.Stop(); served.Wait() }()
	f := connectRaw(t, l.Addr().String())
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c := &refusedClient{t: t, f: f}

	c.send(1, make([]byte, most))
	_ = f.WritePing(false, [8]byte{1})
	c.until(func(frame http2.Frame) bool {
		ping, ok := frame.(*http2.PingFrame)
		return ok && ping.IsAck()
	})
	if c.status != "" {
		t.Errorf("the call ended with %s before the end of its request", c.status)
	}
	st := <-refused
	s.lookAt(st, func() {
		if cap(st.in) > 64 || cap(st.message)+st.held > 0 {
			t.Errorf("%d bytes are buffered, %d of a message, %d are held", cap(st.in), cap(st.message), st.held)
		}
	})
	_ = f.WriteData(1, true, make([]byte, messageHead))
	c.until(func(http2.Frame) bool { return c.status != "" })
	if c.status != "7" {
		t.Errorf("the call ended with %s, want PermissionDenied", c.status)
	}

	for i, request := range [][]byte{
		make([]byte, most+messageHead+1),                                         // empty messages
		append([]byte{0}, binary.BigEndian.AppendUint32(nil, uint32(most+1))...), // the head of a longer one
	} {
		id := uint32(2*i + 3)
		c.status = ""
		c.send(id, request)
		c.until(func(frame http2.Frame) bool {
			reset, ok := frame.(*http2.RSTStreamFrame)
			return ok && reset.StreamID == id && reset.ErrCode == http2.ErrCodeNo
		})
		if c.status != "7" {
			t.Errorf("call %d, whose request is too long, ended with %s, want PermissionDenied", id, c.status)
		}
		<-refused
	}
}

// lookAt calls fn while a stream cannot change.
func (s *Server) lookAt(st *stream, fn func()) {
	st.conn.mu.Lock()
	defer st.conn.mu.Unlock()
	fn()
}

// refusedClient sends requests as its windows allow.
type refusedClient struct {
	t      *testing.T
	f      *http2.Framer
	stream uint32
	window int    // of the stream
	whole  int    // of the connection
	status string // status with which the stream ended
}

// send begins a stream with a request, but does not end it.
func (c *refusedClient) send(id uint32, request []byte) {
	c.t.Helper()
	if c.stream == 0 {
		c.whole = initialWindow
	}
	c.stream, c.window = id, initialWindow
	callRaw(c.f, id, "/s/Call", false)
	for len(request) > 0 {
		k := min(len(request), maxFrame, c.window, c.whole)
		if k == 0 {
			c.until(func(frame http2.Frame) bool { _, ok := frame.(*http2.WindowUpdateFrame); return ok })
			continue
		}
		if err := c.f.WriteData(id, false, request[:k]); err != nil {
			c.t.Fatal(err)
		}
		request, c.window, c.whole = request[k:], c.window-k, c.whole-k
	}
}

// until reads frames up to the first for which fits is true.
func (c *refusedClient) until(fits func(http2.Frame) bool) {
	c.t.Helper()
	for {
		frame, err := c.f.ReadFrame()
		if err != nil {
			c.t.Fatal(err)
		}
		switch frame := frame.(type) {
		case *http2.WindowUpdateFrame:
			switch frame.StreamID {
			case 0:
				c.whole += int(frame.Increment)
			case c.stream:
				c.window += int(frame.Increment)
			}
		case *http2.MetaHeadersFrame:
			for _, h := range frame.Fields {
				if h.Name == "grpc-status" {
					c.status = h.Value
				}
			}
		}
		if fits(frame) {
			return
		}
	}
}
