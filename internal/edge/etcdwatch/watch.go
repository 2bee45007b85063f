package etcdwatch

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/shardwatch/shardwatch/internal/edge/etcdview"
	"github.com/shardwatch/shardwatch/internal/edge/pump"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/ops/tally"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// Bounds of what one pass of the pump sends for one watch before the
// connection's others have their turn: about so many bytes, and not more
// revisions than are remembered in their encoded form until the others send
// them, too. Revisions that are ready together share a message up to
// messageBytes: what a frame takes, and what is remembered.
const (
	passBytes     = 256 << 10
	passRevisions = 32
	messageBytes  = 16 << 10
)

// Bounds of waiting for a watch's start.
const (
	// verifyTimeout bounds the question whether etcd still has the start
	// revision. Without an answer, what we have counts.
	verifyTimeout = time.Second
	// homeTimeout is how long a home is looked for once a watch has caught up with the log,
	// homeLook for how long at a time, and homeRetry is the pause before it is looked for
	// again.
	homeTimeout = 5 * time.Second
	homeLook    = 250 * time.Millisecond
	homeRetry   = 100 * time.Millisecond
)

// watch is one watch of a stream. It is opened by a goroutine of its own, then
// belongs to the pump that is at the stream.
type watch struct {
	// What an event needs comes first: with many watches, waiting for memory is
	// most of what one costs.
	task      pump.Task
	s         *stream
	inner     *router.Watch                              // see next
	ending    atomic.Pointer[etcdserverpb.WatchResponse] // with what the watch must end
	id        int64
	cancelled atomic.Bool // by the client: nothing more is sent

	// Owned by the pump.
	live     bool // created was sent, and the watch has not ended
	fetching bool // rejoin is on its way
	quiet    bool // nothing was sent since the last progress notification was due

	prev, fragment, notify bool
	noPut, noDelete        bool

	bare    kv.Revision             // what happened at this revision has no previous values
	held    held                    // owned by the pump: taken from inner, and not to be sent yet
	fetched atomic.Pointer[fetched] // see catchUp
	rides   *part                   // guarded by past.mu: the part of the log that it waits for
	tally   tally.Watch             // for operators

	rng    kv.Range
	caller string
	start  kv.Revision // as asked for; 0: now
	// lineage is the one that the watch began in, and ends with: set before the
	// start is looked for, because revisions say nothing in another one.
	lineage uint64
	over    atomic.Bool // released

	// Set before the answer is ready, then owned by the pump. Everything below
	// next was sent, but for what the window brings: inner knows that. Without
	// an inner, what lies before the window, which begins at before or later, comes
	// from etcd's log. part are the bytes that were asked for last.
	next, before kv.Revision
	part         int
}

// held is a revision that must wait; see progress.hold. The zero held is none.
type held struct {
	revision kv.Revision
	events   []*kv.Event
}

func newWatch(s *stream, r *etcdserverpb.WatchCreateRequest, rng kv.Range, caller string) *watch {
	w := &watch{
		s: s, id: r.GetWatchId(), rng: rng, caller: caller, start: kv.Revision(r.GetStartRevision()),
		prev: r.GetPrevKv(), fragment: r.GetFragment(), notify: r.GetProgressNotify(), quiet: true,
		noPut:    slices.Contains(r.GetFilters(), etcdserverpb.WatchCreateRequest_NOPUT),
		noDelete: slices.Contains(r.GetFilters(), etcdserverpb.WatchCreateRequest_NODELETE),
	}
	if w.notify {
		s.progress.notify()
	}
	w.task.Init(s.tasks, w.run)
	w.tally.Open(time.Now())
	return w
}

// Wake implements cache.Waker.
func (w *watch) Wake() { w.task.Wake() }

// opening is a watch that is being opened.
type opening struct {
	answer *reply
	until  time.Time // a home is looked for till then
	// from and now are the first revision to send and etcd's present one, once found
	// is set.
	from, now kv.Revision
	found     bool
}

// openInTurn opens the watch beside its stream, now or in the turn of its client,
// and again until its keys have a home: a watch that waits for one holds no place at the
// gate. let is called once it has had its turn, or its stream is closing.
func (w *watch) openInTurn(o *opening, let func()) {
	gate := w.s.of.cfg.Openings
	again, ok := gate.Enter(w.s.holder.Name, func() bool {
		let()
		return w.s.spawn(func() {
			began := time.Now()
			opened := w.open(o)
			gate.Leave(time.Since(began))
			if !opened {
				time.AfterFunc(homeRetry, func() { w.openInTurn(o, func() {}) })
			}
		})
	})
	if !ok { // etcd's API has no retry delay: the stream waits
		time.AfterFunc(again, func() { w.openInTurn(o, let) })
	}
}

// open finds where the watch starts, and answers the request. What the window
// does not hold any more is read from etcd's log once the watch has been announced. It
// reports whether it is done: a shard that is just being loaded or moved has no home.
func (w *watch) open(o *opening) (opened bool) {
	s := w.s
	answer := o.answer
	var err error
	for again := true; again; again = w.start == 0 && errors.As(err, new(*kv.LineageError)) {
		if !o.found {
			w.lineage = s.of.cfg.Router.History().Lineage
			o.from, o.now, err = w.from()
			o.found = err == nil
		}
		if err == nil {
			w.next = o.from
			w.inner, err = w.lookForHome(o.from)
		}
		o.found = o.found && !errors.As(err, new(*kv.LineageError))
	}
	if o.found && w.homeless(err) && time.Now().Before(o.until) {
		return false
	}
	from, now := o.from, o.now
	var compacted *kv.CompactedError
	var served *kv.NotServedError
	switch {
	case errors.As(err, &compacted) && from == 0:
		w.ending.Store(w.compacted(compacted.Floor))
	case overtaken(err):
		w.ending.Store(w.compacted(max(from, w.start)))
	case err == nil:
		w.tally.Follow(w.inner)
	case errors.As(err, &compacted):
		w.before = compacted.Floor
		w.tally.Leave(from-1, time.Now())
		w.tally.Begin(tally.Log)
	case errors.As(err, &served):
		s.drop(w)
		answer.created = nil // there is no watch to start
		s.ready(answer, &etcdserverpb.WatchResponse{
			Header: s.of.view.Header(now), WatchId: invalidID, Created: true, Canceled: true, CancelReason: err.Error(),
		})
		return true
	default:
		s.fail(wire.Status(err))
		return true
	}
	s.ready(answer, &etcdserverpb.WatchResponse{Header: s.of.view.Header(now), WatchId: w.id, Created: true})
	return true
}

// from returns the first revision to send, and etcd's present one for the
// header. It fails with a *kv.CompactedError when etcd has compacted the
// first; its Floor is etcd's compact revision then.
func (w *watch) from() (from, now kv.Revision, err error) {
	view := w.s.of.view
	if w.start == 0 {
		if now, err = view.Now(w.s.ctx); err != nil {
			if w.s.leader {
				return 0, 0, etcdview.ErrNoLeader
			}
			// As at a member that has lost its leader: from what it has on.
			if now = view.Newest(); now == 0 {
				return 0, 0, err
			}
		}
		return now + 1, now, nil
	}
	ctx, cancel := context.WithTimeout(w.s.ctx, verifyTimeout)
	defer cancel()
	// The revision before: where that is gone, a watch from the first is fine,
	// but etcd has no previous values for it.
	now, err = view.Verify(ctx, w.start-1)
	var compacted *kv.CompactedError
	var future *kv.FutureError
	switch {
	case errors.As(err, &compacted) && compacted.Floor == w.start:
		w.bare = w.start
		if now == 0 {
			now = view.Newest()
		}
	case errors.As(err, &compacted):
		if now == 0 {
			now = view.Newest()
		}
		return 0, now, err
	case errors.As(err, &future):
		now = future.Current
	case err != nil:
		now = view.Newest()
	}
	return w.start, now, nil
}

// lookForHome opens the watch at the router, if its shards have homes by now or soon.
func (w *watch) lookForHome(from kv.Revision) (*router.Watch, error) {
	ctx, cancel := context.WithTimeout(w.s.ctx, homeLook)
	defer cancel()
	return w.s.of.cfg.Router.Watch(ctx, router.WatchRequest{Range: w.rng, From: from, Lineage: w.lineage}, w)
}

// homeless reports whether err says that a shard has no home for now.
func (w *watch) homeless(err error) bool {
	return errors.As(err, new(*kv.UnavailableError)) && (!overtaken(err) || w.start == 0)
}

// home opens the watch at the router. It waits for a shard that is just being
// loaded or moved.
func (w *watch) home(from kv.Revision) (*router.Watch, error) {
	ctx, cancel := context.WithTimeout(w.s.ctx, homeTimeout)
	defer cancel()
	for {
		inner, err := w.lookForHome(from)
		if !w.homeless(err) {
			return inner, err
		}
		select {
		case <-time.After(homeRetry):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// release gives back what the watch holds. The task must be closed, or be the
// caller, or another one of the stream.
func (w *watch) release() {
	w.over.Store(true)
	w.forget()
	w.s.of.past.leave(w)
	if w.inner != nil {
		w.inner.Close()
	}
	w.live = false
}

// end has the pump end the watch with a last message. The first one stays.
func (w *watch) end(m *etcdserverpb.WatchResponse) {
	w.ending.CompareAndSwap(nil, m)
	w.task.Wake()
}

// run is the watch's turn.
func (w *watch) run(own *pump.Scratch) (again bool) {
	switch ending := w.ending.Load(); {
	case !w.live || w.s.failed || w.cancelled.Load():
		return false
	case ending != nil:
		w.finish(ending)
		return false
	}
	if w.inner == nil {
		if again = w.catchUp(own); w.inner == nil || w.s.failed {
			return again
		}
	}
	if h := w.held; h.revision > 0 {
		if w.s.progress.holds(h.revision) {
			return false
		}
		w.held = held{}
		w.send(own, h.revision, h.events)
	}
	return w.events(own)
}

// joined reports whether the watch is sent what the window holds.
func (w *watch) joined() bool { return w.live && w.inner != nil }

// finish ends the watch with a last message, unless the client has cancelled it
// and waits for the answer to that.
func (w *watch) finish(m *etcdserverpb.WatchResponse) {
	w.release()
	if w.s.drop(w) {
		w.s.send(m)
	}
}

// events sends the revisions that are ready, up to a pass's worth. Small ones
// that are ready together go in one message, as etcd itself sends what a watch
// catches up with (mvcc/watchable_store.go, syncWatchers). None is cut.
func (w *watch) events(own *pump.Scratch) (again bool) {
	ready, last, size := own.Events[:0], kv.Revision(0), 0 // taken, and not sent yet
	sent := 0
	send := func() {
		if last > 0 {
			sent += w.send(own, last, ready)
			clear(ready)
			ready, last, size = ready[:0], 0, 0
		}
	}
	for n := 0; sent < passBytes && n < passRevisions && !w.s.failed; n++ {
		revision, events, err := w.inner.Next(ready)
		if cap(events) > cap(own.Events) && cap(events) <= 4096 {
			own.Events = events
		}
		if err != nil || revision == 0 {
			send()
			return err != nil && !w.s.failed && w.leave(err)
		}
		kept := w.filter(events[len(ready):])
		if len(kept) == 0 {
			continue
		}
		if w.s.progress.holds(revision) {
			w.held = held{revision: revision, events: slices.Clone(kept)}
			clear(kept)
			send()
			return false // woken when it may go
		}
		more := 0
		for _, e := range kept {
			more += kv.EventSize(e, w.prev)
		}
		if size+more > messageBytes {
			send()
		}
		ready = append(ready, kept...) // where they are, unless send has made room
		if last, size = revision, size+more; revision == w.bare {
			send() // without previous values
		}
	}
	send()
	return !w.s.failed
}

// reached returns the revision up to which everything was sent.
func (w *watch) reached() kv.Revision {
	if w.held.revision > 0 {
		return w.held.revision - 1
	}
	at, _ := w.inner.Progress()
	return at
}

// filter returns the events that the client wants, in the same slice.
func (w *watch) filter(events []*kv.Event) []*kv.Event {
	if !w.noPut && !w.noDelete {
		return events
	}
	return slices.DeleteFunc(events, func(e *kv.Event) bool {
		return e.Type == kv.Put && w.noPut || e.Type == kv.Delete && w.noDelete
	})
}

// send sends events, whose last revision is given, and returns their size. etcd
// splits its messages only for clients that request it (v3rpc/watch.go).
func (w *watch) send(own *pump.Scratch, revision kv.Revision, events []*kv.Event) (size int) {
	h := w.s.of.view.WireHeader(revision)
	prev := w.prev && revision != w.bare
	one := func(run []*kv.Event, more bool) error {
		m := own.Fan.EtcdShared(h, more, run, prev)
		n := m.Size(w.id)
		size += n
		w.tally.Sent(n)
		if !w.s.add(w.id, m) {
			return context.Canceled
		}
		return nil
	}
	own.Trail.Sent(revision, 1)
	w.s.of.view.Saw(revision)
	w.quiet, w.s.sent = false, max(w.s.sent, revision)
	if w.fragment {
		_ = wire.Fragments(events, prev, w.s.of.cfg.MaxMessageBytes, one)
	} else {
		_ = one(events, false)
	}
	return size
}

// leave gives up the window. A watch that is behind it is sent what it has
// missed from etcd's log; a lineage that has ended takes its history with it; a
// watch of keys that the cluster no longer serves ends alone; and else the client
// resumes on another node, as every client of etcd does when its stream ends.
// It reports whether there is more to do at once.
func (w *watch) leave(err error) (again bool) {
	at := w.reached()
	var compacted *kv.CompactedError
	switch {
	case errors.As(err, &compacted):
		w.inner.Close()
		w.inner, w.next, w.before = nil, max(w.next, at+1), compacted.Floor
		w.tally.Leave(w.next-1, time.Now())
		w.tally.Begin(tally.Log)
		return true
	case overtaken(err):
		w.finish(w.compacted(at + 1))
	case errors.As(err, new(*kv.NotServedError)):
		w.finish(w.unserved(err))
	default:
		w.s.fail(wire.Status(err))
	}
	return false
}

// overtaken reports whether err says that the lineage of a watch has ended, or
// that its history has: then it ends as compacted, whatever it waits for.
func overtaken(err error) bool {
	return errors.As(err, new(*kv.LineageError)) || errors.Is(err, kv.ErrOtherHistory)
}

// compacted is what a watch ends with whose next revision is gone. As at etcd,
// the header has no revision, and there is no reason.
func (w *watch) compacted(floor kv.Revision) *etcdserverpb.WatchResponse {
	return &etcdserverpb.WatchResponse{
		Header: w.s.of.view.Header(0), WatchId: w.id, Canceled: true, CompactRevision: int64(max(floor, 1)),
	}
}

// unserved is what a watch ends with when the served keys change and its own are not
// among them any more. etcd itself would serve them, but the stream ends here: the
// reason says so, and there is no revision to list at.
func (w *watch) unserved(err error) *etcdserverpb.WatchResponse {
	return &etcdserverpb.WatchResponse{Header: w.s.of.view.Header(0), WatchId: w.id, Canceled: true, CancelReason: err.Error()}
}
