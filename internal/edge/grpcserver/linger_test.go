package grpcserver_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials"

	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// draining has a server drain, and returns what Drain returns.
func draining(t *testing.T, s *server) <-chan error {
	drained := make(chan error, 1)
	go func() { drained <- s.Drain(t.Context()) }()
	return drained
}

// ends fails unless Drain returns without an error.
func ends(t *testing.T, drained <-chan error) {
	t.Helper()
	select {
	case err := <-drained:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(testkit.Patience):
		t.Error("the server waits for a client that has closed, or that does not")
	}
}

// A client that reads slowly reads the last answer of a connection that ends in peace to its end. It
// opens its windows meanwhile, which would cost it the rest if the server had closed.
func TestALastAnswerIsReadToItsEnd(t *testing.T) {
	forServer, forClient := certificates(t)
	for name, secure := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			cfg := config()
			cfg.PingTimeout = time.Hour // it ends with the client
			if secure {
				cfg.Credentials = credentials.NewTLS(forServer)
			}
			address, s := serve(t, cfg)
			tcp, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			if err := tcp.(*net.TCPConn).SetReadBuffer(128 << 10); err != nil {
				t.Fatal(err)
			}
			c := tcp
			if secure {
				c = tls.Client(tcp, forClient)
			}
			r := newRaw(t, c)
			r.greet(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
			r.must(r.WriteWindowUpdate(0, 1<<30))
			r.open(1, false, call(duplexMethod)...)
			drained := draining(t, s)
			r.must(r.WritePing(true, until[*http2.PingFrame](r).Data))
			if f := until[*http2.GoAwayFrame](r); f == nil || f.LastStreamID != 1 {
				t.Fatalf("%v", f)
			}

			const size = 4 << 20
			r.must(r.WriteData(1, true, ask(size)))
			got := 0
			for slow, ended := true, false; !ended; {
				slow = slow && readers() > 0 // until the server has no more to do
				f, err := r.ReadFrame()
				if err != nil {
					t.Fatalf("after %d bytes, while the server has more to do: %t: %v", got, slow, err)
				}
				switch f := f.(type) {
				case *http2.DataFrame:
					got += len(f.Data())
					r.must(r.WriteWindowUpdate(0, f.Length))
				case *http2.MetaHeadersFrame:
					ended = f.StreamEnded()
				}
			}
			if got != size+5+10 { // head, and proto's two lengths
				t.Errorf("%d bytes", got)
			}
			if f, err := r.ReadFrame(); !errors.Is(err, io.EOF) {
				t.Errorf("after the last answer: %v, %v", f, err)
			}
			_ = r.conn.Close()
			ends(t, drained)
		})
	}
}

// A client that keeps its connection open after the end holds it for PingTimeout, and not beyond Stop.
func TestAClientThatStaysIsNotWaitedFor(t *testing.T) {
	for name, c := range map[string]struct {
		most time.Duration
		end  func(t *testing.T, s *server)
	}{
		"PingTimeout": {10 * time.Millisecond, func(*testing.T, *server) {}},
		"Stop":        {time.Hour, stop},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config()
			cfg.PingTimeout = c.most
			address, s := serve(t, cfg)
			r := greet(t, address)
			drained := draining(t, s)
			if f := until[*http2.PingFrame](r); f != nil {
				_ = r.WritePing(true, f.Data) // after PingTimeout it is not waited for
			}
			_, _ = io.Copy(io.Discard, r.conn)
			c.end(t, s)
			ends(t, drained)
		})
	}
}
