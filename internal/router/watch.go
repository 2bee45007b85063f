package router

import (
	"context"
	"errors"
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
	// delivered is a revision up to which Next has returned all events; Progress
	// may be further.
	delivered kv.Revision
	state     atomic.Int32
	// place is owned by the user while state is settled, by the router's Run while it is
	// homeless. The source in it and the state change under mu: see Position.
	place place
	err   error     // the reason for failed; set before state
	since time.Time // when it became homeless; written under mu

	r       *Router
	rng     kv.Range
	lineage uint64
	waker   cache.Waker

	mu     sync.Mutex
	closed bool // guarded by mu
	serves int  // guarded by mu; see Serves
}

// States of a watch. A homeless watch has lost its source, and Run searches for a new one.
const (
	settled int32 = iota
	homeless
	failed
)

// place is the source of a watch: a shard, the merged window of several shards, or, until
// the watch has caught up with that window, these shards. The zero place is no source.
type place struct {
	one      *cache.Watcher // of a shard or a merged window; nil: alone is used
	alone    *merge         // of several shards; nil: one is used
	merged   *merged        // the merged window of several shards; nil: there is none
	shard    shard.ID       // the only shard
	wished   kv.Revision    // the lowest pending revision of WakeAt
	releases []func()       // release relays
}

// drop releases the place.
func (p *place) drop(r *Router) {
	if p.one != nil {
		p.one.Close()
	}
	if p.alone != nil {
		p.alone.close()
	}
	if p.merged != nil {
		r.leave(p.merged)
	}
	callAll(p.releases)
	*p = place{}
}

// position returns the position of a watch at the place, and false for the zero place.
// Any goroutine may call it.
func (p *place) position() (cache.Position, bool) {
	switch {
	case p.alone != nil:
		return p.alone.position(), true
	case p.one != nil:
		return p.one.Position(), true
	}
	return cache.Position{}, false
}

// WatchRequest selects the keys and first revision of a watch.
type WatchRequest struct {
	Range kv.Range
	// From is the first revision to deliver; it may be in the future.
	From kv.Revision
	// Lineage is the history that From belongs to; 0: the cluster's
	// current one.
	Lineage uint64
	// Until bounds the wait for relays in addition to the context; a timer runs only during such a wait. The
	// zero Time is no bound.
	Until time.Time
}

// Watch returns a watch. The waker is called when Next may return events. Watch
// may wait for relays, unless the range is [Router.Here]. It fails with a
// *kv.CompactedError, *kv.LineageError, *kv.NotServedError or
// *kv.UnavailableError.
func (r *Router) Watch(ctx context.Context, req WatchRequest, waker cache.Waker) (*Watch, error) {
	w := &Watch{r: r, rng: req.Range, waker: waker, delivered: req.From - 1, serves: 1}
	var err error
	if w.lineage, w.place, err = r.open(ctx, req, waker); err != nil {
		return nil, err
	}
	return w, nil
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

// open returns a place that serves the request's range, and its lineage.
func (r *Router) open(ctx context.Context, req WatchRequest, waker cache.Waker) (lineage uint64, _ place, err error) {
	m, shards, err := r.parts(req.Range)
	if err != nil {
		return 0, place{}, err
	}
	if req.Lineage != 0 && req.Lineage != m.Lineage {
		return 0, place{}, &kv.LineageError{Requested: req.Lineage, Current: m.Lineage}
	}
	var p place
	var several [16]home // on the stack
	homes := several[:0]
	for i := range shards {
		h, err := r.home(ctx, m.Lineage, &shards[i], req.Range, req.Until)
		if err != nil {
			p.drop(r)
			return 0, place{}, Soon(&shards[i], err)
		}
		if h.release != nil {
			p.releases = append(p.releases, h.release)
		}
		homes = append(homes, h)
	}
	if at, err := p.enter(r, homes, req, waker); err != nil {
		p.drop(r)
		return 0, place{}, Soon(&shard.Shard{ID: at}, err)
	}
	return m.Lineage, p, nil
}

// home finds a cache with the shard's part of a range: a replica, or a relay, for which it
// waits until the given time.
func (r *Router) home(ctx context.Context, lineage uint64, s *shard.Shard, rng kv.Range, until time.Time) (home, error) {
	h := home{shard: s.ID, whole: s.Range}
	h.rng, _ = s.Range.Intersect(rng)
	h.cache = r.cfg.Shards.Replica(s.ID)
	var err error
	if !serves(h.cache, lineage, h.rng) {
		if !until.IsZero() {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, until)
			defer cancel()
		}
		if h.cache, h.release, err = r.cfg.Shards.Relay(ctx, s.ID); err != nil {
			return h, err
		}
	}
	// The cache may belong to another map than m of the caller.
	if !serves(h.cache, lineage, h.rng) {
		err = cache.ErrRetired
	} else if _, retired := h.cache.Reached(0); retired {
		err = cache.ErrRetired
	}
	if err != nil && h.release != nil {
		h.release()
	}
	return h, err
}

// enter opens the watch on the homes: in their merged window, if that reaches back to
// From. It fails as cache.Watch does, and returns the shard that failed.
func (p *place) enter(r *Router, homes []home, req WatchRequest, waker cache.Waker) (at shard.ID, err error) {
	if len(homes) == 1 {
		p.shard = homes[0].shard
		p.one, err = homes[0].cache.Watch(homes[0].rng, req.From, waker)
		return p.shard, err
	}
	if p.merged = r.merged(homes); p.merged != nil {
		if p.one, err = p.merged.window.Watch(req.Range, req.From, waker); err == nil {
			return 0, nil
		}
	}
	var failed *home
	if p.alone, failed, err = newMerge(homes, req.From, waker); err != nil {
		return failed.shard, err
	}
	return 0, nil
}

// Range returns the watched range.
func (w *Watch) Range() kv.Range { return w.rng }

// Lineage returns the history that the watch's revisions belong to.
func (w *Watch) Lineage() uint64 { return w.lineage }

// Serves sets the number of client watches that this watch serves, for the status of the
// shards; initially one. After Close it has no effect.
func (w *Watch) Serves(watches int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.serves = watches; w.state.Load() != homeless {
		w.place.serve(watches)
	}
}

// serve sets the number of watches that the place's watchers count as.
func (p *place) serve(watches int) {
	if p.one != nil {
		p.one.Serves(watches)
	}
	if p.alone != nil {
		for i := range p.alone.cursors {
			p.alone.cursors[i].watcher.Serves(watches)
		}
	}
}

// Close ends the watch. It may be called twice.
func (w *Watch) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	w.closed = true
	if w.state.Load() == homeless {
		return // settle finds it closed
	}
	w.place.drop(w.r)
}

// Next returns the next revision with events in the range, with those events
// appended to dst. It does not block: revision 0 means that no events are
// pending, or that many batches were examined (see Pending), and that the waker
// will be called. Events of one revision come in etcd's order within a shard,
// and shard after shard in key order.
//
// It fails with a *kv.CompactedError when the position is no longer in the
// window, and with a *kv.UnavailableError when no new source was found in time;
// then the watch has ended.
func (w *Watch) Next(dst []*kv.Event) (kv.Revision, []*kv.Event, error) {
	switch w.state.Load() {
	case homeless:
		return 0, dst, nil
	case failed:
		return 0, dst, w.err
	}
	revision, dst, err := w.read(dst)
	if errors.Is(err, cache.ErrRetired) {
		w.leave()
		return 0, dst, nil
	}
	if revision > 0 {
		w.delivered = revision
	}
	return revision, dst, err
}

// read returns the next revision at the place. If necessary it changes the place between the
// merged window and a separate merge.
func (w *Watch) read(dst []*kv.Event) (kv.Revision, []*kv.Event, error) {
	for {
		if one := w.place.one; one != nil {
			revision, dst, err := one.Next(dst)
			if err == nil || w.place.merged == nil || !errors.As(err, new(*kv.CompactedError)) {
				return revision, dst, err
			}
			if err := w.separate(); err != nil {
				return 0, dst, err
			}
		}
		alone := w.place.alone
		if alone == nil { // closed
			return 0, dst, nil
		}
		if revision, dst, err := alone.next(dst); revision > 0 || err != nil {
			return revision, dst, err
		}
		if !w.join() && alone.waits() {
			return 0, dst, nil
		}
	}
}

// Skipped returns the number of batches outside the range that the last call of Next has examined.
func (w *Watch) Skipped() int {
	p := &w.place
	switch {
	case w.state.Load() != settled:
	case p.one != nil:
		return p.one.Skipped()
	case p.alone != nil:
		return p.alone.skipped
	}
	return 0
}

// Pending reports, after Next has returned revision 0, whether Next has more batches to examine. The
// waker was called.
func (w *Watch) Pending() bool {
	p := &w.place
	switch {
	case w.state.Load() != settled:
	case p.one != nil:
		return p.one.Pending()
	case p.alone != nil:
		return p.alone.pending()
	}
	return false
}

// join moves a watch that has caught up to the merged window, after all revisions that it
// was given, however far single shards are. It reports whether it has moved the watch.
func (w *Watch) join() bool {
	p := &w.place
	if p.merged == nil {
		return false
	}
	one, err := p.merged.window.Watch(w.rng, p.alone.progress()+1, w.waker)
	if err != nil { // the window is being filled, or has just dropped events that the watch has not read
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	p.alone.close()
	p.one, p.alone, p.wished = one, nil, 0
	p.serve(w.serves)
	return true
}

// separate gives a watch that is below the merged window a separate merge. It fails as
// cache.Watch does.
func (w *Watch) separate() error {
	p := &w.place
	alone, _, err := newMerge(p.merged.part(w.rng), p.one.Progress()+1, w.waker)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	p.one.Close()
	p.one, p.alone, p.wished = nil, alone, 0
	p.serve(w.serves)
	return nil
}

// Progress returns the revision up to which Next has returned all events, and
// the shard that is furthest behind.
func (w *Watch) Progress() (kv.Revision, shard.ID) {
	p := &w.place
	switch {
	case w.state.Load() != settled:
	case p.one != nil && p.merged == nil:
		return p.one.Progress(), p.shard
	case p.one != nil:
		progress := p.one.Progress()
		behind, _ := p.merged.behind()
		return progress, behind
	case p.alone != nil:
		return p.alone.progress(), p.alone.behind()
	}
	return w.delivered, 0
}

// Age returns the greatest possible age of the watch's events: the age of the shard whose
// data is oldest. It is unknown while the age of a shard is unknown, and while the watch
// has no source.
func (w *Watch) Age() (age time.Duration, known bool) {
	p := &w.place
	switch {
	case w.state.Load() != settled:
		return 0, false
	case p.alone != nil:
		return p.alone.age()
	case p.merged != nil:
		return p.merged.age()
	case p.one != nil:
		return p.one.Age()
	}
	return 0, false
}

// AgeAt returns the age of the watch's events, and a revision: the events up to it have at most that age.
// Events above it may not have been read.
func (w *Watch) AgeAt() (age time.Duration, at kv.Revision, known bool) {
	if age, known = w.Age(); !known { // before the revision, so that it holds for it
		return 0, 0, false
	}
	p := &w.place
	switch {
	case p.alone != nil:
		at = p.alone.position().Newest
	case p.merged != nil: // the merged window may lag
		at = p.merged.reached()
	default:
		at = p.one.Position().Newest
	}
	return age, at, true
}

// Furthest returns the highest revision that one of the shards has reached.
func (w *Watch) Furthest() kv.Revision {
	p := &w.place
	switch {
	case w.state.Load() != settled:
	case p.alone != nil:
		return max(w.delivered, p.alone.furthest())
	case p.merged != nil:
		_, furthest := p.merged.behind()
		return max(w.delivered, furthest, p.one.Progress())
	case p.one != nil:
		return max(w.delivered, p.one.Progress())
	}
	return w.delivered
}

// WakeAt reports whether Next has returned all events up to revision; see Progress. If not, it asks the
// sources for the revision, and the waker is called when every shard has reached it, or earlier. Of
// several revisions the lowest counts. A caller that waits must use this result, not that of an earlier
// Progress: if WakeAt returns true, the waker is not called.
func (w *Watch) WakeAt(revision kv.Revision) (reached bool) {
	at, _ := w.Progress()
	p := &w.place
	if at >= revision {
		return true
	}
	if w.state.Load() != settled || p.wished > at && p.wished <= revision {
		return false
	}
	p.wished = revision
	switch {
	case p.one != nil:
		p.one.WakeAt(revision)
	case p.alone != nil && !p.alone.wakeAt(revision):
		w.waker.Wake() // Next may return the events that it held back
	}
	return false
}

// leave releases the place and makes the router search for a new one.
func (w *Watch) leave() {
	w.mu.Lock()
	w.delivered, _ = w.Progress()
	w.place.drop(w.r)
	w.since = time.Now()
	w.state.Store(homeless)
	w.mu.Unlock()
	w.r.mu.Lock()
	w.r.homeless[w] = struct{}{}
	w.r.mu.Unlock()
	w.r.Kick()
}

// settle tries to find a new source for the watch; wait: it may wait for relays. It
// reports whether the search has ended, with or without a source. Only the router's
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
	_, found, err := w.r.open(ctx, WatchRequest{Range: w.rng, From: w.delivered + 1, Lineage: w.lineage}, w.waker)
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
	w.place = found
	w.place.serve(w.serves)
	w.state.Store(settled)
	if w.closed {
		w.place.drop(w.r)
	}
	return true
}

// passing reports whether an error of open may be temporary.
func passing(err error) bool {
	var (
		compacted *kv.CompactedError
		lineage   *kv.LineageError
		notServed *kv.NotServedError
	)
	return !errors.As(err, &compacted) && !errors.As(err, &lineage) && !errors.As(err, &notServed)
}
