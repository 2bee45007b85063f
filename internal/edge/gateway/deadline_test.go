package gateway_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/shardwatch/shardwatch/internal/edge/gateway"
)

// noting is a connection that records whether its writes have a deadline.
type noting struct {
	net.Conn
	bound *atomic.Bool
}

func (c noting) SetDeadline(t time.Time) error {
	c.bound.Store(!t.IsZero())
	return c.Conn.SetDeadline(t)
}

type notingListener struct {
	net.Listener
	bound atomic.Bool
}

func (l *notingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return noting{c, &l.bound}, nil
}

// gRPC sets a deadline on each new connection for its handshake. This deadline used to end watches of the JSON
// API.
func TestTheHandshakesDeadlineIsNotTheWatches(t *testing.T) {
	g, err := gateway.New(gateway.Config{MaxRequest: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &notingListener{Listener: inner}
	s := grpc.NewServer(grpc.Creds(g.Credentials(nil, nil)))
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 2)
	go func() { served <- s.Serve(g.Listener(l)) }()
	go func() { served <- g.Run(ctx) }()
	transport := &http.Transport{}
	r, err := (&http.Client{Transport: transport}).Get("http://" + inner.Addr().String() + "/nothing")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, r.Body)
	_ = r.Body.Close()
	if l.bound.Load() {
		t.Error("the connection still has the deadline of its handshake")
	}
	transport.CloseIdleConnections()
	cancel()
	s.Stop()
	if err := errors.Join(<-served, <-served); err != nil {
		t.Error(err)
	}
}
