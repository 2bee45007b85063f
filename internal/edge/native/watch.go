package native

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/edge/pump"
	"github.com/shardwatch/shardwatch/internal/edge/syncbatch"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/ops/watchstats"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// passBytes bounds the bytes that one pass of the pump reads for one watch before other
// watches run.
const passBytes = 256 << 10

// watch is one watch of a stream. The stream opens it, then the stream's pump
// owns it.
type watch struct {
	id   int64
	s    *stream
	rng  kv.Range
	prev bool
	task pump.Task
	// stats is for operators.
	stats watchstats.Watch
	// refused: the watch is over the stream's limit, and not in stream.watches.
	refused bool
	// maxStaleness is the maximum age of sent data; 0: any age.
	maxStaleness time.Duration
	// allowSync: the client understands units.
	allowSync bool
	// interval is the minimum time between two units of a conflated watch; 0: the
	// watch is not conflated.
	interval time.Duration

	// Set before the task first runs, then owned by the pump.
	inner   *reader
	place   int // index in inner.watches
	phase   phase
	begin   kv.Revision // everything after it is delivered
	at      kv.Revision // the client's position after all sent messages
	in      history     // the history of at
	follows history     // the history of everything that is sent
	cluster string      // the cluster ID of follows
	freshAt time.Time   // the data was fresh then, when maxStaleness is set
	resync  resync
	latest  latest

	caller atomic.Pointer[string]             // the user, for the guard; nil until determined
	ending atomic.Pointer[shardwatchv1.Ended] // why the watch must end
}

type phase uint8

const (
	creating phase = iota
	syncing        // a unit is awaited or being sent
	opening        // the unit is sent; the window after it is being opened
	live
	over
)

func newWatch(s *stream, id int64, rng kv.Range, prev bool) *watch {
	w := &watch{id: id, s: s, rng: rng, prev: prev}
	w.stats.Open(time.Now())
	w.task.Init(s.tasks, w.run)
	return w
}

// Wake implements syncbatch.Member.
func (w *watch) Wake() { w.task.Wake() }

// Holder returns the client whose budget the watch uses.
func (w *watch) Holder() budget.Client { return w.s.holder }

// end makes the pump end the watch. The first reason wins.
func (w *watch) end(why *shardwatchv1.Ended) {
	w.ending.CompareAndSwap(nil, why)
	w.task.Wake()
}

// refuse ends a watch that never started.
func (w *watch) refuse(err error) {
	w.end(ended(err, w.s.api.cfg.Router.Elsewhere(w.rng)))
	w.task.Start()
}

// open checks the rights, determines the start and opens the window. It may wait for
// etcd and for a relay.
func (w *watch) open(ctx context.Context, at start) {
	if err := w.permit(ctx); err != nil {
		w.refuse(err)
		return
	}
	r := w.s.api.cfg.Router
	here := r.History()
	w.follows, w.cluster = historyOf(here), here.Cluster
	from := at.from
	var err error
	switch {
	case at.state:
		w.begins(syncbatch.Key{Kind: shardwatchv1.SyncKind_SYNC_KIND_STATE})
		return
	case at.fetch:
		var now kv.Revision
		if now, err = r.Now(ctx); err == nil {
			from, at.in = now+1, w.follows // openReader fails if now is of a later history
		}
	default:
		err = at.foreign
	}
	if err == nil {
		w.inner, err = w.openReader(ctx, from, at.in.lineage)
	}
	w.begin, w.at, w.in = from-1, from-1, at.in
	if key, ok := w.syncKey(err); ok {
		w.begins(key)
		return
	}
	if err != nil {
		w.refuse(err)
		return
	}
	w.follows.lineage = w.inner.Lineage()
	w.in = w.follows
	if err := w.stale(time.Now()); err != nil {
		w.refuse(err)
		return
	}
	if w.maxStaleness > 0 {
		w.s.progress.bound(w.maxStaleness)
	}
	w.resumed(at)
	w.task.Start()
}

// resumed reports a watch that resumes from a position.
func (w *watch) resumed(at start) {
	if happened := w.s.api.cfg.Happened; happened != nil && !at.fetch {
		happened(Happening{What: "resume", Began: w.stats.Since(), From: at.from, Revision: w.inner.Furthest(), Often: true})
	}
}

// put sends a message of the watch. It reports whether the stream still works. Called by the
// stream's pump.
func (w *watch) put(m *wire.Encoded) bool {
	w.stats.Sent(m.Buffers.Len())
	return w.s.send(m)
}

// begins starts a watch with a unit.
func (w *watch) begins(key syncbatch.Key) {
	if w.maxStaleness > 0 {
		w.s.progress.bound(w.maxStaleness)
	}
	w.join(key)
	w.task.Start()
}

// release releases the resources of the watch. The task must be closed or be the caller.
func (w *watch) release() {
	w.leave()
	w.dropLatest()
	if t := w.latest.timer; t != nil {
		t.Stop()
	}
	if l := w.resync.opened.Swap(&opened{}); l != nil && l.inner != nil {
		l.inner.Close()
	}
	w.close()
	w.phase = over
}

// close releases the window.
func (w *watch) close() {
	if w.inner != nil {
		w.inner.remove(w)
		w.inner = nil
	}
}

// run runs one turn of the watch.
func (w *watch) run(own *pump.Scratch) (again bool) {
	ending := w.ending.Load()
	switch {
	case w.phase == over || w.s.failed:
		return false
	case ending != nil:
		w.finish(ending)
		return false
	case w.phase == creating:
		if ready, err := w.stateReady(); err != nil {
			w.finish(ended(err, w.s.api.cfg.Router.Elsewhere(w.rng)))
			return false
		} else if !ready || !w.s.send(w.created()) {
			return false
		}
		if w.phase = syncing; w.resync.batch == nil {
			w.goLive()
		}
	}
	if w.phase == opening {
		w.takeOpened()
	}
	switch {
	case w.phase == syncing:
		return w.sync()
	case w.phase != live:
		return false
	case w.interval > 0:
		return w.conflate(own)
	}
	w.s.crowd.add(w.inner)
	return false
}

// created returns the message that starts the watch. It has no revision if the client's
// position is of another history; the token is of that position. It has no token while the
// initial state is still to be sent: a client that resumed there would never receive it.
func (w *watch) created() *shardwatchv1.WatchResponse {
	c := &shardwatchv1.Created{
		Revision: int64(w.begin), ClusterId: w.cluster, Lineage: w.follows.lineage, Node: string(w.s.api.cfg.Self),
	}
	if !w.owesState() {
		c.ResumeToken = w.token(w.begin)
	}
	if w.in != w.follows {
		c.Revision = 0
	}
	if w.inner != nil {
		c.Age = ageMessage(w.inner.Age())
	}
	return &shardwatchv1.WatchResponse{WatchId: w.id, Detail: &shardwatchv1.WatchResponse_Created{Created: c}}
}

func (w *watch) token(at kv.Revision) []byte {
	return wire.ResumeToken(wire.Position{Cluster: w.in.cluster, Lineage: w.in.lineage, Range: w.rng, Revision: at})
}

// finish sends the end of the watch to the client, with the position to resume from.
func (w *watch) finish(e *shardwatchv1.Ended) {
	if at, ok := w.position(); ok {
		e.ResumeRevision = int64(at) + 1
		e.ResumeToken = w.token(at)
	}
	w.release()
	w.s.forget(w)
	w.s.send(&shardwatchv1.WatchResponse{WatchId: w.id, Detail: &shardwatchv1.WatchResponse_Ended{Ended: e}})
}

// ended returns the cause of a watch's end in terms of the API. If this node is the cause,
// elsewhere has the nodes to resume on.
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
		e.Reason, e.Foreign = shardwatchv1.EndReason_END_REASON_LINEAGE, lineage.Foreign
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
