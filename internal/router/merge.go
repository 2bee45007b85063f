package router

import (
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// merge merges the revisions of several shards into one sequence. One goroutine at a
// time may use it; position may be called from any.
type merge struct {
	cursors []cursor
	taken   atomic.Int64 // the lowest revision that next holds back; 0: none
	skipped int          // by the last call of next; see cache.Watcher.Skipped
}

// cursor is the position in one shard.
type cursor struct {
	shard   shard.ID
	watcher *cache.Watcher
	// The next revision of this shard, taken from the watcher and not yet
	// delivered; 0: none.
	revision kv.Revision
	events   []*kv.Event
	gave     kv.Revision // the last delivered revision
}

// newMerge returns a merge of the events of the homes in their ranges from a revision on.
// It fails as cache.Watch does, and returns the home that failed.
func newMerge(homes []home, from kv.Revision, waker cache.Waker) (*merge, *home, error) {
	m := &merge{cursors: make([]cursor, 0, len(homes))}
	for i := range homes {
		h := &homes[i]
		watcher, err := h.cache.Watch(h.rng, from, waker)
		if err != nil {
			m.close()
			return nil, h, err
		}
		m.cursors = append(m.cursors, cursor{shard: h.shard, watcher: watcher})
	}
	return m, nil, nil
}

func (m *merge) close() {
	for i := range m.cursors {
		m.cursors[i].watcher.Close()
	}
}

// next returns the lowest pending revision of the shards, once all of them are complete
// up to it; until then it returns 0, and held returns the revision.
func (m *merge) next(dst []*kv.Event) (kv.Revision, []*kv.Event, error) {
	lowest := kv.Revision(math.MaxInt64)
	m.skipped = 0
	for i := range m.cursors {
		c := &m.cursors[i]
		if c.revision == 0 {
			var err error
			if c.revision, c.events, err = c.watcher.Next(c.events[:0]); err != nil {
				return 0, dst, err
			}
			m.skipped += c.watcher.Skipped()
		}
		if c.revision > 0 {
			lowest = min(lowest, c.revision)
		}
	}
	if lowest == math.MaxInt64 {
		m.taken.Store(0)
		return 0, dst, nil
	}
	m.taken.Store(int64(lowest))
	for i := range m.cursors {
		if c := &m.cursors[i]; c.lags(lowest) {
			return 0, dst, nil
		}
	}
	for i := range m.cursors {
		c := &m.cursors[i]
		if c.revision == lowest {
			dst = append(dst, c.events...)
			clear(c.events)
			c.revision, c.gave = 0, lowest
		}
	}
	return lowest, dst, nil
}

// lags reports whether the shard may have events up to a revision that were not taken
// from the watcher.
func (c *cursor) lags(revision kv.Revision) bool {
	return c.revision == 0 && c.watcher.Progress() < revision
}

// pending reports whether a shard has batches that next has not examined.
func (m *merge) pending() bool {
	return slices.ContainsFunc(m.cursors, func(c cursor) bool { return c.revision == 0 && c.watcher.Pending() })
}

// held returns the revision that next holds back; 0: none.
func (m *merge) held() kv.Revision { return kv.Revision(m.taken.Load()) }

// progress returns the revision up to which next has returned all events.
func (m *merge) progress() kv.Revision {
	progress := kv.Revision(math.MaxInt64)
	for i := range m.cursors {
		progress = min(progress, m.cursors[i].progress())
	}
	return progress
}

// progress returns the revision up to which the shard has no undelivered events.
func (c *cursor) progress() kv.Revision {
	if c.revision > 0 {
		return c.revision - 1
	}
	return c.watcher.Progress()
}

// waits arranges a call of the waker for the time when next may return the revision that it holds
// back. It reports false if next may return the revision already: the last shard has reached it
// meanwhile, by progress without events, which wakes no watcher.
func (m *merge) waits() bool {
	held := m.held()
	return held == 0 || m.wakeAt(held)
}

// wakeAt makes each shard below revision call the merge's waker once it reaches the revision, and asks
// the sources for it. This includes shards with a taken revision: they may still be below revision
// when the taken one is delivered. wakeAt reports false when no shard is below revision: then the
// waker is not called.
func (m *merge) wakeAt(revision kv.Revision) (waits bool) {
	for i := range m.cursors {
		if w := m.cursors[i].watcher; w.Progress() < revision {
			w.WakeAt(revision)
			waits = true
		}
	}
	return waits
}

// behind returns the shard that is furthest behind; taken events count as delivered.
func (m *merge) behind() shard.ID {
	lowest, behind := kv.Revision(math.MaxInt64), shard.ID(0)
	for i := range m.cursors {
		if reached := m.cursors[i].watcher.Progress(); reached < lowest {
			lowest, behind = reached, m.cursors[i].shard
		}
	}
	return behind
}

// furthest returns the highest revision that one of the watchers has reached.
func (m *merge) furthest() (furthest kv.Revision) {
	for i := range m.cursors {
		furthest = max(furthest, m.cursors[i].watcher.Progress())
	}
	return furthest
}

// newest returns the newest revision that one of the shards has reached.
func (m *merge) newest() (newest kv.Revision) {
	for i := range m.cursors {
		newest = max(newest, m.cursors[i].watcher.Position().Newest)
	}
	return newest
}

// age returns the age of the shard whose data is oldest.
func (m *merge) age() (time.Duration, bool) {
	return oldest(len(m.cursors), func(i int) (time.Duration, bool) { return m.cursors[i].watcher.Age() })
}

// oldest returns the greatest of n ages, and false when one of them is not known.
func oldest(n int, age func(i int) (time.Duration, bool)) (out time.Duration, known bool) {
	for i := range n {
		one, known := age(i)
		if !known {
			return 0, false
		}
		out = max(out, one)
	}
	return out, true
}

// position returns the position of the merge. Any goroutine may call it. Newest is the
// deliverable revision: the revision of the shard that is furthest behind.
func (m *merge) position() cache.Position {
	p := cache.Position{Revision: math.MaxInt64, Newest: math.MaxInt64}
	for i := range m.cursors {
		one := m.cursors[i].watcher.Position()
		p.Revision, p.Newest = min(p.Revision, one.Revision), min(p.Newest, one.Newest)
		p.Since = earlier(p.Since, one.Since)
	}
	if taken := m.held(); taken > 0 && taken <= p.Newest {
		p.Revision = min(p.Revision, taken-1)
		for i := range m.cursors {
			p.Since = earlier(p.Since, m.cursors[i].watcher.Received(taken))
		}
	}
	return p
}
