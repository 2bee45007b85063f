package copies

import (
	"context"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/replica"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wait"
)

const (
	// lingering bounds how long an unassigned copy continues: etcd takes 0.1 s to sync
	// a watch from the past.
	lingering = time.Second
	// lingerLook is the time between two checks whether it still has to.
	lingerLook = 30 * time.Millisecond
)

// leave ends a cache that the map no longer assigns to this node. A cache that reads
// etcd itself serves its followers until the new owners read etcd: otherwise the shard
// would briefly have no source.
func (s *Set) leave(ctx context.Context, h *Copy) {
	if _, direct := h.Source.Current(); direct {
		s.linger(ctx, h)
	}
	h.stop()
	<-h.done
	s.mu.Lock()
	if s.leaving[h.ID] == h {
		delete(s.leaving, h.ID)
	}
	s.mu.Unlock()
	s.moved.Notify()
}

// Left waits until the copies match a map of this version and none lingers. The wait is
// bounded.
func (s *Set) Left(ctx context.Context, version uint64) {
	ctx, cancel := context.WithTimeout(ctx, 2*lingering)
	defer cancel()
	for {
		moved := s.moved.Wait()
		s.mu.RLock()
		done := s.version >= version && len(s.leaving) == 0
		s.mu.RUnlock()
		if done {
			return
		}
		if !wait.For(ctx, moved) {
			return
		}
	}
}

func (s *Set) linger(ctx context.Context, h *Copy) {
	ctx, cancel := context.WithTimeout(ctx, lingering)
	defer cancel()
	tick := time.NewTicker(lingerLook)
	defer tick.Stop()
	for !s.isRead(ctx, h.Cache.Range()) {
		select {
		case <-tick.C:
		case <-h.done:
			return
		case <-ctx.Done():
			return
		}
	}
}

// isRead reports whether all shards with keys of the range have an owner that
// reads etcd.
func (s *Set) isRead(ctx context.Context, r kv.Range) bool {
	m := s.cfg.Placement.Map()
	for i := range m.Shards {
		if sh := &m.Shards[i]; sh.Range.Overlaps(r) && !s.reads(ctx, m.Lineage, sh) {
			return false
		}
	}
	return true
}

// reads reports whether the shard's owner reads etcd.
func (s *Set) reads(ctx context.Context, lineage uint64, sh *shard.Shard) bool {
	owner := sh.Owner()
	if owner == s.cfg.Self {
		direct, _ := s.Direct(sh.ID)
		return direct
	}
	link, err := s.cfg.Link(owner)
	if err != nil {
		return false
	}
	p := replica.Peer{Link: link, Shard: sh.ID, Self: s.cfg.Self, RequireDirect: true}
	return p.Probe(ctx, sh.Range, lineage) == nil
}
