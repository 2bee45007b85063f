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

// draining drains a server in the background, and returns the channel with the result of Drain.
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
		t.Error("Drain has not returned: the server still waits for a client")
	}
}

// When a connection ends gracefully, a client that reads slowly still gets the whole last answer. Meanwhile it
// sends window updates, which would make it lose the rest if the server had closed the socket.
func TestALastAnswerIsReadToItsEnd(t *testing.T) {
	forServer, forClient := certificates(t)
	for name, secure := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			cfg := config()
			cfg.PingTimeout = time.Hour // so that only the client ends the connection
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
				slow = slow && readers() > 0 // until the server has sent everything
				f, err := r.ReadFrame()
				if err != nil {
					t.Fatalf("after %d bytes, server still sending %t: %v", got, slow, err)
				}
				switch f := f.(type) {
				case *http2.DataFrame:
					got += len(f.Data())
					r.must(r.WriteWindowUpdate(0, f.Length))
				case *http2.MetaHeadersFrame:
					ended = f.StreamEnded()
				}
			}
			if got != size+5+10 { // message header, and the two length prefixes of the proto
				t.Errorf("%d bytes", got)
			}
			if f, err := r.ReadFrame(); !errors.Is(err, io.EOF) {
				t.Errorf("the end after the last answer: %v, %v", f, err)
			}
			_ = r.conn.Close()
			ends(t, drained)
		})
	}
}

// A client that stays connected after the graceful end delays the server by PingTimeout at most, and not after
// Stop.
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
				_ = r.WritePing(true, f.Data) // after that, the server waits for PingTimeout only
			}
			_, _ = io.Copy(io.Discard, r.conn)
			c.end(t, s)
			ends(t, drained)
		})
	}
}
