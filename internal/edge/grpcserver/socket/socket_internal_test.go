package socket

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
)

// pair returns both ends of a connection, the first as an owned socket.
func pair(t *testing.T) (*Socket, net.Conn) {
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
	s := New(here)
	s.Own()
	return s, there
}

// Writes do not block: bytes that the kernel does not accept form the backlog, in order, until drain.
func TestWritesDoNotBlock(t *testing.T) {
	s, there := pair(t)
	if s.raw == nil {
		t.Fatal("the connection has no kernel socket")
	}
	var want []byte
	for i := byte(0); !s.Stalled(); i++ {
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
	if err := s.Drain(); err != nil || s.Stalled() {
		t.Errorf("%v, stalled %v", err, s.Stalled())
	}
	if !bytes.Equal(<-got, want) {
		t.Error("the bytes differ from the written ones")
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

// All writes during a hold are sent together.
func TestHeldWritesLeaveTogether(t *testing.T) {
	s, there := pair(t)
	s.hold()
	_, _ = s.Write([]byte("one"))
	_, _ = s.Write([]byte(" two"))
	if !s.Stalled() {
		t.Error("bytes were sent during the hold")
	}
	if err := s.release(); err != nil || s.Stalled() {
		t.Errorf("%v, stalled %v", err, s.Stalled())
	}
	b := make([]byte, 7)
	if _, err := io.ReadFull(there, b); err != nil || string(b) != "one two" {
		t.Errorf("%q, %v", b, err)
	}
}

// Before the socket is owned, its writes go to the connection and block.
func TestSocketThatIsNotOwned(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	s := New(here)
	go func() { _, _ = s.Write([]byte("x")); _ = s.Close() }()
	if b, _ := io.ReadAll(there); string(b) != "x" || s.Stalled() {
		t.Errorf("%q", b)
	}
}
