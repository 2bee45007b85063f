package router

import (
	"context"
	"errors"
	"math"
	"slices"
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
	// delivered is the revision up to which everything was returned by Next,
	// as far as deliveries tell; Progress knows more.
	delivered kv.Revision
	state     atomic.Int32
	// cursors are the user's while state is settled, the mover's while it is
	// homeless. The slice and the state change under mu, too: see Position.
	cursors  []cursor
	together *together    // of several cursors; nil: there is one at most
	first    [1]cursor    // where cursors begin: nearly all watches have one, and look at it for each event
	err      error        // why it has failed; set before state
	since    time.Time    // homeless since; written under mu
	taken    atomic.Int64 // the lowest revision that cursors hold back; 0: none

	r       *Router
	rng     kv.Range
	lineage uint64
	waker   cache.Waker

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
	cache   *cache.Cache
	watcher *cache.Watcher
	release func() // gives a relay back; may be nil
	// The next revision of this shard, taken from the watcher and not yet
	// delivered; 0: none.
	revision kv.Revision
	events   []*kv.Event
}

// together is where a watch over several shards waits for all of them.
type together struct {
	frontier *frontier
	held     place // for the revision that comes next
	wished   place // for the one that WakeAt was called with
}

func (c *cursor) close() {
	c.watcher.Close()
	if c.release != nil {
		c.release()
	}
}

// ended reports whether the cache is no longer served.
func (c *cursor) ended() bool {
	_, ended := c.cache.Reached(0)
	return ended
}

// progress returns the revision up to which the shard has nothing more.
func (c *cursor) progress() kv.Revision {
	if c.revision > 0 {
		return c.revision - 1
	}
	return c.watcher.Progress()
}

// WatchRequest says what to watch.
type WatchRequest struct {
	Range kv.Range
	// From is the first revision to deliver; it may lie in the future.
	From kv.Revision
	// Lineage is the history that From belongs to; 0: whatever the cluster is
	// at.
	Lineage uint64
}

// Watch returns a watch. The waker is called when Next may have something. It
// may have to wait for a relay, unless all is [Router.Here]. It fails with a
// *kv.CompactedError, *kv.LineageError, *kv.NotServedError or
// *kv.UnavailableError.
func (r *Router) Watch(ctx context.Context, req WatchRequest, waker cache.Waker) (*Watch, error) {
	w := &Watch{r: r, rng: req.Range, waker: waker, delivered: req.From - 1}
	var err error
	if w.lineage, w.cursors, err = r.open(ctx, req, waker, w.first[:0]); err != nil {
		return nil, err
	}
	w.gather()
	return w, nil
}

// gather has a watch with several cursors wait with those over the same caches.
func (w *Watch) gather() {
	if len(w.cursors) < 2 {
		return
	}
	caches := make([]*cache.Cache, len(w.cursors))
	for i := range w.cursors {
		caches[i] = w.cursors[i].cache
	}
	w.together = &together{frontier: w.r.frontier(caches), held: place{waker: w.waker, holds: true}, wished: place{waker: w.waker}}
}

// Here reports whether every shard of rng is on this node and ready.
func (r *Router) Here(rng kv.Range) bool {
	m, shards, err := r.parts(rng)
	for i := range shards {
		part, _ := shards[i].Range.Intersect(rng)
		if !serves(r.cfg.Shards.Replica(shards[i].ID), m.Lineage, part) {
			return false
		}
	}
	return err == nil
}

// open returns a cursor for each shard of the request's range, appended to
// cursors, and the lineage they are at.
func (r *Router) open(ctx context.Context, req WatchRequest, waker cache.Waker, cursors []cursor) (lineage uint64, _ []cursor, err error) {
	m, shards, err := r.parts(req.Range)
	if err != nil {
		return 0, nil, err
	}
	if req.Lineage != 0 && req.Lineage != m.Lineage {
		return 0, nil, &kv.LineageError{Requested: req.Lineage, Current: m.Lineage}
	}
	for i := range shards {
		c, err := r.cursor(ctx, m.Lineage, &shards[i], req, waker)
		if err != nil {
			for i := range cursors {
				cursors[i].close()
			}
			return 0, nil, Soon(&shards[i], err)
		}
		cursors = append(cursors, c)
	}
	return m.Lineage, cursors, nil
}

// cursor returns a cursor for the shard's part of the request: here, or at a
// relay.
func (r *Router) cursor(ctx context.Context, lineage uint64, s *shard.Shard, req WatchRequest, waker cache.Waker) (cursor, error) {
	c := cursor{shard: s.ID}
	part, _ := s.Range.Intersect(req.Range)
	home := r.cfg.Shards.Replica(s.ID)
	var err error
	if !serves(home, lineage, part) {
		if home, c.release, err = r.cfg.Shards.Relay(ctx, s.ID); err != nil {
			return c, err
		}
	}
	if !serves(home, lineage, part) {
		err = cache.ErrRetired // of another map than the one we look at
	} else {
		c.cache = home
		c.watcher, err = home.Watch(part, req.From, waker)
	}
	if err != nil && c.release != nil {
		c.release()
	}
	return c, err
}

// Range returns what is watched.
func (w *Watch) Range() kv.Range { return w.rng }

// Lineage returns the history that the watch's revisions belong to.
func (w *Watch) Lineage() uint64 { return w.lineage }

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
	if t := w.together; t != nil {
		t.frontier.forget(&t.held)
		t.frontier.forget(&t.wished)
		w.r.leave(t.frontier)
		w.together = nil
	}
	for i := range w.cursors {
		w.cursors[i].close()
	}
	clear(w.cursors) // first would keep a cache that is no longer served
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
	if errors.Is(err, cache.ErrRetired) {
		w.leave()
		return 0, dst, nil
	}
	if revision > 0 {
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
		w.taken.Store(0)
		return 0, dst, nil
	}
	w.taken.Store(int64(lowest))
	held := false
	for i := range w.cursors {
		if c := &w.cursors[i]; c.revision == 0 && c.watcher.Progress() < lowest {
			held = true
			break
		}
	}
	if held {
		// A cache that has ended since its revision was taken wakes all who wait.
		if slices.ContainsFunc(w.cursors, func(c cursor) bool { return c.revision > 0 && c.ended() }) {
			return 0, dst, cache.ErrRetired
		}
		w.together.frontier.await(&w.together.held, lowest)
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
	progress, lowest, behind := kv.Revision(math.MaxInt64), kv.Revision(math.MaxInt64), shard.ID(0)
	for i := range w.cursors {
		c := &w.cursors[i]
		progress = min(progress, c.progress())
		if reached := c.watcher.Progress(); reached < lowest { // what is taken counts
			lowest, behind = reached, c.shard
		}
	}
	return progress, behind
}

// Age returns how old what the watch is sent may be: the age of the shard whose
// data is oldest. It is not known while one's is not, and while the watch looks
// for a new home.
func (w *Watch) Age() (age time.Duration, known bool) {
	if w.state.Load() != settled {
		return 0, false
	}
	for i := range w.cursors {
		one, known := w.cursors[i].watcher.Age()
		if !known {
			return 0, false
		}
		age = max(age, one)
	}
	return age, true
}

// Furthest returns the revision that the shard which is furthest ahead has
// reached.
func (w *Watch) Furthest() kv.Revision {
	furthest := w.delivered
	if w.state.Load() != settled {
		return furthest
	}
	for i := range w.cursors {
		furthest = max(furthest, w.cursors[i].watcher.Progress())
	}
	return furthest
}

// WakeAt has the waker called when every shard has reached revision, or
// earlier; the sources are asked for it.
func (w *Watch) WakeAt(revision kv.Revision) {
	if w.state.Load() != settled {
		return
	}
	if at, _ := w.Progress(); at >= revision {
		return
	}
	t := w.together
	if t == nil {
		w.cursors[0].watcher.WakeAt(revision)
	} else if at := t.frontier.waitsFor(&t.wished); at == 0 || at > revision {
		t.frontier.await(&t.wished, revision)
	}
}

// leave gives up the cursors and has the router find new ones.
func (w *Watch) leave() {
	w.mu.Lock()
	w.delivered, _ = w.Progress()
	w.drop()
	w.since = time.Now()
	w.taken.Store(0)
	w.state.Store(homeless)
	w.mu.Unlock()
	w.r.mu.Lock()
	w.r.homeless[w] = struct{}{}
	w.r.mu.Unlock()
	w.r.Kick()
}

// settle tries to find a home for the watch; wait says whether it may wait for
// one. It reports whether that is decided, for good or bad. Only the router's
// Run calls it, on homeless watches.
func (w *Watch) settle(ctx context.Context, wait bool) bool {
	w.mu.Lock()
	closed := w.closed
	w.mu.Unlock()
	if closed {
		return true
	}
	if !wait && !w.r.Here(w.rng) {
		return false
	}
	_, cursors, err := w.r.open(ctx, WatchRequest{Range: w.rng, From: w.delivered + 1, Lineage: w.lineage}, w.waker, nil)
	if err != nil {
		if passing(err) && time.Since(w.since) < homelessTimeout {
			return false
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.err = err
		w.state.Store(failed)
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cursors = cursors
	w.gather()
	w.state.Store(settled)
	if w.closed {
		w.drop()
	}
	return true
}

// passing reports whether an error of open may go away by itself.
func passing(err error) bool {
	var (
		compacted *kv.CompactedError
		lineage   *kv.LineageError
		notServed *kv.NotServedError
	)
	return !errors.As(err, &compacted) && !errors.As(err, &lineage) && !errors.As(err, &notServed)
}
