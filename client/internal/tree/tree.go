// Package tree has immutable sorted maps of keys: a changed map shares most nodes with
// the one before, so that comparing the two costs only the differences.
//
// Read [Tree] first. Trees are values, and may be read from several goroutines.
package tree

import (
	"bytes"
	"hash/maphash"

	"github.com/shardwatch/shardwatch/client/internal/keyrange"
)

// KeyValue has the fields of client.KeyValue: pointers to them can be converted.
type KeyValue struct {
	Key, Value                           []byte
	CreateRevision, ModRevision, Version int64
	Lease                                int64
}

// Tree is an immutable sorted map from keys to key/values: a change returns another
// tree that shares most nodes. It is a treap whose priorities are a hash of the key, so
// that its shape depends only on its keys, not on the order of the changes: related
// trees share most subtrees, and comparing them costs only the differences.
//
// The nil tree is empty.
type Tree struct {
	left, right *Tree
	kv          *KeyValue
	prio        uint64
	size        int
}

// Hasher computes the priorities. Its seed is private to a mirror: no client can choose
// keys that make the tree deep.
type Hasher struct{ seed maphash.Seed }

// NewHasher returns a hasher with its own seed.
func NewHasher() Hasher { return Hasher{maphash.MakeSeed()} }

func (h Hasher) prio(key []byte) uint64 { return maphash.Bytes(h.seed, key) }

// Len returns the number of keys.
func (t *Tree) Len() int {
	if t == nil {
		return 0
	}
	return t.size
}

func join(kv *KeyValue, prio uint64, left, right *Tree) *Tree {
	return &Tree{left: left, right: right, kv: kv, prio: prio, size: left.Len() + right.Len() + 1}
}

// above reports whether a node with prio and key is nearer to the root than t's.
func (t *Tree) above(prio uint64, key []byte) bool {
	if prio != t.prio {
		return prio > t.prio
	}
	return bytes.Compare(key, t.kv.Key) > 0
}

// Get returns a key; nil: it does not exist.
func (t *Tree) Get(key string) *KeyValue {
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

// split returns the keys below key and those above it, without key itself.
func (t *Tree) split(key []byte) (below, above *Tree) {
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

// Put returns t with kv.
func (t *Tree) Put(h Hasher, kv *KeyValue) *Tree { return t.insert(kv, h.prio(kv.Key)) }

func (t *Tree) insert(kv *KeyValue, prio uint64) *Tree {
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

// Remove returns t without key.
func (t *Tree) Remove(key []byte) *Tree {
	if t == nil {
		return nil
	}
	switch c := bytes.Compare(key, t.kv.Key); {
	case c == 0:
		return merge(t.left, t.right)
	case c < 0:
		if l := t.left.Remove(key); l != t.left {
			return join(t.kv, t.prio, l, t.right)
		}
	default:
		if r := t.right.Remove(key); r != t.right {
			return join(t.kv, t.prio, t.left, r)
		}
	}
	return t
}

// merge joins two trees, all keys of a below those of b.
func merge(a, b *Tree) *Tree {
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

// Walk yields the keys of r in order, until yield returns false.
func (t *Tree) Walk(r keyrange.Range, yield func(*KeyValue) bool) bool {
	if t == nil {
		return true
	}
	inStart, inEnd := string(t.kv.Key) >= r.Start, r.End == "" || string(t.kv.Key) < r.End
	if inStart && !t.left.Walk(r, yield) {
		return false
	}
	if inStart && inEnd && !yield(t.kv) {
		return false
	}
	return !inEnd || t.right.Walk(r, yield)
}

// Diff yields, in key order, the changes from a to b: the key/value before (nil:
// created) and after (nil: deleted).
func Diff(a, b *Tree, yield func(before, after *KeyValue)) {
	switch {
	case a == b:
	case a == nil:
		b.Walk(keyrange.Range{}, func(kv *KeyValue) bool { yield(nil, kv); return true })
	case b == nil:
		a.Walk(keyrange.Range{}, func(kv *KeyValue) bool { yield(kv, nil); return true })
	case bytes.Equal(a.kv.Key, b.kv.Key):
		Diff(a.left, b.left, yield)
		if !same(a.kv, b.kv) {
			yield(a.kv, b.kv)
		}
		Diff(a.right, b.right, yield)
	case b.above(a.prio, a.kv.Key): // a's root is not in b, or it would be b's root
		l, r := b.split(a.kv.Key)
		Diff(a.left, l, yield)
		yield(a.kv, nil)
		Diff(a.right, r, yield)
	default:
		l, r := a.split(b.kv.Key)
		Diff(l, b.left, yield)
		yield(nil, b.kv)
		Diff(r, b.right, yield)
	}
}

func same(a, b *KeyValue) bool {
	return a == b || a.ModRevision == b.ModRevision && a.CreateRevision == b.CreateRevision &&
		a.Version == b.Version && a.Lease == b.Lease && bytes.Equal(a.Value, b.Value)
}

// Replace returns the tree of n keys in order, the i-th of which is at(i). It shares equal
// parts with t, so that comparing the two costs only the differences. It keeps only copies.
func (t *Tree) Replace(h Hasher, n int, at func(i int) *KeyValue) *Tree {
	root, i := t, 0
	put := func() {
		kv := *at(i)
		root = root.Put(h, &kv)
	}
	t.Walk(keyrange.Range{}, func(old *KeyValue) bool {
		for ; i < n && bytes.Compare(at(i).Key, old.Key) < 0; i++ {
			put()
		}
		switch {
		case i == n || !bytes.Equal(at(i).Key, old.Key):
			root = root.Remove(old.Key)
			return true
		case !same(old, at(i)):
			put()
		}
		i++
		return true
	})
	for ; i < n; i++ {
		put()
	}
	return root
}
