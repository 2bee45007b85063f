package etcdapi

import (
	"context"
	"errors"
	"time"

	"github.com/shardwatch/shardwatch/internal/etcd"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/pump"
	"github.com/shardwatch/shardwatch/internal/router"
)

// The window ends somewhere, and a watch may begin before that: clientv3
// resumes one that was quiet for a day where it was created. etcd would go on
// with it as long as nothing is compacted, so here it does, too: what the window
// does not hold is fetched from etcd's log, then the window goes on.

const (
	// fetchBytes is about how much is fetched at a time for one watch.
	fetchBytes = 1 << 20
	// fetchRetry is the pause after an attempt that etcd did not answer.
	fetchRetry = time.Second
)

// fetched is what a fetch has brought.
type fetched struct {
	inner *router.Watch // the window, from next on; nil: there is more to fetch
	past  []kv.Batch    // what happened before
	next  kv.Revision
	err   error // instead: why the watch must end
}

// catchUp sends what was fetched, up to a pass's worth, and has more fetched
// when that is needed. It reports whether there is more to do at once.
func (w *watch) catchUp(own *pump.Scratch) (again bool) {
	if f := w.fetched.Load(); f != nil && w.fetched.CompareAndSwap(f, nil) {
		w.fetching = false
		var compacted *kv.CompactedError
		switch {
		case errors.As(f.err, &compacted):
			w.finish(w.compacted(compacted.Floor))
			return false
		case f.err != nil:
			w.finish(w.unserved(f.err))
			return false
		}
		w.inner, w.past, w.next = f.inner, f.past, f.next
		w.joins()
	}
	for sent := 0; len(w.past) > 0 && !w.s.failed; {
		if sent >= passBytes {
			return true
		}
		b := &w.past[0]
		if w.s.progress.holds(b.Revision) {
			return false // woken when it may go
		}
		events := make([]*kv.Event, len(b.Events))
		for i := range b.Events {
			events[i] = &b.Events[i]
		}
		if kept := w.filter(events); len(kept) > 0 {
			sent += w.send(own, b.Revision, kept)
		}
		w.tally.Reached(b.Revision)
		w.past[0] = kv.Batch{}
		w.past = w.past[1:]
		w.joins()
	}
	if w.inner == nil && !w.fetching && !w.s.failed {
		w.fetching = true
		from := w.next
		w.s.spawn(func() { w.fetch(from) })
	}
	return false
}

// joins notes it when the watch is served from the window again.
func (w *watch) joins() {
	if w.inner != nil && len(w.past) == 0 {
		w.tally.Follow(w.inner)
	}
}

// fetch fetches what happened from a revision on, until the window has it. It
// tries until etcd answers, for as long as the watch is wanted and its keys are
// served.
func (w *watch) fetch(from kv.Revision) {
	for {
		f, err := w.fetchOnce(from)
		if err == nil || errors.As(err, new(*kv.CompactedError)) || errors.As(err, new(*kv.NotServedError)) {
			f.err = err
			w.fetched.Store(&f)
			if w.over.Load() {
				w.forget()
			}
			w.task.Wake()
			return
		}
		w.s.door.cfg.Logger.Debug("a watch waits for etcd's log", "range", w.rng, "from", from, "error", err)
		select {
		case <-time.After(fetchRetry):
		case <-w.s.ctx.Done():
			return
		}
		if w.over.Load() {
			return
		}
	}
}

// forget gives back what was fetched for nobody.
func (w *watch) forget() {
	if f := w.fetched.Swap(nil); f != nil && f.inner != nil {
		f.inner.Close()
	}
}

// fetchOnce is one attempt. Its *kv.CompactedError is etcd's.
func (w *watch) fetchOnce(from kv.Revision) (fetched, error) {
	d, ctx := w.s.door, w.s.ctx
	ended := &kv.CompactedError{Requested: from, Floor: from} // with its lineage
	// The window first: from there on, nothing is lost meanwhile.
	at := from
	inner, err := w.home(at)
	for floor := (*kv.CompactedError)(nil); errors.As(err, &floor) && floor.Floor > at; {
		at = floor.Floor
		inner, err = w.home(at)
	}
	switch {
	case overtaken(err):
		return fetched{}, ended
	case err != nil:
		return fetched{}, notCompacted(err)
	}
	if at == from {
		return fetched{inner: inner, next: from}, nil
	}
	h, err := d.cfg.Etcd.History(ctx, etcd.HistoryRequest{Range: w.rng, From: from, Before: at, PrevKV: w.prev, MaxBytes: fetchBytes})
	if d.cfg.Router.History().Lineage != w.lineage || overtaken(err) {
		inner.Close()
		return fetched{}, ended // what was read may be of the next
	}
	if err == nil && h.Next == at {
		return fetched{inner: inner, past: h.Batches, next: at}, nil
	}
	inner.Close()
	if errors.As(err, new(*kv.CompactedError)) {
		_, newest := d.verifyNewest(ctx, from)
		if errors.As(newest, new(*kv.CompactedError)) {
			err = newest
		}
	}
	return fetched{past: h.Batches, next: h.Next}, err
}

// notCompacted returns err, or when it speaks of a window's floor, an error that
// does not: what etcd has compacted, etcd says.
func notCompacted(err error) error {
	if errors.As(err, new(*kv.CompactedError)) {
		return errBehind
	}
	return err
}

var errBehind = errors.New("the window has moved on")

// verifyNewest is verify, but that a *kv.CompactedError's Floor is the newest
// compact revision, and comes with etcd's present one.
func (d *Door) verifyNewest(ctx context.Context, revision kv.Revision) (now kv.Revision, err error) {
	now, err = d.verify(ctx, revision)
	var compacted *kv.CompactedError
	if !errors.As(err, &compacted) {
		return now, err
	}
	// What was known to be compacted may not be all: the client shall be told of
	// a revision that it can have.
	for last := kv.Revision(0); compacted.Floor > last; {
		last = compacted.Floor
		var more error
		if now, more = d.verify(ctx, last); more == nil {
			break
		}
		errors.As(more, &compacted)
	}
	return now, compacted
}
