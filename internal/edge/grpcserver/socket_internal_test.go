package grpcserver

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/peer"
)

// pair returns both ends of a connection, the first as an owned socket.
func pair(t *testing.T) (*socket, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	there, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	here, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = here.Close(); _ = there.Close() })
	s := newSocket(here)
	s.own()
	return s, there
}

// A header list that the reader has read before the connection ended opens no stream: its
// handler would wait for ever, and Stop for it.
func TestNoStreamsOnAConnectionThatHasEnded(t *testing.T) {
	srv := &Server{cfg: Config{MaxStreams: 10, StreamWindow: 64 << 10}}
	here, _ := pair(t)
	c := newConn(srv, here, here, false, &peer.Peer{})
	c.fail(errStopped)
	headers := &http2.MetaHeadersFrame{HeadersFrame: &http2.HeadersFrame{FrameHeader: http2.FrameHeader{StreamID: 1}}}
	for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", "/a/b"}, {"content-type", "application/grpc"}, {"te", "trailers"}} {
		headers.Fields = append(headers.Fields, hpack.HeaderField{Name: h[0], Value: h[1]})
	}
	if s, err := c.open(headers); s != nil || !errors.Is(err, errStopped) || len(c.streams) > 0 {
		t.Errorf("opened %v on a connection that has ended, error %v", s, err)
	}
}

// Writes do not block: what the kernel does not take is the backlog, in order, until drain.
func TestWritesDoNotBlock(t *testing.T) {
	s, there := pair(t)
	if s.raw == nil {
		t.Fatal("not the kernel's connection")
	}
	var want []byte
	for i := byte(0); !s.stalled(); i++ {
		p := bytes.Repeat([]byte{i}, 10_000)
		if _, err := s.Write(p); err != nil {
			t.Fatal(err)
		}
		want = append(want, p...)
	}
	_, _ = s.Write([]byte("last"))
	want = append(want, "last"...)
	got := make(chan []byte)
	go func() {
		b := make([]byte, len(want))
		_, _ = io.ReadFull(there, b)
		got <- b
	}()
	if err := s.drain(); err != nil || s.stalled() {
		t.Errorf("%v, stalled %v", err, s.stalled())
	}
	if !bytes.Equal(<-got, want) {
		t.Error("not what was written")
	}
}

// The backlog is bounded.
func TestBacklogIsBounded(t *testing.T) {
	s, _ := pair(t)
	for range 1_000_000 {
		if _, err := s.Write(make([]byte, 10_000)); err != nil {
			if !errors.Is(err, errBacklog) || len(s.backlog) > maxBacklog {
				t.Errorf("%v with %d bytes", err, len(s.backlog))
			}
			return
		}
	}
	t.Error("no bound")
}

// What is written while the socket is held leaves together.
func TestHeldWritesLeaveTogether(t *testing.T) {
	s, there := pair(t)
	s.hold()
	_, _ = s.Write([]byte("one"))
	_, _ = s.Write([]byte(" two"))
	if !s.stalled() {
		t.Error("written at once")
	}
	if err := s.release(); err != nil || s.stalled() {
		t.Errorf("%v, stalled %v", err, s.stalled())
	}
	b := make([]byte, 7)
	if _, err := io.ReadFull(there, b); err != nil || string(b) != "one two" {
		t.Errorf("%q, %v", b, err)
	}
}

// Before the socket is owned, its writes are the connection's.
func TestSocketThatIsNotOwned(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	s := newSocket(here)
	go func() { _, _ = s.Write([]byte("x")); _ = s.Close() }()
	if b, _ := io.ReadAll(there); string(b) != "x" || s.stalled() {
		t.Errorf("%q", b)
	}
}
