package cache

import (
	"iter"
	"slices"

	"github.com/shardwatch/shardwatch/internal/data/keytree"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// Export is the contents of a cache at one moment. Another cache can be loaded
// from it.
type Export struct {
	Snapshot *keytree.Snapshot
	Floor    kv.Revision
	// DeltaFloor is the oldest revision from which on deletes are known.
	DeltaFloor kv.Revision
	window     windowView
	deletes    []kv.Tombstone // below Floor
}

// Export returns the cache's contents at its current progress. It fails with
// ErrRetired and ErrNotReady.
func (c *Cache) Export() (*Export, error) {
	switch {
	case c.view.Load().retired:
		return nil, ErrRetired
	case c.cfg.Stateless:
		return nil, ErrNotReady
	}
	return c.export()
}

// export is Export for a cache that may be retired or stateless. The export of
// a stateless cache has only the window.
func (c *Cache) export() (*Export, error) {
	v := c.view.Load()
	if !v.ready {
		return nil, ErrNotReady
	}
	// Read after the view, so that no delete below its floor is missing.
	deletes, floor := c.changes.all()
	x := &Export{
		Snapshot: &keytree.Snapshot{Revision: v.progress, Root: v.root},
		Floor:    v.win.floor, DeltaFloor: min(floor, v.win.floor), window: v.win,
	}
	x.deletes = deletes[:cutTombstones(deletes, v.win.floor)]
	return x, nil
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

// Since returns the batches of the window after a revision, oldest first.
func (x *Export) Since(revision kv.Revision) iter.Seq[*kv.Batch] {
	return func(yield func(*kv.Batch) bool) {
		for seq := x.window.seek(revision + 1); seq < x.window.next; seq++ {
			if !yield(x.window.at(seq).Batch) {
				return
			}
		}
	}
}

// Tombstones returns the deletes that are older than the window, oldest first.
func (x *Export) Tombstones() iter.Seq[kv.Tombstone] { return slices.Values(x.deletes) }

// Past returns the window and the tombstones as a Past.
func (x *Export) Past() *Past {
	return &Past{
		Progress: x.Snapshot.Revision, Floor: x.Floor, Batches: slices.Collect(x.History()),
		DeltaFloor: x.DeltaFloor, Tombstones: x.deletes,
	}
}
