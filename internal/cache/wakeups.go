package cache

import (
	"container/heap"
	"sync"
	"sync/atomic"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// wakeups holds the readers that the writer of a cache has to wake: the watchers by
// their range, the waiters by their revision, and a source that waits for any reader.
type wakeups struct {
	mu      sync.Mutex
	index   index   // guarded by mu
	waiting waiters // guarded by mu
	arrived func()  // guarded by mu; called once, at the next use; see Cache.Idle

	used atomic.Bool // read since Idle was called last

	// Owned by the writer.
	woken []*Watcher // scratch
	keys  [][]byte   // scratch
}

// matching wakes the idle watchers whose range the batch touches. It visits
// each of them once: a revision may have 10,000 events, and new and closing
// watchers wait for the lock.
func (u *wakeups) matching(added *entry, seq uint64) {
	keys := added.keys(u.keys[:0])
	u.mu.Lock()
	size := int64(added.Size())
	u.index.find(keys, func(e *watchers) {
		for _, w := range e.list {
			if w.pendsLocked(w.wakeFor(seq), size) {
				u.woken = append(u.woken, w)
			}
		}
	})
	u.mu.Unlock()
	u.callWoken()
	clear(keys) // they pin the events
	if u.keys = keys; cap(keys) > maxKeys {
		u.keys = nil
	}
}

// Capacities up to which the writer's scratch slices are reused.
const (
	maxKeys  = 1 << 10
	maxWoken = 1 << 16
)

// all wakes every idle watcher at position seq, and the watchers with deferred wakeups, so
// that their readers call Next.
func (u *wakeups) all(seq uint64) {
	u.mu.Lock()
	u.index.all(func(e *watchers) {
		for _, w := range e.list {
			if w.wakeFor(seq) || w.deferral > 0 {
				u.woken = append(u.woken, w)
			}
		}
	})
	u.mu.Unlock()
	u.callWoken()
}

// callWoken calls the wakers outside the lock.
func (u *wakeups) callWoken() {
	for i, w := range u.woken {
		w.waker.Wake()
		u.woken[i] = nil
	}
	u.woken = u.woken[:0]
	if cap(u.woken) > maxWoken {
		u.woken = nil
	}
}

// forget removes the waiter if it still waits.
func (u *wakeups) forget(w *waiter) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.forgetLocked(w)
}

func (u *wakeups) forgetLocked(w *waiter) {
	if w.place < 0 {
		return
	}
	heap.Remove(&u.waiting, w.place)
	if w.owner == nil {
		return
	}
	for at := &w.owner.waits; *at != nil; at = &(*at).next {
		if *at == w {
			*at = w.next
			return
		}
	}
}

// use records a read.
func (u *wakeups) use() {
	if u.used.Load() || u.used.Swap(true) {
		return
	}
	u.mu.Lock()
	arrived := u.arriveLocked()
	u.mu.Unlock()
	arrived()
}

// arriveLocked returns the function to call outside the lock, now that the cache is used.
func (u *wakeups) arriveLocked() func() {
	arrived := u.arrived
	if arrived == nil {
		return func() {}
	}
	u.arrived = nil
	return arrived
}

// reached wakes the waiters up to progress; all, if the cache is retired.
func (u *wakeups) reached(progress kv.Revision, retired bool) {
	for {
		u.mu.Lock()
		if len(u.waiting) == 0 || (u.waiting[0].revision > progress && !retired) {
			u.mu.Unlock()
			return
		}
		w := u.waiting[0]
		u.forgetLocked(w)
		u.mu.Unlock()
		w.waker.Wake()
	}
}

// nearest returns the lowest revision that a waiter has requested from the source, or, with
// idle, that any waiter waits for; 0: none.
func (u *wakeups) nearest(idle bool) kv.Revision {
	u.mu.Lock()
	defer u.mu.Unlock()
	var revision kv.Revision
	for _, w := range u.waiting {
		if (idle || !w.idle) && (revision == 0 || w.revision < revision) {
			revision = w.revision
		}
	}
	return revision
}
