package cache

import (
	"container/heap"
	"context"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wait"
)

// waiters are the callers that wait for progress, the nearest revision first.
type waiters []*waiter

type waiter struct {
	revision kv.Revision
	waker    Waker
	place    int      // in the heap; -1: not in it
	owner    *Watcher // the waiter is removed with its owner; may be nil
	next     *waiter  // of the same owner
	idle     bool     // waits without a request to the source
}

func (h waiters) Len() int           { return len(h) }
func (h waiters) Less(i, j int) bool { return h[i].revision < h[j].revision }
func (h waiters) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].place, h[j].place = i, j }

// Push implements heap.Interface.
func (h *waiters) Push(x any) {
	w := x.(*waiter) //nolint:forcetypeassert // ours alone
	w.place = len(*h)
	*h = append(*h, w)
}

// Pop implements heap.Interface.
func (h *waiters) Pop() any {
	old := *h
	w := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	w.place = -1
	return w
}

// wait adds w to the waiters, or wakes it at once. It asks the source
// for progress unless w is idle.
//
// An owner has at most one waiter per revision, and none once it is closed: so
// the waiters are bounded even if their revision is never reached.
func (c *Cache) wait(w *waiter) *waiter {
	revision, waker, owner := w.revision, w.waker, w.owner
	if !w.idle {
		defer c.Demand(revision)
	}
	c.wakeups.mu.Lock()
	// Under the lock that the writer takes after it has settled: the writer
	// either finds the waiter or has settled before this load.
	if v := c.settled.Load(); v.retired || v.ready && v.progress >= revision {
		c.wakeups.mu.Unlock()
		waker.Wake()
		return w
	}
	if owner != nil {
		had := owner.waitsLocked(revision)
		if had != nil {
			had.idle = had.idle && w.idle
		}
		if had != nil || owner.entry == nil {
			c.wakeups.mu.Unlock()
			return w
		}
		w.next, owner.waits = owner.waits, w
	}
	heap.Push(&c.wakeups.waiting, w)
	c.wakeups.mu.Unlock()
	return w
}

// WakeAt calls waker once the cache has all events up to revision and has woken
// their watchers, or when it is retired; it asks the source to reach the revision
// soon. It may call waker before it returns. forget cancels the call.
func (c *Cache) WakeAt(revision kv.Revision, waker Waker) (forget func()) {
	w := c.wait(&waiter{revision: revision, waker: waker, place: -1})
	return func() { c.wakeups.forget(w) }
}

// NotifyAt is WakeAt without a request to the source.
func (c *Cache) NotifyAt(revision kv.Revision, waker Waker) (forget func()) {
	w := c.wait(&waiter{revision: revision, waker: waker, place: -1, idle: true})
	return func() { c.wakeups.forget(w) }
}

// Reached reports whether the cache has reached the revision at which WakeAt's waker
// is called, and whether it counts as reached because the cache is retired.
func (c *Cache) Reached(revision kv.Revision) (reached, retired bool) {
	v := c.settled.Load()
	return v.retired || v.ready && v.progress >= revision, v.retired
}

// demandEvery is the minimum time between two reminders to the source.
const demandEvery = 100 * time.Millisecond

// demandAgain repeats the request for the lowest awaited revision: a new source
// gets a request for the lowest one only.
func (c *Cache) demandAgain() {
	if revision := c.wakeups.nearest(false); revision > 0 {
		c.Demand(revision)
	}
}

// Demand asks the source to reach revision soon. It does not block.
func (c *Cache) Demand(revision kv.Revision) {
	if c.view.Load().progress < revision {
		c.want.Load().Ask(revision)
	}
}

// WaitProgress waits until the cache has all events up to revision, also while
// the cache is still being loaded. It fails with the context's error and with
// ErrRetired.
func (c *Cache) WaitProgress(ctx context.Context, revision kv.Revision) error {
	for {
		v := c.view.Load()
		switch {
		case v.retired:
			return ErrRetired
		case v.ready && v.progress >= revision:
			return nil
		}
		wake := wait.NewBell()
		w := c.wait(&waiter{revision: revision, waker: wake, place: -1})
		if !wait.For(ctx, wake) {
			c.wakeups.forget(w)
			return context.Cause(ctx)
		}
	}
}
