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

// Bounds of one pass of the pump for one watch, before the other watches of the
// connection run: about passBytes, and at most passRevisions, so that the other
// watches can reuse the cached encodings, and about passSkipped batches without events
// of the watch. Revisions that are ready together share a
// message of up to messageBytes: the limit of a frame, and of a cached encoding.
const (
	passBytes     = 256 << 10
	passRevisions = 32
	passSkipped   = 4 << 10
	messageBytes  = 16 << 10
)

// Bounds of waiting for a watch's start.
const (
	// verifyTimeout bounds the check whether etcd still has the start
	// revision. Without an answer, the node's own data counts.
	verifyTimeout = time.Second
	// homeTimeout bounds the search for a shard's source after a watch has read the log
	// to the window, homeLook bounds one attempt, and homeRetry is the pause before the
	// next attempt.
	homeTimeout = 5 * time.Second
	homeLook    = 250 * time.Millisecond
	homeRetry   = 100 * time.Millisecond
)

// watch is one watch of a stream. A separate goroutine opens it, then the stream's
// pump owns it.
type watch struct {
	task      pump.Task
	s         *stream
	reader    *reader                                    // nil: the watch reads the log; see next
	ending    atomic.Pointer[etcdserverpb.WatchResponse] // the response with which the watch must end
	id        int64
	cancelled atomic.Bool // by the client: nothing more is sent

	// Owned by the pump.
	live     bool // created was sent, and the watch has not ended
	fetching bool // rejoin is running
	quiet    bool // only the reader has sent events since the last progress notification was due
	// sends is reader.sends when the last notification was due, or when the watch joined the
	// reader.
	sends uint64
	place int // index in reader.watches

	notify bool
	// readerKind must equal the reader's. The watch begins in lineage and ends with it. It is
	// set before the start revision is determined, because revisions have no meaning in
	// another lineage.
	readerKind
	bare kv.Revision // events of this revision have no previous values

	fetched atomic.Pointer[fetched] // see catchUp
	rides   *part                   // guarded by past.mu; the part of the log that the watch waits for
	away    time.Time               // guarded by past.mu; the first of consecutive reads that failed without etcd; zero: none
	stats   watchstats.Watch        // for operators

	caller string
	start  kv.Revision // as requested; 0: now
	over   atomic.Bool // released

	// Set before the answer is ready, then owned by the pump. Without a reader,
	// everything below next is sent, and the events below before come from etcd's log:
	// the window begins at before or later. With a reader, the reader has the position.
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
	until  time.Time // the end of the search for the shards' sources
	// from is the first revision to send, now is etcd's current revision; both are valid
	// once found is set.
	from, now kv.Revision
	found     bool
}

// openInTurn opens the watch in a goroutine, now or in the turn of its client, and
// retries while a shard has no source: between attempts the watch holds no slot of the
// gate. let is called at the first turn, even if the stream is closing.
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
	if !ok { // the queue is full, and etcd's API has no retry delay: the stream waits
		time.AfterFunc(again, func() { w.openInTurn(o, let) })
	}
}

// open determines the watch's start, and answers the request. Events that the window has
// evicted are read from etcd's log after the answer. It reports whether it is done: a
// shard that is just being loaded or moved may have no source yet.
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

// from returns the first revision to send, and etcd's current revision for the
// header. It fails with a *kv.CompactedError if etcd has compacted the first
// revision; Floor is then etcd's compact revision.
func (w *watch) from() (from, now kv.Revision, err error) {
	view := w.s.of.view
	if w.start == 0 {
		if now, err = view.Now(w.s.ctx); err != nil {
			if w.s.leader {
				return 0, 0, etcdview.ErrNoLeader
			}
			// Start after the newest event, as an etcd member without a leader does.
			if now = view.Newest(); now == 0 {
				return 0, 0, err
			}
		}
		return now + 1, now, nil
	}
	ctx, cancel := context.WithTimeout(w.s.ctx, verifyTimeout)
	defer cancel()
	// Check the revision before: if only that is compacted, the watch can start,
	// but etcd has no previous values for its first revision.
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

// lookForHome opens the watch's reader. It waits up to homeLook for shards without a source.
func (w *watch) lookForHome(from kv.Revision) (*reader, error) {
	r := newReader(w)
	if err := r.open(from); err != nil {
		return nil, err
	}
	return r, nil
}

// follow makes the watch use its new reader.
func (w *watch) follow() {
	w.place, w.sends = 0, 0
	w.stats.Share(&w.reader.sent, wire.RecipientSize(w.id))
	w.stats.Follow(w.reader.inner)
}

// homeless reports whether err means that a shard has no source at the moment.
func (w *watch) homeless(err error) bool {
	return errors.As(err, new(*kv.UnavailableError)) && (!overtaken(err) || w.start == 0)
}

// home opens the watch's reader. It waits up to homeTimeout for a shard that is
// just being loaded or moved.
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

// release releases the watch's resources. The task must be closed, or the caller
// must be a task of the stream.
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

// end makes the pump end the watch with a last message. The first message wins.
func (w *watch) end(m *etcdserverpb.WatchResponse) {
	w.ending.CompareAndSwap(nil, m)
	w.s.left.Add(1)
	w.task.Wake()
}

// run runs one turn of the watch: it ends the watch, or sends the events that the window has
// evicted. The reader sends all other events.
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

// joined reports whether the watch reads the window.
func (w *watch) joined() bool { return w.live && w.reader != nil }

// outlived reports whether the watch is of a lineage older than the given one, and so ends soon.
func (w *watch) outlived(lineage uint64) bool { return w.live && w.lineage < lineage }

// finish ends the watch with a last message. After a cancel by the client, the answer
// to the cancel is the last message instead.
func (w *watch) finish(m *etcdserverpb.WatchResponse) {
	w.release()
	if w.s.drop(w) {
		w.s.send(m)
	}
}

// events sends the events of one or more revisions, of which revision is the last, and
// returns their size. It calls send for each message.
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
	s.of.view.Saw(kind.lineage, revision)
	s.noteSent(kind.lineage, revision)
	if kind.fragment {
		_ = wire.Fragments(events, prev, s.of.cfg.MaxMessageBytes, one)
	} else {
		_ = one(events, false)
	}
	return size
}

// overtaken reports whether err means that the lineage or the history of a watch has
// ended. The watch then ends as compacted, regardless of its state.
func overtaken(err error) bool {
	return errors.As(err, new(*kv.LineageError)) || errors.Is(err, kv.ErrOtherHistory)
}

// compacted returns the last response of a watch whose next revision is compacted. As
// at etcd, the header has no revision, and there is no reason.
func (w *watch) compacted(floor kv.Revision) *etcdserverpb.WatchResponse {
	return &etcdserverpb.WatchResponse{
		Header: w.s.of.view.Header(0), WatchId: w.id, Canceled: true, CompactRevision: int64(max(floor, 1)),
	}
}

// unserved returns the last response of a watch whose keys the cluster no longer serves.
// etcd itself would serve them, so the watch ends with a reason, and without a
// revision to list at.
func (w *watch) unserved(err error) *etcdserverpb.WatchResponse {
	return &etcdserverpb.WatchResponse{Header: w.s.of.view.Header(0), WatchId: w.id, Canceled: true, CancelReason: err.Error()}
}
