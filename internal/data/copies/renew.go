package copies

import (
	"context"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/ops/telemetry"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// renewal requests the reload of a wrong copy, but not from the nodes in avoid.
type renewal struct {
	wrong *cache.Cache
	id    shard.ID
	avoid []string
	begun chan bool // capacity 1; whether the renewal has begun
}

// Renew requests a renewal, and reports whether it has begun. It has not if the wrong
// copy is gone. It fails when ctx ends; the renewal may begin all the same.
func (s *Set) Renew(ctx context.Context, id shard.ID, wrong *cache.Cache, avoid []string) (begun bool, err error) {
	r := renewal{wrong: wrong, id: id, avoid: avoid, begun: make(chan bool, 1)}
	select {
	case s.renewals <- r:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	select {
	case begun = <-r.begun:
		return begun, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// Renewing returns how many wrong copies are being reloaded.
func (s *Set) Renewing() (n int64) {
	for _, h := range s.All() {
		n += telemetry.Bool(h.Renewed && !h.Ready())
	}
	return n
}

// renew replaces a wrong copy by a new one. The new copy inherits nothing, since the
// error may be anywhere. Until it is loaded, other nodes serve its watches, reads and
// followers, which lose nothing.
func (s *Set) renew(ctx context.Context, r renewal) {
	m := s.acted.Load() // the map of the wrong copy, if it is still here
	s.mu.Lock()
	old := s.replicas[r.id]
	if old == nil || old.Cache != r.wrong {
		s.mu.Unlock()
		r.begun <- false // it is gone already
		return
	}
	sh, _ := m.Shard(r.id)
	delete(s.replicas, r.id)
	s.mu.Unlock()
	s.cfg.History.Drop(r.id) // the saved history may have the error
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
