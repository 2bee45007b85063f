package dispatch_test

import (
	"errors"
	"net"
	"testing"

	"google.golang.org/grpc/credentials"

	"github.com/shardwatch/shardwatch/internal/edge/dispatch"
)

// Each connection is accepted once. After Close, Accept fails, and new connections are closed.
func TestConnectionsArePassedOn(t *testing.T) {
	at := &net.TCPAddr{Port: 1}
	l := dispatch.New(at)
	if l.Addr() != at {
		t.Errorf("the address is %v, want %v", l.Addr(), at)
	}
	near, far := net.Pipe()
	defer far.Close()
	put := make(chan error)
	go func() { put <- l.Put(near) }()
	got, err := l.Accept()
	if err != nil || got != near {
		t.Fatalf("accepted %v, %v", got, err)
	}
	if err := <-put; !errors.Is(err, credentials.ErrConnDispatched) {
		t.Errorf("the error is %v", err)
	}
	go func() {
		_, err := l.Accept()
		put <- err
	}()
	_ = l.Close()
	_ = l.Close()
	if err := <-put; !errors.Is(err, net.ErrClosed) {
		t.Errorf("a waiting Accept returned %v", err)
	}
	if err := l.Put(near); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close the error is %v", err)
	}
	if _, err := near.Write([]byte("x")); err == nil {
		t.Error("a connection passed on after Close is still open")
	}
}
