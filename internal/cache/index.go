package cache

import (
	"bytes"
	"math/rand/v2"
	"sort"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// index finds the watchers whose range holds a key: single keys in a map,
// ranges in a tree over the distinct ranges. Watchers of the same range share
// an entry. Not safe for concurrent use.
type index struct {
	single map[string]*watchers
	ranges *node
	byKey  map[kv.Range]*watchers // the entries of the tree
	// readers is the number of watchers, count the number of watches that they serve.
	readers, count int
}

// watchers are the watchers of one range. Each records its place in the list, so
// that it is removed in O(1).
type watchers struct {
	r    kv.Range
	list []*Watcher
}

func (x *index) add(w *Watcher) {
	var e *watchers
	if w.single {
		if x.single == nil {
			x.single = make(map[string]*watchers)
		}
		if e = x.single[w.r.Start]; e == nil {
			e = &watchers{r: w.r}
			x.single[w.r.Start] = e
		}
	} else {
		if x.byKey == nil {
			x.byKey = make(map[kv.Range]*watchers)
		}
		if e = x.byKey[w.r]; e == nil {
			e = &watchers{r: w.r}
			x.byKey[w.r] = e
			x.ranges = x.ranges.insert(&node{entry: e, maxEnd: w.r.End, priority: rand.Uint32()})
		}
	}
	w.r = e.r // one copy for all watchers of the range, because each event is compared with it

	w.entry, w.place = e, int32(len(e.list)) //nolint:gosec // a count of watchers in memory
	e.list = append(e.list, w)
	x.count += w.watches
	x.readers++
}

func (x *index) remove(w *Watcher) {
	e := w.entry
	if e == nil {
		return
	}
	last := len(e.list) - 1
	e.list[w.place] = e.list[last]
	e.list[w.place].place = w.place
	e.list[last] = nil
	e.list = e.list[:last]
	w.entry = nil
	x.count -= w.watches
	x.readers--
	if len(e.list) > 0 {
		return
	}
	if w.single {
		delete(x.single, e.r.Start)
		return
	}
	delete(x.byKey, e.r)
	x.ranges = x.ranges.remove(e.r)
}

// find calls fn once for the watchers of every range that holds one of keys,
// which are in order.
func (x *index) find(keys [][]byte, fn func(*watchers)) {
	for i, key := range keys {
		if i > 0 && bytes.Equal(key, keys[i-1]) {
			continue
		}
		if e := x.single[string(key)]; e != nil {
			fn(e)
		}
	}
	x.ranges.stab(keys, fn)
}

// all calls fn for every list of watchers.
func (x *index) all(fn func(*watchers)) {
	for _, e := range x.single {
		fn(e)
	}
	for _, e := range x.byKey {
		fn(e)
	}
}

// node is a node of an interval tree: a treap ordered by (start, end); each
// node has the greatest end of its subtree. See Cormen et al., Introduction to
// Algorithms, chapter 14.3, and Seidel and Aragon, "Randomized search trees"
// (1996).
type node struct {
	entry       *watchers
	maxEnd      string // "" is the end of the key space
	priority    uint32
	left, right *node
}

// endBelow reports whether end a lies before end b.
func endBelow(a, b string) bool { return a != "" && (b == "" || a < b) }

func rangeBelow(a, b kv.Range) bool {
	if a.Start != b.Start {
		return a.Start < b.Start
	}
	return endBelow(a.End, b.End)
}

func (n *node) update() {
	n.maxEnd = n.entry.r.End
	for _, c := range [...]*node{n.left, n.right} {
		if c != nil && endBelow(n.maxEnd, c.maxEnd) {
			n.maxEnd = c.maxEnd
		}
	}
}

func (n *node) rotateRight() *node {
	l := n.left
	n.left, l.right = l.right, n
	n.update()
	l.update()
	return l
}

func (n *node) rotateLeft() *node {
	r := n.right
	n.right, r.left = r.left, n
	n.update()
	r.update()
	return r
}

func (n *node) insert(m *node) *node {
	if n == nil {
		return m
	}
	if rangeBelow(m.entry.r, n.entry.r) {
		n.left = n.left.insert(m)
		if n.left.priority > n.priority {
			return n.rotateRight()
		}
	} else {
		n.right = n.right.insert(m)
		if n.right.priority > n.priority {
			return n.rotateLeft()
		}
	}
	n.update()
	return n
}

func (n *node) remove(r kv.Range) *node {
	switch {
	case n == nil:
		return nil
	case rangeBelow(r, n.entry.r):
		n.left = n.left.remove(r)
	case rangeBelow(n.entry.r, r):
		n.right = n.right.remove(r)
	case n.left == nil:
		return n.right
	case n.right == nil:
		return n.left
	case n.left.priority > n.right.priority:
		n = n.rotateRight()
		n.right = n.right.remove(r)
	default:
		n = n.rotateLeft()
		n.left = n.left.remove(r)
	}
	n.update()
	return n
}

// stab calls fn for every range below n that holds one of keys, which are in
// order. It visits a node at most once, even if its subtree matches several keys.
func (n *node) stab(keys [][]byte, fn func(*watchers)) {
	for ; n != nil && len(keys) > 0; n = n.right {
		if n.maxEnd != "" {
			keys = keys[:countBelow(keys, n.maxEnd)]
		}
		n.left.stab(keys, fn)
		keys = keys[countBelow(keys, n.entry.r.Start):] // the ranges to the right begin there or later
		if len(keys) > 0 && (n.entry.r.End == "" || string(keys[0]) < n.entry.r.End) {
			fn(n.entry)
		}
	}
}

// countBelow returns how many of keys, which are in order, lie before limit.
func countBelow(keys [][]byte, limit string) int {
	return sort.Search(len(keys), func(i int) bool { return string(keys[i]) >= limit })
}
