package cache

import (
	"bytes"
	"context"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/tidwall/btree"

	"github.com/shardwatch/shardwatch/internal/data/keytree"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// changeLog finds the changes since a revision, for much longer than the window: it
// has the live keys by the revision of their last change, and the deletes. One lock
// guards both, so that a reader sees them as of one moment.
type changeLog struct {
	maxBytes int64
	maxAge   time.Duration

	mu      sync.Mutex
	byMod   *keytree.Tree  // guarded by mu; the live keys, by mod revision
	deletes []kv.Tombstone // guarded by mu; by revision; elements are appended and cut, never changed
	floor   kv.Revision    // guarded by mu; all deletes from it on are known
	bytes   int64          // guarded by mu; of deletes
	marks   []mark         // guarded by mu; the times of the deletes
	holes   []hole         // guarded by mu; by revision
	squeeze int64          // guarded by mu; deletes evicted because of maxBytes, before maxAge
}

// hole is a leap of the cache from one revision to another: the cache knows which
// of its keys were deleted between the two, but not which keys were created and
// deleted there. So it cannot list the deletes since a revision in the hole.
type hole struct{ after, before kv.Revision }

// maxHoles bounds the number of recorded leaps.
const maxHoles = 16

// mark dates the deletes up to a revision, from the previous mark on: the first of
// them came at the time at, the others less than maxAge/marksPerAge later.
type mark struct {
	revision kv.Revision
	at       time.Time
}

// marksPerAge is the number of marks per maxAge.
const marksPerAge = 64

func newByMod() *keytree.Tree {
	return btree.NewBTreeGOptions(func(a, b *kv.KeyValue) bool {
		if a.ModRevision() != b.ModRevision() {
			return a.ModRevision() < b.ModRevision()
		}
		return bytes.Compare(a.Key(), b.Key()) < 0
	}, btree.Options{NoLocks: true, Degree: keytree.Degree})
}

// behindPivot returns a value to search byMod for the changes after since.
func behindPivot(since kv.Revision) *kv.KeyValue {
	return kv.NewKeyValue(kv.Fields{ModRevision: since + 1})
}

// reset replaces the contents by a state and the deletes from floor on, in order
// of revision.
func (l *changeLog) reset(state *keytree.Tree, deletes []kv.Tombstone, floor kv.Revision, now time.Time) {
	byMod := indexByMod(state)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.byMod, l.floor, l.deletes, l.bytes, l.marks, l.holes = byMod, floor, nil, 0, nil, nil
	l.buryLocked(now, deletes...)
}

// leap continues with another state after a hole: lost are the keys deleted in the
// hole, deletes the deletes after it.
func (l *changeLog) leap(state *keytree.Tree, over hole, lost []string, deletes []kv.Tombstone, now time.Time) {
	byMod := indexByMod(state)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.byMod, l.holes = byMod, append(l.holes, over)
	if len(l.holes) > maxHoles {
		l.floor, l.holes = l.holes[0].before+1, l.holes[1:]
		known := sort.Search(len(l.deletes), func(i int) bool { return l.deletes[i].Revision >= l.floor })
		for i := range known {
			l.bytes -= int64(l.deletes[i].Size())
		}
		l.deletes = l.deletes[known:]
	}
	for _, key := range lost {
		l.buryLocked(now, kv.Tombstone{Key: key, Revision: over.before})
	}
	l.buryLocked(now, deletes...)
}

func indexByMod(state *keytree.Tree) *keytree.Tree {
	items := make([]*kv.KeyValue, 0, state.Len())
	state.Scan(func(item *kv.KeyValue) bool {
		items = append(items, item)
		return true
	})
	byMod := newByMod()
	slices.SortFunc(items, func(a, b *kv.KeyValue) int {
		if a.ModRevision() != b.ModRevision() {
			return int(a.ModRevision() - b.ModRevision())
		}
		return bytes.Compare(a.Key(), b.Key())
	})
	for _, item := range items {
		byMod.Load(item)
	}
	return byMod
}

// noteLocked records an event of b, and the version that it has replaced.
func (l *changeLog) noteLocked(e *kv.Event, replaced *kv.KeyValue, b *kv.Batch) {
	if replaced != nil {
		l.byMod.Delete(replaced)
	}
	if e.Type == kv.Delete {
		l.buryLocked(b.Received, kv.Tombstone{Key: string(e.KV.Key()), Revision: b.Revision})
	} else {
		l.byMod.Set(e.KV)
	}
}

// buryLocked adds deletes in order of revision, none of them below an earlier one.
func (l *changeLog) buryLocked(now time.Time, deletes ...kv.Tombstone) {
	if len(deletes) == 0 {
		return
	}
	l.deletes = append(l.deletes, deletes...)
	for i := range deletes {
		l.bytes += int64(deletes[i].Size())
	}
	newest := deletes[len(deletes)-1].Revision
	if n := len(l.marks); n > 0 && now.Sub(l.marks[n-1].at) < l.maxAge/marksPerAge {
		l.marks[n-1].revision = newest
	} else {
		l.marks = append(l.marks, mark{revision: newest, at: now})
	}
	l.trimLocked(now)
}

// trim drops deletes that are too old.
func (l *changeLog) trim(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trimLocked(now)
}

func (l *changeLog) trimLocked(now time.Time) {
	drop := 0
	for len(l.marks) > 0 && now.Sub(l.marks[0].at) > l.maxAge {
		old := l.marks[0].revision
		drop = sort.Search(len(l.deletes), func(i int) bool { return l.deletes[i].Revision > old })
		l.marks = l.marks[1:]
	}
	left := l.bytes
	for i := range drop {
		left -= int64(l.deletes[i].Size())
	}
	for drop < len(l.deletes) && left > l.maxBytes {
		left -= int64(l.deletes[drop].Size())
		drop++
		l.squeeze++
	}
	// A revision is dropped whole: the deletes are complete from the floor on.
	for drop > 0 && drop < len(l.deletes) && l.deletes[drop].Revision == l.deletes[drop-1].Revision {
		left -= int64(l.deletes[drop].Size())
		drop++
	}
	if drop == 0 {
		return
	}
	l.floor, l.bytes = max(l.floor, l.deletes[drop-1].Revision+1), left
	for len(l.holes) > 0 && l.holes[0].before < l.floor {
		l.holes = l.holes[1:]
	}
	l.deletes = l.deletes[drop:]
	if cap(l.deletes) > 64 && len(l.deletes) < cap(l.deletes)/4 {
		l.deletes = append(make([]kv.Tombstone, 0, 2*len(l.deletes)), l.deletes...)
	}
}

// since returns the live keys by mod revision, and the deletes after a
// revision; both must only be read. It fails with a *kv.CompactedError.
func (l *changeLog) since(revision kv.Revision) (byMod *keytree.Tree, deletes []kv.Tombstone, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if revision+1 < l.floor {
		return nil, nil, &kv.CompactedError{Requested: revision + 1, Floor: l.floor}
	}
	for _, h := range l.holes {
		if revision > h.after && revision < h.before {
			return nil, nil, &kv.CompactedError{Requested: revision + 1, Floor: h.before + 1}
		}
	}
	from := sort.Search(len(l.deletes), func(i int) bool { return l.deletes[i].Revision > revision })
	return l.byMod.Copy(), l.deletes[from:len(l.deletes):len(l.deletes)], nil
}

// all returns the deletes after the last hole, and the revision from which on
// they are complete.
func (l *changeLog) all() (deletes []kv.Tombstone, floor kv.Revision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	floor = l.floor
	if n := len(l.holes); n > 0 {
		floor = max(floor, l.holes[n-1].before+1)
	}
	from := sort.Search(len(l.deletes), func(i int) bool { return l.deletes[i].Revision >= floor })
	return l.deletes[from:len(l.deletes):len(l.deletes)], floor
}

// status returns the number and the bytes of the known deletes, the floor, and
// the number of deletes that were evicted because of maxBytes.
func (l *changeLog) status() (n int, bytes int64, floor kv.Revision, squeezed int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.deletes), l.bytes, l.floor, l.squeeze
}

// Changes holds the changes of a range between two revisions.
type Changes struct {
	// Revision is the later revision, at which Changed and Deleted hold.
	Revision kv.Revision
	// Changed are the keys that have changed and exist, each once, in no
	// particular order.
	Changed []*kv.KeyValue
	// Deleted are keys that do not exist and may have existed before, each once.
	Deleted []string
}

// Changes returns the changes in r after since, up to exactly at; 0: up to the
// cache's progress. It waits, and fails, as At does. It also fails with a
// *kv.CompactedError when the deletes after since are no longer known; its Floor is
// then DeltaFloor. It fails with a *kv.FutureError when since is ahead.
func (c *Cache) Changes(ctx context.Context, r kv.Range, since, at kv.Revision) (*Changes, error) {
	state, err := c.At(ctx, at)
	if err != nil {
		return nil, err
	}
	if since > state.Revision {
		return nil, &kv.FutureError{Requested: since, Current: state.Revision}
	}
	// byMod and deletes are as of the same moment as state, or later: they name the
	// keys to look up, and state has their versions.
	byMod, deletes, err := c.changes.since(since)
	switch {
	case c.view.Load().retired: // it may have been released meanwhile, and have no deletes
		return nil, ErrRetired
	case err != nil:
		return nil, err
	}
	out := &Changes{Revision: state.Revision}
	gone := make(map[string]bool) // deleted since; true: by the state's revision
	for i := range deletes {
		if t := &deletes[i]; r.Contains(t.Key) {
			gone[t.Key] = gone[t.Key] || t.Revision <= state.Revision
		}
	}
	out.changed(r, since, state, byMod, gone)
	// In the order of the log, so that the result is deterministic.
	for i := range deletes {
		key := deletes[i].Key
		before, is := gone[key]
		if !is {
			continue
		}
		delete(gone, key)
		switch item := state.Get(key); {
		case item == nil && before:
			out.Deleted = append(out.Deleted, key)
		case item != nil && item.ModRevision() > since: // deleted later only
			out.Changed = append(out.Changed, item)
		}
	}
	return out, nil
}

// changed collects the changed live keys, and removes the keys that exist in
// state from gone.
func (out *Changes) changed(r kv.Range, since kv.Revision, state *keytree.Snapshot, byMod *keytree.Tree, gone map[string]bool) {
	take := func(item *kv.KeyValue) {
		if item.ModRevision() > since {
			out.Changed = append(out.Changed, item)
		}
		if len(gone) > 0 {
			delete(gone, string(item.Key()))
		}
	}
	older := sort.Search(byMod.Len(), func(i int) bool {
		item, _ := byMod.GetAt(i)
		return item.ModRevision() > since
	})
	if state.Count(r) <= byMod.Len()-older {
		// The range has fewer keys than the cache has changes.
		state.Ascend(r, func(item *kv.KeyValue) bool {
			take(item)
			return true
		})
		return
	}
	byMod.Ascend(behindPivot(since), func(item *kv.KeyValue) bool {
		if !r.ContainsBytes(item.Key()) {
			return true
		}
		if item.ModRevision() > state.Revision { // changed again meanwhile
			item = state.Get(string(item.Key()))
		}
		if item != nil {
			take(item)
		}
		return true
	})
}

// DeltaFloor returns the oldest revision from which on all deletes are known; 0:
// none are known yet. Changes reach back to the revision before it, but not to
// revisions that the cache has leapt over because its source no longer had them.
func (c *Cache) DeltaFloor() kv.Revision {
	_, _, floor, _ := c.changes.status()
	return floor
}
