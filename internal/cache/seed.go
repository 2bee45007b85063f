package cache

import "github.com/shardwatch/shardwatch/internal/kv"

// Seed is what a new cache starts with instead of nothing.
type Seed struct {
	tree            *tree
	batches         []*kv.Batch
	floor, progress kv.Revision
}

// Seed returns the part of the cache that lies in r, for a child of a split:
// it inherits state and window, so that its watchers miss nothing. Call it
// after Run has returned. It is nil when there is nothing to inherit.
func (c *Cache) Seed(r kv.Range) *Seed {
	v := c.view.Load()
	if !v.ready || c.cfg.Stateless || !c.cfg.Range.Covers(r) {
		return nil
	}
	s := &Seed{tree: newTree(), floor: v.win.floor, progress: v.progress}
	(&Snapshot{root: v.root}).Ascend(r, func(item *kv.KeyValue) bool {
		s.tree.Load(item)
		return true
	})
	for seq := v.win.first; seq < v.win.next; seq++ {
		b := v.win.at(seq).Batch
		child := kv.Batch{Revision: b.Revision, Received: b.Received}
		for i := range b.Events {
			if r.ContainsBytes(b.Events[i].KV.Key()) {
				child.Events = append(child.Events, b.Events[i])
			}
		}
		if len(child.Events) > 0 {
			s.batches = append(s.batches, &child)
		}
	}
	return s
}
