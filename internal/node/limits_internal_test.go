package node

import (
	"io"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"

	"github.com/shardwatch/shardwatch/internal/edge/netlimit"
)

// AddressRate slows down large inputs at the client and the HTTP port; 0 does not.
func TestAddressRate(t *testing.T) {
	for rate, slow := range map[int64]bool{0: false, 1 << 20: true} {
		synctest.Test(t, func(t *testing.T) {
			cfg := Defaults()
			cfg.AddressRate, cfg.Logger = rate, slog.New(slog.DiscardHandler)
			l := newLimits(&cfg)
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
					t.Errorf("with %d bytes per second %d reads waited: %+v", rate, s.Paced, s)
				}
				_ = c.Close()
			}
		})
	}
}
