package cache

import (
	"time"

	"github.com/shardwatch/shardwatch/internal/data/keytree"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// Status is the state of a cache as reported to operators.
type Status struct {
	Ready           bool
	Progress, Floor kv.Revision
	// Age is how old the data may be; valid if AgeKnown.
	Age      time.Duration
	AgeKnown bool
	// Keys is the number of keys in the state. StateBytes is their size with the trees
	// over them. Before the cache is ready, the bytes of the state, the window and the
	// deletes are those received so far.
	Keys       int
	StateBytes int64
	// Roots are states of older revisions. RootsBytes is their memory beyond the
	// state's; it includes previous values that the window also holds.
	Roots      int
	RootsBytes int64
	// WindowBatches, WindowBytes and WindowSpan are the size of the window; the
	// span is the time between its oldest batch and now.
	WindowBatches int64
	WindowBytes   int64
	WindowSpan    time.Duration
	// Watchers counts the watches. Watches that are read together share one of the Readers.
	Watchers, Readers int
	// DeltaFloor is the oldest revision from which on deletes are known.
	// Tombstones is the number of kept deletes, TombstoneBytes their size.
	DeltaFloor     kv.Revision
	Tombstones     int
	TombstoneBytes int64
	// TombstonesSqueezed counts the deletes evicted before their time, because
	// of their bytes.
	TombstonesSqueezed int64
	// Since the start: Batches and Events that were applied, Late batches that came
	// twice and were dropped, Resets of the window, and Leaps, by which the state
	// continued after a reset.
	Batches, Events, Late, Resets, Leaps int64
}

// Status returns the cache's state.
func (c *Cache) Status() Status {
	v := c.view.Load()
	s := Status{
		Ready: v.ready && !v.retired, Progress: v.progress, Floor: v.win.floor,
		StateBytes:    c.counters.stateBytes.Load(),
		WindowBatches: int64(v.win.next - v.win.first), //nolint:gosec // a count of batches in memory
		Batches:       c.counters.batches.Load(), Events: c.counters.events.Load(),
		Late: c.counters.late.Load(), Resets: c.counters.resets.Load(), Leaps: c.counters.leaps.Load(),
	}
	s.Tombstones, s.TombstoneBytes, s.DeltaFloor, s.TombstonesSqueezed = c.changes.status()
	s.Roots, s.RootsBytes = c.roots.Status()
	s.Age, s.AgeKnown = c.Age()
	if v.root != nil {
		s.Keys = v.root.Len()
		s.StateBytes += int64(s.Keys) * keytree.KeyOverhead
	}
	for _, seg := range v.win.segments {
		s.WindowBytes += seg.size.Load()
	}
	if v.win.next > v.win.first {
		s.WindowSpan = time.Since(v.win.at(v.win.first).Received)
	}
	if !v.ready {
		s.StateBytes, s.WindowBytes = c.counters.loadedState.Load(), c.counters.loadedWindow.Load()
		s.TombstoneBytes = c.counters.loadedDeletes.Load()
	}
	c.wakeups.mu.Lock()
	s.Watchers, s.Readers = c.wakeups.index.count, c.wakeups.index.readers
	c.wakeups.mu.Unlock()
	return s
}
