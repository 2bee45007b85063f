// Package keytree represents the keys of a shard as a value: a tree whose copies share nodes,
// its state at one revision, the roots of the last revisions, and checksums of a state.
//
// Read [Snapshot] first. It never changes and may be read by any number of goroutines;
// one goroutine changes a [Tree].
package keytree

import (
	"bytes"
	"sync"
	"time"

	"github.com/tidwall/btree"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// Tree is the live keys of a range. Copies share nodes and cost O(1); any number of
// goroutines may read a copy while one changes the original.
type Tree = btree.BTreeG[*kv.KeyValue]

// Degree is half of a node's capacity. It is half the library's default: each revision
// copies the nodes of its path, and the copies cost more than a level.
const Degree = 16

// New returns an empty tree.
func New() *Tree {
	return btree.NewBTreeGOptions(func(a, b *kv.KeyValue) bool {
		return bytes.Compare(a.Key(), b.Key()) < 0
	}, btree.Options{NoLocks: true, Degree: Degree})
}

// Pivot returns a key/value for searches in a tree.
func Pivot(key string) *kv.KeyValue { return kv.NewKeyValue(kv.Fields{Key: []byte(key)}) }

// Snapshot is the state of a range at one revision. It never changes.
type Snapshot struct {
	// Revision is the revision of the state, which has everything up to it.
	Revision kv.Revision
	Root     *Tree
}

// Len returns the number of keys.
func (s *Snapshot) Len() int { return s.Root.Len() }

// Get returns the key, or nil.
func (s *Snapshot) Get(key string) *kv.KeyValue {
	v, _ := s.Root.Get(Pivot(key))
	return v
}

// Ascend calls fn for each key of r in order until fn returns false.
func (s *Snapshot) Ascend(r kv.Range, fn func(*kv.KeyValue) bool) {
	s.Root.Ascend(Pivot(r.Start), func(item *kv.KeyValue) bool {
		if r.End != "" && string(item.Key()) >= r.End {
			return false
		}
		return fn(item)
	})
}

// Versions keeps the roots of the last revisions, so that a read at an exact revision
// is a lookup. They are bounded in time, and by an estimate of the bytes that only old
// roots hold.
type Versions struct {
	MaxBytes int64
	MaxAge   time.Duration

	mu    sync.Mutex
	Roots []keptRoot // guarded by mu; revisions strictly increase
	Bytes int64      // guarded by mu
}

type keptRoot struct {
	revision kv.Revision
	root     *Tree
	at       time.Time
	bytes    int64 // values that the next revision replaced: kept only for this root
}

// KeyOverhead is the memory of a key in the two trees, of the state and by mod
// revision; see BenchmarkMemory.
const KeyOverhead = 40

// RootOverhead is the memory of one changed key in a kept root, without the replaced
// value: the copied nodes of its path. BenchmarkMemory measures 1.8 KiB at 100,000 keys
// and 2.1 KiB at a million.
const RootOverhead = 2048

// Push adds the root that was current from revision on until now, and the bytes that the
// new revision replaced in it.
func (l *Versions) Push(revision kv.Revision, root *Tree, replaced int64, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Roots = append(l.Roots, keptRoot{revision: revision, root: root, at: now, bytes: replaced})
	l.Bytes += replaced
	l.trimLocked(now)
}

func (l *Versions) trimLocked(now time.Time) {
	drop := 0
	for drop < len(l.Roots) && (l.Bytes > l.MaxBytes || now.Sub(l.Roots[drop].at) > l.MaxAge) {
		l.Bytes -= l.Roots[drop].bytes
		l.Roots[drop] = keptRoot{}
		drop++
	}
	if drop == 0 {
		return
	}
	l.Roots = l.Roots[drop:]
	if cap(l.Roots) > 64 && len(l.Roots) < cap(l.Roots)/4 {
		l.Roots = append(make([]keptRoot, 0, 2*len(l.Roots)), l.Roots...)
	}
}

// Trim drops the roots that are too old.
func (l *Versions) Trim(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trimLocked(now)
}

// At returns the root at revision, or nil and the oldest kept revision (0: none).
func (l *Versions) At(revision kv.Revision) (*Tree, kv.Revision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lo, hi := 0, len(l.Roots)
	for lo < hi {
		mid := (lo + hi) / 2
		if l.Roots[mid].revision <= revision {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 {
		if len(l.Roots) == 0 {
			return nil, 0
		}
		return nil, l.Roots[0].revision
	}
	return l.Roots[lo-1].root, 0
}

// Status returns the number of kept roots, and the bytes that only they hold.
func (l *Versions) Status() (n int, bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.Roots), l.Bytes
}

// Clear drops all roots.
func (l *Versions) Clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Roots, l.Bytes = nil, 0
}
