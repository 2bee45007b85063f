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
	"github.com/shardwatch/shardwatch/internal/ops/watchstats"
	"github.com/shardwatch/shardwatch/internal/wait"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// Bounds of one pass of the pump for one watch before the
// connection's others have their turn: about so many bytes, and not more
// revisions than are remembered in their encoded form until the others send
// them, too. Revisions that are ready together share a message up to
// messageBytes: the limit of a frame, and of a remembered encoding.
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
	// homeTimeout bounds the search for a home after a watch has caught up with the log,
	// homeLook one attempt of it, and homeRetry is the pause before the next
	// attempt.
	homeTimeout = 5 * time.Second
	homeLook    = 250 * time.Millisecond
	homeRetry   = 100 * time.Millisecond
)

// watch is one watch of a stream. It is opened by a goroutine of its own, then
// belongs to the pump that is at the stream.
type watch struct {
	task      pump.Task
	s         *stream
	reader    *reader                                    // see next
	ending    atomic.Pointer[etcdserverpb.WatchResponse] // the response with which the watch must end
	id        int64
	cancelled atomic.Bool // by the client: nothing more is sent

	// Owned by the pump.
	live     bool // created was sent, and the watch has not ended
	fetching bool // rejoin is on its way
	quiet    bool // only the reader has sent events since the last progress notification was due
	// sends is how often the reader had sent events when the last notification was due, or when
	// the watch has come to it.
	sends uint64
	place int // in the reader's list

	notify bool
	// readerKind must equal that of the reader. The lineage is the one that the watch
	// began in, and ends with: set before the start is looked for, because revisions say
	// nothing in another one.
	readerKind
	bare kv.Revision // events of this revision have no previous values

	fetched atomic.Pointer[fetched] // see catchUp
	rides   *part                   // guarded by past.mu: the part of the log that it waits for
	away    time.Time               // guarded by past.mu: since when each read of the log has found etcd away; zero: the last one did not
	stats   watchstats.Watch        // for operators

	caller string
	start  kv.Revision // as asked for; 0: now
	over   atomic.Bool // released

	// Set before the answer is ready, then owned by the pump. Everything below
	// next was sent, except events of the window: the reader knows these. Without
	// a reader, events before the window, which begins at before or later, come
	// from etcd's log.
	next, before kv.Revision
}

func newWatch(s *stream, r *etcdserverpb.WatchCreateRequest, rng kv.Range, caller string) *watch {
	w := &watch{
		s: s, id: r.GetWatchId(), caller: caller, start: kv.Revision(r.GetStartRevision()), notify: r.GetProgressNotify(), quiet: true,
		readerKind: readerKind{
			rng: rng, prev: r.GetPrevKv(), fragment: r.GetFragment(),
			noPut:    slices.Contains(r.GetFilters(), etcdserverpb.WatchCreateRequest_NOPUT),
			noDelete: slices.Contains(r.GetFilters(), etcdserverpb.WatchCreateRequest_NODELETE),
		},
	}
	if w.notify {
		s.progress.notify()
	}
	w.task.Init(s.tasks, w.run)
	w.stats.Open(time.Now())
	return w
}

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
	gate := w.s.of.cfg.OpenQueue
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

// open finds the watch's start, and answers the request. Events that the window has
// evicted are read from etcd's log once the watch has been announced. It
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
			w.reader, err = w.lookForHome(o.from)
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
		w.follow()
	case errors.As(err, &compacted):
		w.before = compacted.Floor
		w.stats.Leave(from-1, time.Now())
		w.stats.Begin(watchstats.Log)
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
			// As at a member that has lost its leader: after its newest event.
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
	now, err = view.CheckRevision(ctx, w.start-1)
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

// lookForHome opens the watch's reader, if its shards have homes by now or soon.
func (w *watch) lookForHome(from kv.Revision) (*reader, error) {
	r := newReader(w)
	if err := r.open(from); err != nil {
		return nil, err
	}
	return r, nil
}

// follow has the watch be served by its new reader.
func (w *watch) follow() {
	w.place, w.sends = 0, 0
	w.stats.Share(&w.reader.sent, wire.RecipientSize(w.id))
	w.stats.Follow(w.reader.inner)
}

// homeless reports whether err says that a shard has no home for now.
func (w *watch) homeless(err error) bool {
	return errors.As(err, new(*kv.UnavailableError)) && (!overtaken(err) || w.start == 0)
}

// home opens the watch's reader. It waits for a shard that is just being
// loaded or moved.
func (w *watch) home(from kv.Revision) (*reader, error) {
	ctx, cancel := context.WithTimeout(w.s.ctx, homeTimeout)
	defer cancel()
	for {
		r, err := w.lookForHome(from)
		if !w.homeless(err) {
			return r, err
		}
		if !wait.Sleep(ctx, homeRetry) {
			return nil, err
		}
	}
}

// release gives back the watch's resources. The task must be closed, or be the
// caller, or another one of the stream.
func (w *watch) release() {
	w.over.Store(true)
	w.forget()
	w.s.of.past.leave(w)
	if w.reader != nil {
		w.reader.remove(w)
	} else {
		w.s.progress.caughtUp()
	}
	w.live = false
}

// end has the pump end the watch with a last message. The first one stays.
func (w *watch) end(m *etcdserverpb.WatchResponse) {
	w.ending.CompareAndSwap(nil, m)
	w.s.left.Add(1)
	w.task.Wake()
}

// run is the watch's turn: it ends the watch, or sends the events that the window has
// evicted. The rest is its reader's.
func (w *watch) run(own *pump.Scratch) (again bool) {
	switch ending := w.ending.Load(); {
	case !w.live || w.s.failed || w.cancelled.Load():
		return false
	case ending != nil:
		w.finish(ending)
		return false
	}
	if w.reader == nil {
		again = w.catchUp(own)
	}
	if w.reader != nil {
		w.reader.begin()
	}
	return again
}

// joined reports whether the watch is sent the window's events.
func (w *watch) joined() bool { return w.live && w.reader != nil }

// outlived reports whether the watch, which ends soon, is of an older lineage than the one given.
func (w *watch) outlived(lineage uint64) bool { return w.live && w.lineage < lineage }

// finish ends the watch with a last message, unless the client has cancelled it
// and waits for the answer to that.
func (w *watch) finish(m *etcdserverpb.WatchResponse) {
	w.release()
	if w.s.drop(w) {
		w.s.send(m)
	}
}

// events sends events of one revision or several, of which the last is given, and returns
// their size. send gets each message.
func (s *stream) events(own *pump.Scratch, revision kv.Revision, kind *readerKind, withPrev bool, events []*kv.Event, send func(*wire.Shared) error) (size int) {
	h, prev := s.of.view.WireHeader(revision), kind.prev && withPrev
	one := func(run []*kv.Event, more bool) error {
		m := own.Fan.EtcdShared(h, more, run, prev)
		size += m.Size()
		if s.failed || !s.check(send(m)) {
			return context.Canceled
		}
		return nil
	}
	s.of.view.Saw(revision)
	s.noteSent(kind.lineage, revision)
	if kind.fragment {
		_ = wire.Fragments(events, prev, s.of.cfg.MaxMessageBytes, one)
	} else {
		_ = one(events, false)
	}
	return size
}

// overtaken reports whether err says that the lineage of a watch has ended, or
// that its history has: then it ends as compacted, regardless of its state.
func overtaken(err error) bool {
	return errors.As(err, new(*kv.LineageError)) || errors.Is(err, kv.ErrOtherHistory)
}

// compacted is the last response of a watch whose next revision is gone. As at etcd,
// the header has no revision, and there is no reason.
func (w *watch) compacted(floor kv.Revision) *etcdserverpb.WatchResponse {
	return &etcdserverpb.WatchResponse{
		Header: w.s.of.view.Header(0), WatchId: w.id, Canceled: true, CompactRevision: int64(max(floor, 1)),
	}
}

// unserved is the last response of a watch whose keys are no longer among the served
// ones. etcd itself would serve them, but the stream ends here: the
// reason says so, and there is no revision to list at.
func (w *watch) unserved(err error) *etcdserverpb.WatchResponse {
	return &etcdserverpb.WatchResponse{Header: w.s.of.view.Header(0), WatchId: w.id, Canceled: true, CancelReason: err.Error()}
}
