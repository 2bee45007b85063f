package cache

import (
	"container/heap"
	"context"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// waiters are those who wait for progress, the nearest revision first.
type waiters []*waiter

type waiter struct {
	revision kv.Revision
	waker    Waker
	place    int // in the heap; -1: not in it
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

// wakeAt registers waker; see Watcher.WakeAt.
func (c *Cache) wakeAt(revision kv.Revision, waker Waker) *waiter {
	w := &waiter{revision: revision, waker: waker, place: -1}
	c.mu.Lock()
	// Under the lock that the writer takes after it has settled: it either
	// finds the waiter or had settled before this.
	if v := c.settled.Load(); v.progress >= revision || v.retired {
		c.mu.Unlock()
		waker.Wake()
		return w
	}
	heap.Push(&c.waiting, w)
	c.mu.Unlock()
	c.demand(revision)
	return w
}

// forget takes the waiter out, when it is still in.
func (c *Cache) forget(w *waiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.place >= 0 {
		heap.Remove(&c.waiting, w.place)
	}
}

// demand tells the source that progress of revision is wanted. It does not
// block; the source sees the highest wish.
func (c *Cache) demand(revision kv.Revision) {
	for {
		select {
		case c.want <- revision:
			return
		default:
		}
		select {
		case other := <-c.want:
			revision = max(revision, other)
		default:
		}
	}
}

// chanWaker wakes one who waits on a channel of capacity 1.
type chanWaker chan struct{}

// Wake implements Waker.
func (w chanWaker) Wake() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// WaitProgress waits until the cache has everything up to revision. It fails
// with the context's error, with ErrRetired, and with ErrNotReady.
func (c *Cache) WaitProgress(ctx context.Context, revision kv.Revision) error {
	for {
		v := c.view.Load()
		switch {
		case v.retired:
			return ErrRetired
		case v.ready && v.progress >= revision:
			return nil
		}
		wake := make(chanWaker, 1)
		w := c.wakeAt(revision, wake)
		select {
		case <-wake:
		case <-ctx.Done():
			c.forget(w)
			return context.Cause(ctx)
		}
	}
}
