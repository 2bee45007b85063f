package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"testing"

	"google.golang.org/grpc/credentials"

	"github.com/shardwatch/shardwatch/internal/edge/netlimit"
	"github.com/shardwatch/shardwatch/internal/files/certtest"
)

// A connection releases its turn when its handshake has succeeded or failed, even if nothing more
// is read from it.
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
		t.Errorf("%d of the successive handshakes had to wait, want 0", s.Waits)
	}
}

// failing is a handshake that fails with the given error.
type failing struct {
	credentials.TransportCredentials
	err error
}

func (f failing) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, f.err
}
func (f failing) Clone() credentials.TransportCredentials { return f }

// Refused certificates are reported to the operator, even by a clone of the credentials. Probes
// that connect and disconnect are not.
func TestFailedHandshakesAreReported(t *testing.T) {
	bad := errors.New("bad certificate")
	for _, x := range []struct {
		err    error
		report bool
	}{
		{nil, false},
		{bad, true},
		{fmt.Errorf("tls: %w", bad), true},
		{io.ErrUnexpectedEOF, true},
		{io.EOF, false},
		{fmt.Errorf("read: %w", io.EOF), false},
		{net.ErrClosed, false},
		{credentials.ErrConnDispatched, false},
	} {
		a, b := net.Pipe()
		var reported []error
		h := &handshakes{failing{err: x.err}, func(from net.Addr, err error) {
			if from != a.RemoteAddr() {
				t.Errorf("from %v", from)
			}
			reported = append(reported, err)
		}}
		for _, one := range []credentials.TransportCredentials{h, h.Clone()} {
			if _, _, err := one.ServerHandshake(a); !errors.Is(err, x.err) {
				t.Errorf("the caller gets %v, want %v", err, x.err)
			}
		}
		if want := map[bool]int{true: 2}[x.report]; len(reported) != want {
			t.Errorf("%v: reported %d times, want %d times", x.err, len(reported), want)
		}
		_, _ = a.Close(), b.Close()
	}
}
