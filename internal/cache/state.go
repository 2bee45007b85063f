package cache

import (
	"bytes"
	"sync"
	"time"

	"github.com/tidwall/btree"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// tree is the live keys of a range. Copies share nodes and cost O(1); a copy
// that is only read may be used by any number of goroutines while the original
// is changed by one.
type tree = btree.BTreeG[*kv.KeyValue]

// treeDegree is half of what a node holds. Half the library's own: each revision
// copies the nodes on its way, and what it copies costs more than a level.
const treeDegree = 16

func newTree() *tree {
	return btree.NewBTreeGOptions(func(a, b *kv.KeyValue) bool {
		return bytes.Compare(a.Key(), b.Key()) < 0
	}, btree.Options{NoLocks: true, Degree: treeDegree})
}

// pivot returns a value to search a tree with.
func pivot(key string) *kv.KeyValue { return kv.NewKeyValue(kv.Fields{Key: []byte(key)}) }

// Snapshot is the state of a range at one revision. It never changes.
type Snapshot struct {
	// Revision is the revision of the state: it holds everything up to it.
	Revision kv.Revision
	root     *tree
}

// Len returns the number of keys.
func (s *Snapshot) Len() int { return s.root.Len() }

// Get returns the key, or nil.
func (s *Snapshot) Get(key string) *kv.KeyValue {
	v, _ := s.root.Get(pivot(key))
	return v
}

// Ascend calls fn for each key of r in order until fn returns false.
func (s *Snapshot) Ascend(r kv.Range, fn func(*kv.KeyValue) bool) {
	s.root.Ascend(pivot(r.Start), func(item *kv.KeyValue) bool {
		if r.End != "" && string(item.Key()) >= r.End {
			return false
		}
		return fn(item)
	})
}

// rootLog keeps the roots of the last revisions, so that a read at an exact
// revision is a lookup. Bounded in number, in time, and by an estimate of the
// bytes that only old roots hold.
type rootLog struct {
	maxBytes int64
	maxAge   time.Duration

	mu    sync.Mutex
	roots []keptRoot // guarded by mu; revisions strictly increase
	bytes int64      // guarded by mu
}

type keptRoot struct {
	revision kv.Revision
	root     *tree
	at       time.Time
	bytes    int64 // what the next revision replaced: held only for this root
}

// keyOverhead is what a key costs the two trees, that of the state and the one by
// mod revision; see BenchmarkMemory.
const keyOverhead = 40

// rootOverhead is what one changed key costs a kept root beside the replaced
// value: the copied nodes of its path. BenchmarkMemory has 1.8 KiB at 100,000
// keys and 2.1 KiB at a million.
const rootOverhead = 2048

// push adds the root that held until now, from revision on, and what the new
// revision replaced in it.
func (l *rootLog) push(revision kv.Revision, root *tree, replaced int64, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.roots = append(l.roots, keptRoot{revision: revision, root: root, at: now, bytes: replaced})
	l.bytes += replaced
	l.trimLocked(now)
}

func (l *rootLog) trimLocked(now time.Time) {
	drop := 0
	for drop < len(l.roots) && (l.bytes > l.maxBytes || now.Sub(l.roots[drop].at) > l.maxAge) {
		l.bytes -= l.roots[drop].bytes
		l.roots[drop] = keptRoot{}
		drop++
	}
	if drop == 0 {
		return
	}
	l.roots = l.roots[drop:]
	if cap(l.roots) > 64 && len(l.roots) < cap(l.roots)/4 {
		l.roots = append(make([]keptRoot, 0, 2*len(l.roots)), l.roots...)
	}
}

// trim drops what is too old.
func (l *rootLog) trim(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trimLocked(now)
}

// at returns the root that held at revision, or nil and the oldest revision
// that is kept (0: none).
func (l *rootLog) at(revision kv.Revision) (*tree, kv.Revision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lo, hi := 0, len(l.roots)
	for lo < hi {
		mid := (lo + hi) / 2
		if l.roots[mid].revision <= revision {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 {
		if len(l.roots) == 0 {
			return nil, 0
		}
		return nil, l.roots[0].revision
	}
	return l.roots[lo-1].root, 0
}

// status returns how many roots are kept, and the bytes that they alone hold.
func (l *rootLog) status() (n int, bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.roots), l.bytes
}

// clear forgets everything.
func (l *rootLog) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.roots, l.bytes = nil, 0
}
