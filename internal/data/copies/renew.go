package copies

import (
	"context"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/ops/telemetry"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// renewal requests the reload of a wrong copy, and not from those to
// avoid.
type renewal struct {
	wrong *cache.Cache
	id    shard.ID
	avoid []string
	begun chan bool // capacity 1: whether it was
}

// Renew asks for a renewal, and reports whether it has begun: not if the wrong copy
// is gone. It fails when ctx ends.
func (s *Set) Renew(ctx context.Context, id shard.ID, wrong *cache.Cache, avoid []string) (begun bool, err error) {
	r := renewal{wrong: wrong, id: id, avoid: avoid, begun: make(chan bool, 1)}
	select {
	case s.renewals <- r:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	select {
	case begun = <-r.begun:
	case <-ctx.Done():
	}
	return begun, nil
}

// Renewing returns how many wrong copies are being reloaded.
func (s *Set) Renewing() (n int64) {
	for _, h := range s.All() {
		n += telemetry.Bool(h.Renewed && !h.Ready())
	}
	return n
}

// renew puts a new copy in the place of a wrong one. Nothing is inherited: the
// error may be anywhere in it. Its watches and reads are served by other nodes
// until the new one is loaded, and lose nothing; so do nodes that follow it.
func (s *Set) renew(ctx context.Context, r renewal) {
	m := s.acted.Load() // that the wrong one is of, if it is still here
	s.mu.Lock()
	old := s.replicas[r.id]
	if old == nil || old.Cache != r.wrong {
		s.mu.Unlock()
		r.begun <- false // it has gone already
		return
	}
	sh, _ := m.Shard(r.id)
	delete(s.replicas, r.id)
	s.mu.Unlock()
	s.cfg.History.Drop(r.id) // it may have saved the error
	old.stop()
	<-old.done
	h := s.start(ctx, m, &sh, nil, nil, r.avoid)
	h.Renewed = true
	s.mu.Lock()
	s.replicas[r.id] = h
	s.mu.Unlock()
	s.running.Go(func() { s.welcome(h) })
	s.cfg.Kick()
	r.begun <- true
}
