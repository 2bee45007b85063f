package node

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/edge/netlimit"
	"github.com/shardwatch/shardwatch/internal/fair"
)

// AddressRate slows down large inputs at the client and the HTTP port; 0 does not.
func TestAddressRate(t *testing.T) {
	for rate, slow := range map[int64]bool{0: false, 1 << 20: true} {
		synctest.Test(t, func(t *testing.T) {
			cfg := Defaults()
			cfg.AddressRate, cfg.Logger = rate, slog.New(slog.DiscardHandler)
			l := newLimits(&cfg, fair.NewTurns())
			for _, port := range []*netlimit.Limit{l.clients, l.http} {
				client, server := net.Pipe()
				c, ok := port.Admit(server)
				if !ok {
					t.Fatal("refused")
				}
				c.Settle()
				go func() {
					_, _ = client.Write(make([]byte, 1<<20))
					_ = client.Close()
				}()
				if _, err := io.Copy(io.Discard, c); err != nil {
					t.Error(err)
				}
				if s := port.Stats(); slow != (s.Paced > 0) {
					t.Errorf("at %d bytes per second %d reads waited: %+v", rate, s.Paced, s)
				}
				_ = c.Close()
			}
		})
	}
}

// arrival is a connection from an address.
type arrival struct{ net.Conn }

func (arrival) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)} }

// AddressHandshakes bounds the connections that one address begins at the client and at the HTTP port, if
// these have TLS; 0 does not.
func TestAddressHandshakes(t *testing.T) {
	for name, c := range map[string]struct {
		secure *tls.Config
		rate   int
		slow   bool
	}{
		"TLS":           {&tls.Config{}, 4, true},
		"without TLS":   {nil, 4, false},
		"without bound": {&tls.Config{}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Defaults()
			cfg.AddressHandshakes, cfg.ClientTLS, cfg.HTTPTLS, cfg.Logger = c.rate, c.secure, c.secure, slog.New(slog.DiscardHandler)
			l := newLimits(&cfg, fair.NewTurns())
			for _, port := range []*netlimit.Limit{l.clients, l.http} {
				for range 30 {
					_, server := net.Pipe()
					if conn, ok := port.Admit(arrival{server}); ok {
						defer conn.Close()
					}
				}
				if s := port.Stats(); c.slow != (s.Waits > 0) || c.slow != (s.Refused > 0) {
					t.Errorf("%+v", s)
				}
			}
		})
	}
}

// Handshakes at the peer port have separate turns: handshakes of clients do not delay
// nodes, and one host with a refused certificate does not use all cores.
func TestHandshakesOfNodesTakeTurns(t *testing.T) {
	cfg := &Config{ClientTLS: &tls.Config{}, PeerServerTLS: &tls.Config{}, MaxConnections: 10, Logger: slog.New(slog.DiscardHandler)}
	l := newLimits(cfg, fair.NewTurns())
	read := func(limit *netlimit.Limit) (*netlimit.Conn, chan struct{}) {
		t.Helper()
		here, there := net.Pipe()
		t.Cleanup(func() { _ = there.Close() })
		c, ok := limit.Admit(here)
		if !ok {
			t.Fatal("refused")
		}
		t.Cleanup(func() { _ = c.Close() })
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = c.Read(make([]byte, 1))
		}()
		if _, err := there.Write([]byte{0x16}); err != nil {
			t.Fatal(err)
		}
		return c, done
	}
	_, client := read(l.clients)
	<-client // it has a turn, and keeps it
	first, node := read(l.peers)
	<-node
	_, next := read(l.peers)
	for l.peers.Stats().Waits == 0 {
		select {
		case <-next:
			t.Fatal("a second handshake did not wait")
		case <-time.After(time.Millisecond):
		}
	}
	first.Settle()
	<-next
}
