package cache

import (
	"iter"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// Export is a consistent cut of the cache: what another one needs to become
// its equal.
type Export struct {
	Snapshot *Snapshot
	Floor    kv.Revision
	window   windowView
}

// Export returns the cache's content at its present progress. It fails with
// ErrRetired and ErrNotReady.
func (c *Cache) Export() (*Export, error) {
	v := c.view.Load()
	switch {
	case v.retired:
		return nil, ErrRetired
	case !v.ready || c.cfg.Stateless:
		return nil, ErrNotReady
	}
	return &Export{Snapshot: &Snapshot{Revision: v.progress, root: v.root}, Floor: v.win.floor, window: v.win}, nil
}

// History returns the batches of the window, oldest first.
func (x *Export) History() iter.Seq[*kv.Batch] {
	return func(yield func(*kv.Batch) bool) {
		for seq := x.window.first; seq < x.window.next; seq++ {
			if !yield(x.window.at(seq).Batch) {
				return
			}
		}
	}
}
