package server

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"testing"

	"google.golang.org/grpc/credentials"

	"github.com/shardwatch/shardwatch/internal/certtest"
	"github.com/shardwatch/shardwatch/internal/netlimit"
)

// A connection whose handshake is over, or has failed, leaves its turn to others, whether or
// not more is read from it.
func TestHandshakesEndTheirTurn(t *testing.T) {
	ca := certtest.NewCA(t, "test")
	creds := told(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{ca.Issue(t, "node").Pair}}), nil)
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := netlimit.New(netlimit.Config{Port: "client", Max: 9, MaxPending: 9, Turns: netlimit.NewTurns(1), Logger: slog.New(slog.DiscardHandler)})
	l := port.Listener(inner)
	defer l.Close()
	for name, works := range map[string]bool{"done": true, "failed": false} {
		dialed := make(chan error, 1)
		cfg := &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, RootCAs: certtest.Pool(ca), ServerName: "127.0.0.1"}
		if !works {
			cfg.NextProtos = []string{"other"}
		}
		go func() {
			c, err := tls.Dial("tcp", l.Addr().String(), cfg)
			if err == nil {
				t.Cleanup(func() { _ = c.Close() })
			}
			dialed <- err
		}()
		raw, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = raw.Close() })
		_, _, err = creds.ServerHandshake(raw)
		if err := errors.Join(err, <-dialed); (err == nil) != works {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if s := port.Stats(); s.Waits != 0 {
		t.Errorf("%d handshakes had to wait, one after the other", s.Waits)
	}
}
