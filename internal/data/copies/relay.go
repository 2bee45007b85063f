package copies

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/replica"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wait"
)

// relayTimeout is how long a watch waits for a relay or replica.
const relayTimeout = 2 * time.Second

// relay returns a ready cache for watches of a shard that is not here, or not yet: a
// relay, or the replica if it is ready first. The function releases it.
func (s *Set) relay(ctx context.Context, m *shard.Map, sh shard.Shard) (*cache.Cache, func(), error) {
	ctx, cancel := context.WithTimeout(ctx, relayTimeout)
	defer cancel()
	mine := slices.Contains(sh.Replicas, s.cfg.Self)
	if mine && !s.caughtUp(ctx, m.Version) {
		return nil, nil, unavailable(sh.ID, "this node has not reached the newest shard map yet")
	}
	var own *Copy
	var ownReady, relayReady, relayDone <-chan struct{}
	if mine {
		if own = s.replica(sh.ID); own != nil {
			ownReady = own.Cache.Ready()
			if own.Ready() {
				return own.Cache, func() {}, nil
			}
		}
	}
	borrowed, release := (*Copy)(nil), func() {}
	if !mine || len(sh.Replicas) > 1 {
		if borrowed, release = s.borrow(m, sh); borrowed == nil {
			return nil, nil, unavailable(sh.ID, "the node is starting or stopping")
		}
		relayReady, relayDone = borrowed.Cache.Ready(), borrowed.done
	}
	select {
	case <-ownReady:
		release()
		return own.Cache, func() {}, nil
	case <-relayReady:
		return borrowed.Cache, release, nil
	case <-relayDone:
		release()
		return nil, nil, unavailable(sh.ID, "it is being moved")
	case <-ctx.Done():
		release()
		return nil, nil, unavailable(sh.ID, "no node that has it answers")
	}
}

// caughtUp waits until the replicas match the map of that version, and reports whether
// they do.
func (s *Set) caughtUp(ctx context.Context, version uint64) bool {
	for {
		moved := s.moved.Wait()
		s.mu.RLock()
		behind := s.version < version
		s.mu.RUnlock()
		if !behind {
			return true
		}
		if !wait.For(ctx, moved) {
			return false
		}
	}
}

// borrow returns the relay of a shard, which need not be ready, and a function that
// releases it; nil while the node starts or stops.
func (s *Set) borrow(m *shard.Map, sh shard.Shard) (*Copy, func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.ctx == nil || s.cfg.Lineage.Refusal() != nil {
		return nil, nil
	}
	h := s.relays[sh.ID]
	if h == nil {
		h = s.lend(m, &sh, nil)
		s.relays[h.ID] = h
	}
	h.users++
	return h, sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if h.users--; h.users == 0 {
			h.idle = time.Now()
		}
	})
}

// lend runs a relay, which begins with seed if that is not nil. It has no users yet.
func (s *Set) lend(m *shard.Map, sh *shard.Shard, seed *cache.Seed) *Copy {
	cfg := s.cfg.Cache
	cfg.Range, cfg.Lineage, cfg.Stateless, cfg.Seed = sh.Range, m.Lineage, true, seed
	id := sh.ID
	return s.launch(s.ctx, id, sh.Epoch, cfg, &replica.Failover{
		Candidates: func() []replica.Candidate { return s.relaySources(id) },
		Warm:       s.predecessors,
		Noticed:    s.cfg.Noticed(id),
		Logger:     s.cfg.Logger.With("shard", uint64(id), "relay", true),
	})
}

func unavailable(id shard.ID, why string) error {
	return &kv.UnavailableError{Why: kv.NotReady, RetryAfter: 200 * time.Millisecond, Detail: fmt.Sprintf("shard %d: %s", id, why)}
}
