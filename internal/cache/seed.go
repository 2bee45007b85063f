package cache

import (
	"slices"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/mutant"
)

// History is what is known of a range's past up to a revision: the window and
// the deletes.
type History struct {
	// Progress is the revision up to which the history goes.
	Progress kv.Revision
	// Floor is the oldest revision from which on Batches are complete. They are
	// in order.
	Floor   kv.Revision
	Batches []*kv.Batch
	// DeltaFloor is the oldest revision from which on deletes are known, by
	// Tombstones below Floor and by Batches from there on. It is not above Floor.
	// Tombstones are in order.
	DeltaFloor kv.Revision
	Tombstones []kv.Tombstone
}

// join adds what an older history knows and h does not, when there is no gap
// between the two.
func (h *History) join(older *History) {
	if older == nil || older.Progress < h.DeltaFloor-1 {
		return
	}
	if older.Progress >= h.Floor-1 && older.Floor < h.Floor {
		cut := cutBatches(older.Batches, h.Floor)
		h.Batches = slices.Concat(older.Batches[:cut], h.Batches)
		// What lay between the two floors is in the batches now.
		h.Tombstones = h.Tombstones[:cutTombstones(h.Tombstones, older.Floor)]
		h.DeltaFloor = min(h.DeltaFloor, older.Floor)
		h.Floor = older.Floor
	}
	deletes := older.tombstones()
	if older.DeltaFloor < h.DeltaFloor {
		h.Tombstones = slices.Concat(deletes[:cutTombstones(deletes, h.DeltaFloor)], h.Tombstones)
		h.DeltaFloor = older.DeltaFloor
	}
}

// tombstones returns all deletes of the history, by revision.
func (h *History) tombstones() []kv.Tombstone {
	out := slices.Clip(h.Tombstones[:cutTombstones(h.Tombstones, h.Floor)])
	for _, b := range h.Batches {
		for i := range b.Events {
			if e := &b.Events[i]; e.Type == kv.Delete {
				out = append(out, kv.Tombstone{Key: string(e.KV.Key()), Revision: b.Revision})
			}
		}
	}
	return out
}

// cutBatches returns how many of the batches lie below revision.
func cutBatches(list []*kv.Batch, revision kv.Revision) int {
	n, _ := slices.BinarySearchFunc(list, revision, func(b *kv.Batch, r kv.Revision) int { return int(b.Revision - r) })
	return n
}

// cutTombstones is cutBatches for tombstones.
func cutTombstones(list []kv.Tombstone, revision kv.Revision) int {
	n, _ := slices.BinarySearchFunc(list, revision, func(t kv.Tombstone, r kv.Revision) int { return int(t.Revision - r) })
	return n
}

// Part returns what of the history lies in r.
func (h *History) Part(r kv.Range) *History {
	out := &History{Progress: h.Progress, Floor: h.Floor, DeltaFloor: h.DeltaFloor}
	for _, b := range h.Batches {
		child := kv.Batch{Revision: b.Revision, Received: b.Received}
		for i := range b.Events {
			if r.ContainsBytes(b.Events[i].KV.Key()) {
				child.Events = append(child.Events, b.Events[i])
			}
		}
		if len(child.Events) > 0 {
			out.Batches = append(out.Batches, &child)
		}
	}
	for _, t := range h.Tombstones {
		if r.Contains(t.Key) {
			out.Tombstones = append(out.Tombstones, t)
		}
	}
	return out
}

// Seed is what a new cache starts with instead of nothing.
type Seed struct {
	tree *tree
	past *History
}

// Seed returns the part of the cache that lies in r, for a child of a split:
// it inherits state and history, so that its watchers miss nothing. Call it
// after Run has returned. It is nil when there is nothing to inherit.
func (c *Cache) Seed(r kv.Range) *Seed {
	x, err := c.export()
	if err != nil || !c.cfg.Range.Covers(r) {
		return nil
	}
	s := &Seed{tree: newTree(), past: x.Past().Part(r)}
	if mutant.On("split-without-window") {
		s.past.Batches = nil
	}
	x.Snapshot.Ascend(r, func(item *kv.KeyValue) bool {
		s.tree.Load(item)
		return true
	})
	return s
}
