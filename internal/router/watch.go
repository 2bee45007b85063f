package router

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// Watch is one watch over any number of shards. One goroutine at a time may
// use it.
type Watch struct {
	r     *Router
	rng   kv.Range
	waker cache.Waker

	// delivered is the revision up to which everything was returned by Next,
	// as far as deliveries tell; Progress knows more.
	delivered kv.Revision
	// cursors are the user's while state is settled, the mover's while it is
	// homeless.
	cursors []cursor
	state   atomic.Int32
	err     error     // why it has failed; set before state
	since   time.Time // homeless since

	mu     sync.Mutex
	closed bool // guarded by mu
}

// States of a watch.
const (
	settled int32 = iota
	homeless
	failed
)

// cursor is the position in one shard.
type cursor struct {
	shard   shard.ID
	watcher *cache.Watcher
	release func() // gives a relay back; may be nil
	// The next revision of this shard, taken from the watcher and not yet
	// delivered; 0: none.
	revision kv.Revision
	events   []*kv.Event
	// asked is the revision that progress was asked for.
	asked kv.Revision
}

func (c *cursor) close() {
	c.watcher.Close()
	if c.release != nil {
		c.release()
	}
}

// progress returns the revision up to which the shard has nothing more.
func (c *cursor) progress() kv.Revision {
	if c.revision > 0 {
		return c.revision - 1
	}
	return c.watcher.Progress()
}

// Watch returns a watch of rng from revision from on, which may lie in the
// future. The waker is called when Next may have something. It may have to
// wait for a relay. It fails with a *kv.CompactedError, *kv.NotServedError or
// *kv.UnavailableError.
func (r *Router) Watch(ctx context.Context, rng kv.Range, from kv.Revision, waker cache.Waker) (*Watch, error) {
	cursors, err := r.open(ctx, rng, from, waker)
	if err != nil {
		return nil, err
	}
	return &Watch{r: r, rng: rng, waker: waker, delivered: from - 1, cursors: cursors}, nil
}

// open returns a cursor for each shard of rng.
func (r *Router) open(ctx context.Context, rng kv.Range, from kv.Revision, waker cache.Waker) (cursors []cursor, err error) {
	_, shards, err := r.parts(rng)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			for i := range cursors {
				cursors[i].close()
			}
			cursors = nil
		}
	}()
	for i := range shards {
		s := &shards[i]
		part, _ := s.Range.Intersect(rng)
		c := cursor{shard: s.ID}
		home := r.cfg.Shards.Replica(s.ID)
		if home == nil {
			if home, c.release, err = r.cfg.Shards.Relay(ctx, s.ID); err != nil {
				return cursors, err
			}
		}
		if c.watcher, err = home.Watch(part, from, waker); err != nil {
			if c.release != nil {
				c.release()
			}
			return cursors, Soon(s, err)
		}
		cursors = append(cursors, c)
	}
	return cursors, nil
}

// Range returns what is watched.
func (w *Watch) Range() kv.Range { return w.rng }

// Close ends the watch. It may be called twice.
func (w *Watch) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	w.closed = true
	if w.state.Load() == homeless {
		return // the mover finds it closed
	}
	w.drop()
}

func (w *Watch) drop() {
	for i := range w.cursors {
		w.cursors[i].close()
	}
	w.cursors = nil
}

// Next returns the next revision with events in the range, with those events
// appended to dst. It does not block: revision 0 means that there is nothing
// now and that the waker will be called. Events of one revision come in etcd's
// order within a shard, and shard after shard in key order.
//
// It fails with a *kv.CompactedError when the position is no longer in the
// window, and with a *kv.UnavailableError when no home can be found for it;
// the watch is over then.
func (w *Watch) Next(dst []*kv.Event) (kv.Revision, []*kv.Event, error) {
	switch w.state.Load() {
	case homeless:
		return 0, dst, nil
	case failed:
		return 0, dst, w.err
	}
	var revision kv.Revision
	var err error
	if len(w.cursors) == 1 {
		revision, dst, err = w.cursors[0].watcher.Next(dst)
	} else {
		revision, dst, err = w.merge(dst)
	}
	switch {
	case errors.Is(err, cache.ErrRetired):
		w.leave()
		return 0, dst, nil
	case revision > 0:
		w.delivered = revision
	}
	return revision, dst, err
}

// merge returns the lowest revision that the shards have, once all of them are
// known to have nothing below it and all of it.
func (w *Watch) merge(dst []*kv.Event) (kv.Revision, []*kv.Event, error) {
	lowest := kv.Revision(math.MaxInt64)
	for i := range w.cursors {
		c := &w.cursors[i]
		if c.revision == 0 {
			var err error
			if c.revision, c.events, err = c.watcher.Next(c.events[:0]); err != nil {
				return 0, dst, err
			}
		}
		if c.revision > 0 {
			lowest = min(lowest, c.revision)
		}
	}
	if lowest == math.MaxInt64 {
		return 0, dst, nil
	}
	held := false
	for i := range w.cursors {
		c := &w.cursors[i]
		if c.revision > 0 || c.watcher.Progress() >= lowest {
			continue
		}
		held = true
		if c.asked < lowest {
			c.asked = lowest
			c.watcher.WakeAt(lowest)
		}
	}
	if held {
		return 0, dst, nil
	}
	for i := range w.cursors {
		c := &w.cursors[i]
		if c.revision == lowest {
			dst = append(dst, c.events...)
			clear(c.events)
			c.revision = 0
		}
	}
	return lowest, dst, nil
}

// Progress returns the revision up to which everything was returned by Next,
// and the shard that is furthest behind.
func (w *Watch) Progress() (kv.Revision, shard.ID) {
	if w.state.Load() != settled || len(w.cursors) == 0 {
		return w.delivered, 0
	}
	progress, behind := kv.Revision(math.MaxInt64), shard.ID(0)
	for i := range w.cursors {
		if p := w.cursors[i].progress(); p < progress {
			progress, behind = p, w.cursors[i].shard
		}
	}
	return max(progress, w.delivered), behind
}

// WakeAt has the waker called when every shard has reached revision, or
// earlier; the sources are asked for it.
func (w *Watch) WakeAt(revision kv.Revision) {
	if w.state.Load() != settled {
		return
	}
	for i := range w.cursors {
		c := &w.cursors[i]
		if c.progress() < revision && c.asked < revision {
			c.asked = revision
			c.watcher.WakeAt(revision)
		}
	}
}

// leave gives up the cursors and has the router find new ones.
func (w *Watch) leave() {
	w.delivered, _ = w.Progress()
	w.drop()
	w.since = time.Now()
	w.state.Store(homeless)
	w.r.mu.Lock()
	w.r.homeless[w] = struct{}{}
	w.r.mu.Unlock()
	w.r.Kick()
}

// settle tries to find a home for the watch. It reports whether that is
// decided, for good or bad. Only the router's Run calls it, on homeless
// watches.
func (w *Watch) settle(ctx context.Context) bool {
	w.mu.Lock()
	closed := w.closed
	w.mu.Unlock()
	if closed {
		return true
	}
	cursors, err := w.r.open(ctx, w.rng, w.delivered+1, w.waker)
	if err != nil {
		var later *kv.UnavailableError
		if ctx.Err() != nil || (errors.As(err, &later) && time.Since(w.since) < homelessTimeout) {
			return false
		}
		w.err = err
		w.state.Store(failed)
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cursors = cursors
	w.state.Store(settled)
	if w.closed {
		w.drop()
	}
	return true
}
