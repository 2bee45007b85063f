package router

import (
	"time"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// Position returns the position of the watch, and false after its end. Any goroutine may call it.
// Newest is the deliverable revision: the revision of the shard that is furthest behind.
// While the watch has no source, Since is the start of the search for a new one.
func (w *Watch) Position() (cache.Position, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state.Load() != settled { // then delivered does not change
		return cache.Position{Revision: w.delivered, Newest: max(w.delivered, w.r.Newest()), Since: w.since}, !w.closed
	}
	p, ok := w.place.position()
	if p.Revision == p.Newest { // events of a shard ahead of the others are not late
		p.Since = time.Time{}
	}
	return p, ok
}

// Newest returns the newest revision that one of the shards has reached; the others
// reach it on request. Only the user of the watch may call it.
func (w *Watch) Newest() kv.Revision {
	p := &w.place
	switch {
	case w.state.Load() != settled:
	case p.alone != nil:
		return max(w.delivered, p.alone.newest())
	case p.merged != nil:
		_, furthest := p.merged.behind()
		return max(w.delivered, furthest)
	case p.one != nil:
		return max(w.delivered, p.one.Position().Newest)
	}
	return w.delivered
}

// earlier returns the earlier of two times; zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
