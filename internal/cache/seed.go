package cache

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/shardwatch/shardwatch/internal/data/keytree"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// Past is the known history of a range up to a revision: the window and the
// deletes.
type Past struct {
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

// join adds the part of an older history that h lacks, if there is no gap between
// the two.
func (h *Past) join(older *Past) {
	if older == nil || older.Progress < h.DeltaFloor-1 {
		return
	}
	if older.Progress >= h.Floor-1 && older.Floor < h.Floor {
		cut := cutBatches(older.Batches, h.Floor)
		h.Batches = slices.Concat(older.Batches[:cut], h.Batches)
		// The batches now have the events between the two floors.
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
func (h *Past) tombstones() []kv.Tombstone { return h.deletesBelow(math.MaxInt64) }

// deletesBelow returns the deletes below a revision, in order.
func (h *Past) deletesBelow(revision kv.Revision) []kv.Tombstone {
	out := slices.Clip(h.Tombstones[:cutTombstones(h.Tombstones, min(h.Floor, revision))])
	for _, b := range h.Batches[:cutBatches(h.Batches, revision)] {
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
	n, _ := slices.BinarySearchFunc(list, revision, func(b *kv.Batch, r kv.Revision) int { return cmp.Compare(b.Revision, r) })
	return n
}

// cutTombstones is cutBatches for tombstones.
func cutTombstones(list []kv.Tombstone, revision kv.Revision) int {
	n, _ := slices.BinarySearchFunc(list, revision, func(t kv.Tombstone, r kv.Revision) int { return cmp.Compare(t.Revision, r) })
	return n
}

// Part returns the part of the history in r.
func (h *Past) Part(r kv.Range) *Past {
	out := &Past{Progress: h.Progress, Floor: h.Floor, DeltaFloor: h.DeltaFloor}
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

// Unite returns the joint history of adjacent ranges from their histories in key
// order, which it may change. Its progress is the lowest of theirs, and its floors
// are the highest of theirs. The events of a revision in several of them become one
// batch again. Unite returns nil when they have no revision in common.
func Unite(parts ...*Past) *Past {
	out := &Past{Progress: math.MaxInt64}
	for _, h := range parts {
		out.Progress = min(out.Progress, h.Progress)
		out.Floor, out.DeltaFloor = max(out.Floor, h.Floor), max(out.DeltaFloor, h.DeltaFloor)
	}
	if out.Floor > out.Progress+1 {
		return nil
	}
	for _, h := range parts {
		from, to := cutBatches(h.Batches, out.Floor), cutBatches(h.Batches, out.Progress+1)
		out.Batches = append(out.Batches, h.Batches[from:to]...)
		deletes := h.deletesBelow(out.Floor)
		out.Tombstones = append(out.Tombstones, deletes[cutTombstones(deletes, out.DeltaFloor):]...)
	}
	slices.SortStableFunc(out.Tombstones, func(a, b kv.Tombstone) int { return cmp.Compare(a.Revision, b.Revision) })
	slices.SortStableFunc(out.Batches, func(a, b *kv.Batch) int { return cmp.Compare(a.Revision, b.Revision) })
	whole := out.Batches[:0]
	for _, b := range out.Batches {
		n := len(whole)
		if n == 0 || whole[n-1].Revision != b.Revision {
			whole = append(whole, b)
			continue
		}
		whole[n-1].Events = append(whole[n-1].Events, b.Events...)
		if b.Received.After(whole[n-1].Received) {
			whole[n-1].Received = b.Received
		}
	}
	clear(out.Batches[len(whole):])
	out.Batches = whole
	return out
}

// Seed is the initial state and history of a new cache.
type Seed struct {
	tree    *keytree.Tree // the state at base
	base    kv.Revision   // the revision of the new cache's oldest kept root
	past    *Past         // before and after base
	freshAt time.Time     // all changes that etcd had acknowledged by then are here; zero: not known
}

// Empty returns the seed of a stateless cache that has reached a revision and has
// no batches.
func Empty(at kv.Revision) *Seed {
	return &Seed{tree: keytree.New(), base: at, past: &Past{Progress: at, Floor: at + 1, DeltaFloor: at + 1}}
}

// Inherit returns the contents of caches in r, for a shard that a split, a merge, or
// both create: state and history at the newest revision that all of them have
// reached, and the states at earlier revisions that all of them keep. A watcher that
// was ahead of that revision can resume on the new cache, and misses no events. The
// seed of a stateless cache has no state, and may come from stateless caches.
//
// Where caches overlap, the first one in from is used. The caches may run or be retired.
// The seed is nil when they do not cover r, are not loaded or are released, or are so far
// apart that the caches ahead no longer keep the state at the revisions of the others.
func Inherit(r kv.Range, stateless bool, from ...*Cache) *Seed {
	parts := cover(r, stateless, from)
	if parts == nil {
		return nil
	}
	histories := make([]*Past, len(parts))
	fresh := make([]time.Time, len(parts))
	for i, p := range parts {
		fresh[i] = p.c.freshness.since(p.c.start) // read before the export: it holds for the export too
		x, err := p.c.export()
		if err != nil {
			return nil
		}
		histories[i] = x.Past().Part(p.r)
	}
	s := &Seed{tree: keytree.New(), past: Unite(histories...)}
	if s.past == nil {
		return nil
	}
	for i, h := range histories {
		// This freshness holds at the common revision only for the caches that were exactly there.
		if h.Progress == s.past.Progress && fresh[i].After(s.freshAt) {
			s.freshAt = fresh[i]
		}
	}
	if stateless {
		s.base = s.past.Progress
		return s
	}
	var roots []*keytree.Tree
	if roots, s.base = rootsOf(parts, s.past.Floor-1, s.past.Progress); roots == nil {
		return nil
	}
	for i, p := range parts {
		(&keytree.Snapshot{Root: roots[i]}).Ascend(p.r, func(item *kv.KeyValue) bool {
			s.tree.Load(item)
			return true
		})
	}
	return s
}

// Since returns the events in r from a revision on, and the revision up to which they
// are complete, from caches that together cover r and may run. It fails with
// ErrNotReady when they do not cover r, and with a *kv.CompactedError when they do not
// reach back to from.
func Since(r kv.Range, from kv.Revision, caches ...*Cache) (batches []*kv.Batch, progress kv.Revision, err error) {
	parts := cover(r, true, caches)
	if parts == nil {
		return nil, 0, ErrNotReady
	}
	known := make([]*Past, len(parts))
	for i, p := range parts {
		x, err := p.c.export()
		if err != nil {
			return nil, 0, err
		}
		if x.Floor > from {
			return nil, 0, &kv.CompactedError{Requested: from, Floor: x.Floor}
		}
		h := &Past{Progress: x.Snapshot.Revision, Floor: from, DeltaFloor: from, Batches: slices.Collect(x.Since(from - 1))}
		known[i] = h.Part(p.r)
	}
	all := Unite(known...)
	if all == nil { // they have not reached from
		return nil, from - 1, nil
	}
	return all.Batches, all.Progress, nil
}

// rootsOf returns the states at the oldest revision in [from, to] that all parts
// keep, and that revision; nil when there is none.
func rootsOf(parts []part, from, to kv.Revision) (roots []*keytree.Tree, at kv.Revision) {
	for at = from; at <= to; {
		roots = roots[:0]
		next := at
		for _, p := range parts {
			v := p.c.view.Load()
			if !v.ready { // released meanwhile
				return nil, 0
			}
			root, oldest := p.c.rootAt(v, at)
			roots, next = append(roots, root), max(next, oldest)
		}
		if next == at {
			return roots, at
		}
		at = next
	}
	return nil, 0
}

// part is a cache and the range to take from it.
type part struct {
	c *Cache
	r kv.Range
}

// cover returns adjacent parts of the caches that together cover r, in key order;
// nil when there are none.
func cover(r kv.Range, stateless bool, from []*Cache) []part {
	var out []part
	for {
		i := slices.IndexFunc(from, func(c *Cache) bool {
			return c.view.Load().ready && (stateless || !c.cfg.Stateless) && c.cfg.Range.Contains(r.Start)
		})
		if i < 0 {
			return nil
		}
		p, _ := from[i].cfg.Range.Intersect(r)
		out = append(out, part{c: from[i], r: p})
		if p.End == r.End {
			return out
		}
		r.Start = p.End
	}
}

// inherit loads a seed. It replays the batches after the seed's base, so that the
// cache keeps the roots of all revisions since.
func (c *Cache) inherit(s *Seed) {
	known := cutBatches(s.past.Batches, s.base+1)
	c.load(s.tree, &Past{
		Progress: s.base, Floor: s.past.Floor, Batches: s.past.Batches[:known],
		DeltaFloor: s.past.DeltaFloor, Tombstones: s.past.Tombstones,
	})
	tell := c.cfg.Applied
	c.cfg.Applied = nil // these batches are not new
	for _, b := range s.past.Batches[known:] {
		c.apply(b)
	}
	c.cfg.Applied = tell
	c.advance(s.past.Progress)
	c.counters.batches.Store(0) // the cache that received them has counted them
	c.counters.events.Store(0)
	if !s.freshAt.IsZero() {
		c.freshness.observe(s.freshAt.Sub(c.start), s.past.Progress)
	}
}
