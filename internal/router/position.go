package router

import (
	"math"
	"time"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// Position returns how far the watch is, to anybody, and false when it is over.
// Newest is what can be delivered: that of the shard which is furthest behind.
// While the watch looks for a new home, Since is the beginning of that.
func (w *Watch) Position() (cache.Position, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state.Load() != settled { // delivered is nobody's then
		return cache.Position{Revision: w.delivered, Newest: max(w.delivered, w.r.Newest()), Since: w.since}, !w.closed
	}
	p := cache.Position{Revision: math.MaxInt64, Newest: math.MaxInt64}
	for i := range w.cursors {
		one := w.cursors[i].watcher.Position()
		p.Revision, p.Newest = min(p.Revision, one.Revision), min(p.Newest, one.Newest)
		p.Since = earlier(p.Since, one.Since)
	}
	if taken := kv.Revision(w.taken.Load()); taken > 0 && taken <= p.Newest {
		p.Revision = min(p.Revision, taken-1)
		for i := range w.cursors {
			p.Since = earlier(p.Since, w.cursors[i].watcher.Received(taken))
		}
	}
	if p.Revision == p.Newest { // what a shard has ahead of the others is not late
		p.Since = time.Time{}
	}
	return p, len(w.cursors) > 0
}

// Newest returns the newest revision that one of the shards has: the others get
// there when they are asked to. For who uses the watch.
func (w *Watch) Newest() kv.Revision {
	newest := w.delivered
	if w.state.Load() != settled {
		return newest
	}
	for i := range w.cursors {
		newest = max(newest, w.cursors[i].watcher.Position().Newest)
	}
	return newest
}

// earlier returns the earlier of two times; zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
