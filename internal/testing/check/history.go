package check

import (
	"fmt"
	"slices"
	"sort"
	"sync"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// History is the reference: the initial state and every later batch, from a watch at etcd itself.
// It is safe for concurrent use.
//
// Previous values are computed here from the earlier changes, and never taken
// from a source: so one wrong value cannot hide another.
type History struct {
	mu sync.RWMutex
	// Invariant: revisions strictly increase, all above base.
	batches []Batch // guarded by mu
	base    kv.Revision
	head    kv.Revision // guarded by mu
	// Every version of every key, the oldest first; a delete is one with
	// Version 0.
	keys map[string][]Item // guarded by mu
	// The revisions that touch a range, for every range of more than one key
	// that a checker has used.
	touch map[kv.Range][]kv.Revision // guarded by mu
	// Every key that is in keys.
	names  []string // guarded by mu
	sorted bool     // guarded by mu; names are in order
}

// NewHistory returns a history that begins with the given state at base and has
// no earlier events. The history of a new etcd begins with an empty state at
// revision 1.
func NewHistory(base kv.Revision, state []Item) *History {
	h := &History{base: base, head: base, keys: map[string][]Item{}, touch: map[kv.Range][]kv.Revision{}}
	for _, i := range state {
		h.keys[i.Key] = []Item{i}
		h.names = append(h.names, i.Key)
	}
	return h
}

// Append adds all events of the next revision, in etcd's order. It
// fails when the revision is not above the head, when the batch is
// empty, or when an event carries another revision.
func (h *History) Append(b Batch) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b.Revision <= h.head {
		return fmt.Errorf("append revision %d: the history is at %d already", b.Revision, h.head)
	}
	if len(b.Events) == 0 {
		return fmt.Errorf("append revision %d: it has no events", b.Revision)
	}
	events := make([]Event, len(b.Events))
	for i, e := range b.Events {
		if e.KV.Mod != b.Revision {
			return fmt.Errorf("append revision %d: the event of %q carries revision %d", b.Revision, e.KV.Key, e.KV.Mod)
		}
		events[i] = e
	}
	for i := range events {
		e := &events[i]
		versions, known := h.keys[e.KV.Key]
		if known {
			e.KV.Key = versions[0].Key // one string for all versions
		} else {
			h.names, h.sorted = append(h.names, e.KV.Key), false
		}
		e.Prev = nil
		if n := len(versions); n > 0 && versions[n-1].Version > 0 {
			prev := versions[n-1]
			e.Prev = &prev
		}
		h.keys[e.KV.Key] = append(versions, e.KV)
	}
	for r, revs := range h.touch {
		if slices.ContainsFunc(events, func(e Event) bool { return r.Contains(e.KV.Key) }) {
			h.touch[r] = append(revs, b.Revision)
		}
	}
	h.batches = append(h.batches, Batch{Revision: b.Revision, Events: events})
	h.head = b.Revision
	return nil
}

// Head returns the newest revision of the history.
func (h *History) Head() kv.Revision {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.head
}

// Base returns the revision the history begins at.
func (h *History) Base() kv.Revision { return h.base }

// Keys returns every key of r that exists or existed, in order.
func (h *History) Keys(r kv.Range) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.namesLocked(r))
}

// State returns the items in r at rev, in key order. rev must not be below the base.
func (h *History) State(r kv.Range, rev kv.Revision) []Item {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []Item
	for _, name := range h.namesLocked(r) {
		if i, ok := h.atLocked(name, rev); ok {
			out = append(out, i)
		}
	}
	return out
}

// atLocked returns the item of the key at rev, and false when it did not exist.
func (h *History) atLocked(key string, rev kv.Revision) (Item, bool) {
	versions := h.keys[key]
	n := sort.Search(len(versions), func(i int) bool { return versions[i].Mod > rev })
	// A key deleted and put again in one transaction has two versions of one
	// revision; the last one counts, and Search returns the index after it.
	if n == 0 || versions[n-1].Version == 0 {
		return Item{}, false
	}
	return versions[n-1], true
}

// Events returns the events of rev in r, in etcd's order.
func (h *History) Events(r kv.Range, rev kv.Revision) []Event {
	h.mu.RLock()
	defer h.mu.RUnlock()
	n := sort.Search(len(h.batches), func(i int) bool { return h.batches[i].Revision >= rev })
	if n == len(h.batches) || h.batches[n].Revision != rev {
		return nil
	}
	all := h.batches[n].Events
	first, inside := -1, 0
	for i := range all {
		if r.Contains(all[i].KV.Key) {
			if first < 0 {
				first = i
			}
			inside++
		}
	}
	if inside == 0 {
		return nil
	}
	if inside == len(all) || inside == 1 {
		return all[first : first+inside : first+inside]
	}
	out := make([]Event, 0, inside)
	for _, e := range all[first:] {
		if r.Contains(e.KV.Key) {
			out = append(out, e)
		}
	}
	return out
}

// Touching returns the revisions in (after, upTo] that change something in r.
// The caller must not change the result.
func (h *History) Touching(r kv.Range, after, upTo kv.Revision) []kv.Revision {
	if after >= upTo {
		return nil
	}
	if r.IsSingle() {
		return h.changes(r.Start, after, upTo)
	}
	h.mu.RLock()
	revs, ok := h.touch[r]
	h.mu.RUnlock()
	if !ok {
		revs = h.index(r)
	}
	from := sort.Search(len(revs), func(i int) bool { return revs[i] > after })
	to := from + sort.Search(len(revs)-from, func(i int) bool { return revs[from+i] > upTo })
	return revs[from:to:to]
}

// changes is Touching for one key, whose versions are an index already.
func (h *History) changes(key string, after, upTo kv.Revision) []kv.Revision {
	h.mu.RLock()
	defer h.mu.RUnlock()
	versions := h.keys[key]
	after = max(after, h.base) // the initial state has no changes
	var revs []kv.Revision
	for i := sort.Search(len(versions), func(i int) bool { return versions[i].Mod > after }); i < len(versions) && versions[i].Mod <= upTo; i++ {
		revs = append(revs, versions[i].Mod)
	}
	return revs
}

// index begins to record the revisions that touch r.
func (h *History) index(r kv.Range) []kv.Revision {
	h.mu.Lock()
	defer h.mu.Unlock()
	if revs, ok := h.touch[r]; ok {
		return revs
	}
	revs := []kv.Revision{}
	for _, b := range h.batches {
		if slices.ContainsFunc(b.Events, func(e Event) bool { return r.Contains(e.KV.Key) }) {
			revs = append(revs, b.Revision)
		}
	}
	h.touch[r] = revs
	return revs
}

// namesLocked returns the known keys of r, in order. It needs the lock for
// writing, because it sorts new keys in, instead of every Append.
func (h *History) namesLocked(r kv.Range) []string {
	if !h.sorted {
		slices.Sort(h.names)
		h.sorted = true
	}
	from := sort.SearchStrings(h.names, r.Start)
	if r.End == "" {
		return h.names[from:]
	}
	return h.names[from:sort.SearchStrings(h.names, r.End)]
}
