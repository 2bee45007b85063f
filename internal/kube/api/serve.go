package api

import (
	"context"
	"crypto/tls"
	"math/rand/v2"
	"net"
	"time"

	"github.com/shardwatch/shardwatch/internal/kube/port"
	"github.com/shardwatch/shardwatch/internal/kube/upstream"
)

// Serve answers on ln until ctx ends. Then it drains, within the given time: it accepts no more
// connections, announces to clients that new requests need another connection, and ends
// the watches one after the other, each after a bookmark, so that their clients do not all
// connect to another node at once.
func (s *Server) Serve(ctx context.Context, ln net.Listener, secure *tls.Config, drain time.Duration) error {
	var end time.Time
	cfg := port.Config{Handler: s, TLS: secure, Budget: s.cfg.Budget, Logger: s.cfg.Logger, Drain: drain, Draining: func() {
		end = time.Now().Add(drain)
		s.cfg.Logger.Info("draining: ending the watches", "watches", s.counts.watches.Load(), "within", drain)
		s.spread.Store(int64(max(0, drain-2*upstream.ShortestWatch)))
		close(s.draining)
		s.rounds.drain()
	}}
	err := port.Serve(ctx, ln, &cfg)
	s.drainSockets(end)
	return err
}

// turn returns the random time after which a watch ends in a drain.
func (s *Server) turn() time.Duration {
	if spread := s.spread.Load(); spread > 0 {
		return rand.N(time.Duration(spread))
	}
	return 0
}
