package netlimit_test

import (
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/edge/netlimit"
)

// Clients that connect at the same time, and send later, do not displace each other: all are
// admitted, although there are more of them than the limit of pending connections.
func TestClientsThatConnectAtTheSameTimeAreAdmitted(t *testing.T) {
	for {
		began := time.Now()
		dropped := burst(t, 200, netlimit.Config{Port: "client", Max: 1000, MaxPending: 20, Logger: slog.New(slog.DiscardHandler)})
		if dropped == 0 {
			return
		}
		if took := time.Since(began); took < 2*time.Second { // if slower, the kernel passes on connections without data
			t.Fatalf("%d of 200 connections were dropped", dropped)
		}
	}
}

// burst connects the given number of clients. Each sends a byte and reads it back. burst returns the number of
// clients whose connection was dropped.
func burst(t *testing.T, clients int, cfg netlimit.Config) int64 {
	t.Helper()
	inner, err := netlimit.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	limit := netlimit.New(cfg)
	l := limit.Listener(inner)
	var served sync.WaitGroup
	served.Go(func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			served.Go(func() {
				defer c.Close()
				b := make([]byte, 1)
				if _, err := io.ReadFull(c, b); err != nil || c.SetDeadline(time.Time{}) != nil {
					return
				}
				_, _ = c.Write(b)
				_, _ = c.Read(b) // until the client disconnects
			})
		}
	})
	var all []net.Conn
	for range clients {
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	for _, c := range all {
		if _, err := c.Write([]byte("x")); err != nil {
			continue
		}
		_, _ = io.ReadFull(c, make([]byte, 1)) // the connection may have been dropped
	}
	for _, c := range all {
		_ = c.Close()
	}
	_ = l.Close()
	served.Wait()
	return limit.Stats().Dropped
}
