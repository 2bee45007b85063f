package client

import (
	"bytes"
	"hash/maphash"
)

// tree is a sorted map from keys to key/values, immutable: changing it returns
// another one that shares all it can. It is a treap whose priorities are a hash
// of the key, so that its shape follows from its keys alone, whatever the
// order of the changes: two trees that came from each other share most
// subtrees, and comparing them costs what differs.
//
// The nil tree is empty.
type tree struct {
	left, right *tree
	kv          *KeyValue
	prio        uint64
	size        int
}

// hasher gives the priorities. Its seed is private to the mirror: no client can choose
// keys that make the tree deep.
type hasher struct{ seed maphash.Seed }

func (h hasher) prio(key []byte) uint64 { return maphash.Bytes(h.seed, key) }

func (t *tree) len() int {
	if t == nil {
		return 0
	}
	return t.size
}

func join(kv *KeyValue, prio uint64, left, right *tree) *tree {
	return &tree{left: left, right: right, kv: kv, prio: prio, size: left.len() + right.len() + 1}
}

// above reports whether a node with prio and key is nearer to the root than t's.
func (t *tree) above(prio uint64, key []byte) bool {
	if prio != t.prio {
		return prio > t.prio
	}
	return bytes.Compare(key, t.kv.Key) > 0
}

func (t *tree) get(key string) *KeyValue {
	for t != nil {
		switch { // string(b) in a comparison does not copy
		case key == string(t.kv.Key):
			return t.kv
		case key < string(t.kv.Key):
			t = t.left
		default:
			t = t.right
		}
	}
	return nil
}

// split returns the keys below key and those above it. key itself is in
// neither.
func (t *tree) split(key []byte) (below, above *tree) {
	if t == nil {
		return nil, nil
	}
	switch c := bytes.Compare(key, t.kv.Key); {
	case c == 0:
		return t.left, t.right
	case c < 0:
		l, r := t.left.split(key)
		return l, join(t.kv, t.prio, r, t.right)
	default:
		l, r := t.right.split(key)
		return join(t.kv, t.prio, t.left, l), r
	}
}

// put returns t with kv.
func (t *tree) put(h hasher, kv *KeyValue) *tree { return t.insert(kv, h.prio(kv.Key)) }

func (t *tree) insert(kv *KeyValue, prio uint64) *tree {
	if t == nil {
		return join(kv, prio, nil, nil)
	}
	c := bytes.Compare(kv.Key, t.kv.Key)
	switch {
	case c == 0:
		return join(kv, prio, t.left, t.right)
	case t.above(prio, kv.Key):
		l, r := t.split(kv.Key)
		return join(kv, prio, l, r)
	case c < 0:
		return join(t.kv, t.prio, t.left.insert(kv, prio), t.right)
	default:
		return join(t.kv, t.prio, t.left, t.right.insert(kv, prio))
	}
}

// remove returns t without key.
func (t *tree) remove(key []byte) *tree {
	if t == nil {
		return nil
	}
	switch c := bytes.Compare(key, t.kv.Key); {
	case c == 0:
		return merge(t.left, t.right)
	case c < 0:
		if l := t.left.remove(key); l != t.left {
			return join(t.kv, t.prio, l, t.right)
		}
	default:
		if r := t.right.remove(key); r != t.right {
			return join(t.kv, t.prio, t.left, r)
		}
	}
	return t
}

// merge joins two trees, all keys of a below those of b.
func merge(a, b *tree) *tree {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case b.above(a.prio, a.kv.Key):
		return join(a.kv, a.prio, a.left, merge(a.right, b))
	default:
		return join(b.kv, b.prio, merge(a, b.left), b.right)
	}
}

// walk yields the keys of r in order, until yield returns false.
func (t *tree) walk(r Range, yield func(*KeyValue) bool) bool {
	if t == nil {
		return true
	}
	inStart, inEnd := string(t.kv.Key) >= r.Start, r.End == "" || string(t.kv.Key) < r.End
	if inStart && !t.left.walk(r, yield) {
		return false
	}
	if inStart && inEnd && !yield(t.kv) {
		return false
	}
	return !inEnd || t.right.walk(r, yield)
}

// diff yields, in key order, what makes b out of a: the key/value before
// (nil: created) and after (nil: deleted).
func diff(a, b *tree, yield func(before, after *KeyValue)) {
	switch {
	case a == b:
	case a == nil:
		b.walk(Range{}, func(kv *KeyValue) bool { yield(nil, kv); return true })
	case b == nil:
		a.walk(Range{}, func(kv *KeyValue) bool { yield(kv, nil); return true })
	case bytes.Equal(a.kv.Key, b.kv.Key):
		diff(a.left, b.left, yield)
		if !same(a.kv, b.kv) {
			yield(a.kv, b.kv)
		}
		diff(a.right, b.right, yield)
	case b.above(a.prio, a.kv.Key): // were a's root in b, it would be b's root
		l, r := b.split(a.kv.Key)
		diff(a.left, l, yield)
		yield(a.kv, nil)
		diff(a.right, r, yield)
	default:
		l, r := a.split(b.kv.Key)
		diff(l, b.left, yield)
		yield(nil, b.kv)
		diff(r, b.right, yield)
	}
}

func same(a, b *KeyValue) bool {
	return a == b || a.ModRevision == b.ModRevision && a.CreateRevision == b.CreateRevision &&
		a.Version == b.Version && a.Lease == b.Lease && bytes.Equal(a.Value, b.Value)
}
