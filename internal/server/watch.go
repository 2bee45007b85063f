package server

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/pump"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/tally"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// passBytes is about how much one pass of the pump sends for one watch before
// the connection's others have their turn.
const passBytes = 256 << 10

// watch is one watch of a stream. It is opened by the stream, then belongs to
// the pump that is at the stream.
type watch struct {
	id   int64
	s    *stream
	rng  kv.Range
	prev bool
	task pump.Task
	to   wire.Recipient
	// tally is for operators.
	tally tally.Watch
	// refused: over the stream's limit, and not on its list.
	refused bool
	// maxStaleness is how old what is sent may be; 0: any age.
	maxStaleness time.Duration

	// Set before the task first runs, then owned by the pump.
	inner   *router.Watch
	phase   phase
	begin   kv.Revision // everything after it is delivered
	lineage uint64
	cluster string
	chunks  chan *wire.Encoded // the state; closed behind the last chunk
	whole   bool               // set before chunks is closed: the last chunk was sent
	cancel  context.CancelFunc // ends the goroutine that makes the chunks
	freshAt time.Time          // the data was fresh then, when maxStaleness is set

	caller atomic.Pointer[string]             // whose it is, for the guard; nil while that is being found out
	ending atomic.Pointer[shardwatchv1.Ended] // why the watch must end
}

type phase uint8

const (
	creating phase = iota
	syncing
	live
	over
)

func newWatch(s *stream, id int64, rng kv.Range, prev bool) *watch {
	w := &watch{id: id, s: s, rng: rng, prev: prev, to: wire.NewRecipient(id)}
	w.tally.Open(time.Now())
	w.task.Init(s.tasks, w.run)
	return w
}

// Wake implements cache.Waker.
func (w *watch) Wake() { w.task.Wake() }

// end has the pump end the watch. The first reason stays.
func (w *watch) end(why *shardwatchv1.Ended) {
	w.ending.CompareAndSwap(nil, why)
	w.task.Wake()
}

// refuse ends a watch that never started.
func (w *watch) refuse(err error) {
	w.end(ended(err, w.s.srv.cfg.Router.Elsewhere(w.rng)))
	w.task.Start()
}

// open finds out whether the watch is permitted, its start and its home. It may
// wait for etcd and for a relay.
func (w *watch) open(ctx context.Context, at start) {
	if err := w.permit(ctx); err != nil {
		w.refuse(err)
		return
	}
	r := w.s.srv.cfg.Router
	_, w.cluster = r.Lineage()
	from := at.from
	var state *router.Reading
	var err error
	switch {
	case at.state:
		if state, err = r.Read(ctx, router.ReadRequest{Range: w.rng}); err == nil {
			from = state.Revision + 1
		}
	case at.fetch:
		var now kv.Revision
		if now, err = r.Now(ctx); err == nil {
			from = now + 1
		}
	}
	lineage := at.lineage
	if err == nil && state != nil {
		lineage = state.Lineage
	}
	if err == nil {
		w.inner, err = r.Watch(ctx, router.WatchRequest{Range: w.rng, From: from, Lineage: lineage}, w)
	}
	if err != nil {
		w.refuse(err)
		return
	}
	w.begin, w.lineage = from-1, w.inner.Lineage()
	if err := w.stale(time.Now()); err != nil {
		if state != nil { // it is no position without the state
			w.inner.Close()
			w.inner = nil
		}
		w.refuse(err)
		return
	}
	if w.maxStaleness > 0 {
		w.s.progress.bound(w.maxStaleness)
	}
	w.tally.Follow(w.inner)
	if state != nil {
		w.tally.Begin(tally.Resync)
		w.send(ctx, state)
	}
	w.task.Start()
}

// put sends a part of what is watched. For the pump that is at the stream. It
// reports whether the stream works.
func (w *watch) put(m *wire.Encoded) bool {
	w.tally.Sent(m.Buffers.Len())
	return w.s.send(m)
}

// send starts to make the chunks of the state: one ahead of the pump, no more.
func (w *watch) send(ctx context.Context, state *router.Reading) {
	ctx, w.cancel = context.WithCancel(ctx)
	w.chunks = make(chan *wire.Encoded, 1)
	w.s.opening.Go(func() {
		defer w.Wake()
		defer close(w.chunks)
		put := func(m *wire.Encoded) error {
			select {
			case w.chunks <- m:
				w.Wake()
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		kind := int32(shardwatchv1.SyncKind_SYNC_KIND_STATE)
		part := wire.Sync{Kind: kind, Begin: true, Revision: state.Revision}
		err := state.Each(ctx, router.Options{ChunkBytes: w.s.srv.cfg.FragmentBytes}, func(list []*kv.KeyValue) error {
			part.KVs = list
			err := put(wire.WatchSync(w.id, part))
			part.Begin = false
			return err
		})
		if err == nil {
			part.KVs, part.End = nil, true
			err = put(wire.WatchSync(w.id, part))
			w.whole = err == nil
		}
		if err != nil && ctx.Err() == nil {
			w.end(ended(err, nil))
		}
	})
}

// release gives back what the watch holds. The task must be closed, or be the
// caller.
func (w *watch) release() {
	if w.cancel != nil {
		w.cancel()
	}
	if w.inner != nil {
		w.inner.Close()
	}
	w.phase = over
}

// run is the watch's turn.
func (w *watch) run(own *pump.Scratch) (again bool) {
	ending := w.ending.Load()
	switch {
	case w.phase == over || w.s.failed:
		return false
	case ending != nil:
		w.finish(ending)
		return false
	case w.phase == creating:
		if !w.s.send(w.created()) {
			return false
		}
		w.phase = live
		if w.chunks != nil {
			w.phase = syncing
		}
	}
	if w.phase == syncing {
		return w.sync()
	}
	return w.events(own)
}

// sync sends the next chunk, if it is ready: the connection's others have
// their turn between two. It reports whether to come again at once.
func (w *watch) sync() (again bool) {
	select {
	case m, more := <-w.chunks:
		if more {
			return w.put(m)
		}
		if w.whole {
			w.phase = live
			w.tally.Follow(w.inner)
		}
		return w.whole // if not, the watch is about to end
	default:
		return false // woken with the next chunk
	}
}

// events sends the revisions that are ready, up to a pass's worth.
func (w *watch) events(own *pump.Scratch) (again bool) {
	limit := w.s.srv.cfg.FragmentBytes
	for sent := 0; sent < passBytes; {
		revision, events, err := w.inner.Next(own.Events[:0])
		if cap(events) > cap(own.Events) && cap(events) <= 4096 {
			own.Events = events
		}
		switch {
		case err != nil:
			w.finish(ended(err, w.s.srv.cfg.Router.Elsewhere(w.rng)))
			return false
		case revision == 0:
			return false
		}
		_ = wire.Fragments(events, w.prev, limit, func(run []*kv.Event, more bool) error {
			m := own.Fan.WatchEvents(w.to, revision, more, run, w.prev)
			sent += m.Buffers.Len()
			if !w.put(m) {
				sent = passBytes
				return errors.New("stream is gone")
			}
			return nil
		})
		clear(events)
	}
	return !w.s.failed
}

func (w *watch) created() *shardwatchv1.WatchResponse {
	return &shardwatchv1.WatchResponse{WatchId: w.id, Detail: &shardwatchv1.WatchResponse_Created{Created: &shardwatchv1.Created{
		Revision: int64(w.begin), Lineage: w.lineage, Node: string(w.s.srv.cfg.Self),
		ResumeToken: w.token(w.begin), Age: ageMessage(w.inner.Age()),
	}}}
}

func (w *watch) token(at kv.Revision) []byte {
	return wire.ResumeToken(wire.Position{ClusterID: w.cluster, Lineage: w.lineage, Range: w.rng, Revision: at})
}

// finish tells the client that the watch has ended, and where to go on.
func (w *watch) finish(e *shardwatchv1.Ended) {
	if w.inner != nil && (w.phase == live || w.phase == creating) {
		at, _ := w.inner.Progress()
		at = max(at, w.begin)
		e.ResumeRevision = int64(at) + 1
		e.ResumeToken = w.token(at)
	}
	w.release()
	w.s.forget(w)
	w.s.send(&shardwatchv1.WatchResponse{WatchId: w.id, Detail: &shardwatchv1.WatchResponse_Ended{Ended: e}})
}

// ended says why a watch ended, in the API's words; elsewhere is where to go
// when this node is the reason.
func ended(err error, elsewhere []string) *shardwatchv1.Ended {
	e := &shardwatchv1.Ended{Reason: shardwatchv1.EndReason_END_REASON_UNAVAILABLE, Message: err.Error()}
	var (
		compacted   *kv.CompactedError
		lineage     *kv.LineageError
		invalid     *kv.InvalidError
		notServed   *kv.NotServedError
		notHere     *kv.NotHereError
		unavailable *kv.UnavailableError
		limit       *kv.LimitError
		unknown     *kv.UnauthenticatedError
		denied      *kv.DeniedError
	)
	switch {
	case errors.As(err, &compacted):
		e.Reason, e.Floor = shardwatchv1.EndReason_END_REASON_COMPACTED, int64(compacted.Floor)
	case errors.As(err, &lineage):
		e.Reason = shardwatchv1.EndReason_END_REASON_LINEAGE
	case errors.As(err, &invalid), errors.As(err, &notServed):
		e.Reason = shardwatchv1.EndReason_END_REASON_INVALID
	case errors.As(err, &unknown):
		e.Reason = shardwatchv1.EndReason_END_REASON_UNAUTHENTICATED
	case errors.As(err, &denied):
		e.Reason = shardwatchv1.EndReason_END_REASON_DENIED
	case errors.As(err, &limit):
		e.Reason, e.RetryAfter = shardwatchv1.EndReason_END_REASON_LIMIT, durationpb.New(limit.RetryAfter)
	case errors.As(err, &notHere):
		e.Endpoints = notHere.Endpoints
	case errors.As(err, &unavailable):
		e.Endpoints = elsewhere
		switch unavailable.Why {
		case kv.Draining:
			e.Reason = shardwatchv1.EndReason_END_REASON_DRAINING
		case kv.Stale:
			e.Reason = shardwatchv1.EndReason_END_REASON_STALE
		case kv.NotReady, kv.EtcdUnavailable:
		}
		e.RetryAfter = durationpb.New(unavailable.RetryAfter)
	default:
		e.Endpoints = elsewhere
	}
	return e
}
