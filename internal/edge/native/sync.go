package native

import (
	"errors"
	"math"
	"sync/atomic"
	"time"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/edge/syncbatch"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/ops/tally"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// The resume ladder. A watch that the window does not reach, at its beginning or
// because it was slow, joins a unit: what has changed since, or when no node
// knows that any more, all there is. Then it continues with the window
// behind the unit. When the window has moved on meanwhile, it falls again, but
// from a later position, and so on a smaller unit.
//
//	live ─fall─▶ syncing ─last chunk─▶ landing ─▶ live
//	                ▲                     │
//	                └────── fall ─────────┘

// climb is a watch's way through units. But for landed it is owned as the
// watch's phase is.
type climb struct {
	unit   *syncbatch.Batch // that it waits for, or is sent
	key    syncbatch.Key
	since  kv.Revision // everything up to it was sent when the watch fell
	least  kv.Revision // the first after which the window could continue then
	begun  bool        // the client knows that a unit is on its way
	part   int         // the next chunk
	landed atomic.Pointer[landed]
}

// landed is what has become of a landing. A watch that is released has the zero landed,
// which keeps a result that is late from taking its place.
type landed struct {
	inner *router.Watch
	err   error
}

// rung returns the unit that a watch needs which cannot continue from its position
// for this reason, if one helps. A history that has ended while the watch was
// running ends it: the client learns of the other one when it creates the watch
// again, from the same position.
func (w *watch) rung(err error) (syncbatch.Key, bool) {
	var compacted *kv.CompactedError
	var lineage *kv.LineageError
	switch {
	case !w.allowSync:
	case errors.As(err, &compacted):
		w.in = w.follows // if it was not known
		w.climb.least = max(w.at, w.climb.since, compacted.Floor-1)
		return w.delta(), true
	case errors.As(err, &lineage) && w.phase == creating:
		w.follows.lineage, w.climb.least = lineage.Current, 0
		return syncbatch.Key{Kind: shardwatchv1.SyncKind_SYNC_KIND_RESYNC}, true
	}
	return syncbatch.Key{}, false
}

// delta is the first rung below the window.
func (w *watch) delta() syncbatch.Key {
	kind := shardwatchv1.SyncKind_SYNC_KIND_DELTA
	if w.interval > 0 {
		kind = shardwatchv1.SyncKind_SYNC_KIND_CONFLATED
	}
	return syncbatch.Key{Kind: kind, Since: max(w.at, w.climb.since)}
}

// fall continues with a unit, or ends the watch, when the window has failed.
func (w *watch) fall(err error) (again bool) {
	w.climb.since, _ = w.position()
	key, ok := w.rung(err)
	if !ok {
		w.finish(ended(err, w.s.api.cfg.Router.Elsewhere(w.rng)))
		return false
	}
	w.latest.drop()
	w.inner.Close()
	w.inner = nil
	w.phase = syncing
	w.board(key)
	return w.sync()
}

// board has the watch wait for a unit.
func (w *watch) board(key syncbatch.Key) {
	key.Range, key.Lineage = w.rng, w.follows.lineage
	c := &w.climb
	c.key, c.begun, c.part = key, false, 0
	w.tally.Leave(max(w.at, c.since), time.Now())
	w.tally.Wait(key.Rung())
	c.unit = w.s.api.batches.Join(w, key, c.least, w.s.turns())
}

// leave takes the watch off its unit.
func (w *watch) leave() {
	if w.climb.unit != nil {
		w.s.api.batches.Leave(w.climb.unit, w, false)
		w.climb.unit = nil
	}
}

// reboard has the watch begin the unit anew.
func (w *watch) reboard(key syncbatch.Key) {
	w.leave()
	w.board(key)
}

// owes reports whether the watch has begun with a state that was not sent.
func (w *watch) owes() bool {
	return w.climb.unit != nil && w.climb.key.Kind == shardwatchv1.SyncKind_SYNC_KIND_STATE
}

// stateReady reports whether the watch may be said to be created: at once, or
// when the revision of the state that it begins with is known.
func (w *watch) stateReady() (bool, error) {
	if !w.owes() {
		return true, nil
	}
	body, state, err := w.s.api.batches.Result(w.climb.unit)
	var lineage *kv.LineageError
	if errors.As(err, &lineage) { // nothing was sent: any history will do
		w.follows.lineage = lineage.Current
		w.reboard(w.climb.key)
		return false, nil
	}
	if state != syncbatch.Ready || err != nil {
		return false, err
	}
	w.begin, w.follows.lineage = body.Revision, body.Lineage
	w.in = w.follows
	return true, nil
}

// sync sends the next chunk of the unit, if it is ready: the connection's others
// have their turn between two. It reports whether to run again at once.
func (w *watch) sync() (again bool) {
	c, units := &w.climb, w.s.api.batches
	body, state, err := units.Result(c.unit)
	if lineage := w.s.api.cfg.Router.History().Lineage; err == nil && lineage != w.follows.lineage {
		err = &kv.LineageError{Requested: w.follows.lineage, Current: lineage}
	}
	switch {
	case errors.As(err, new(*kv.CompactedError)): // the deletes are not known
		w.reboard(syncbatch.Key{Kind: shardwatchv1.SyncKind_SYNC_KIND_RESYNC})
		return true
	case err != nil:
		w.finish(ended(err, w.s.api.cfg.Router.Elsewhere(w.rng)))
		return false
	case state == syncbatch.Gone && w.owes():
		w.finish(ended(&kv.UnavailableError{Why: kv.NotReady, RetryAfter: kv.RetrySoon, Detail: "the state was released: it was not read for too long"}, nil))
		return false
	case state != syncbatch.Gone && state != syncbatch.Ready:
		return false
	case state == syncbatch.Gone, body.Revision < c.least: // it was not read for too long; it had begun before the watch fell
		w.reboard(c.key)
		return true
	}
	if !c.begun {
		c.begun = true
		w.tally.Begin(c.key.Rung())
		if !w.put(wire.WatchSync(w.id, wire.NewSyncPart(w.beginning(body)))) {
			return false
		}
	}
	part, gone := units.Take(c.unit, w, c.part)
	if part == nil {
		return gone // or woken with it
	}
	c.part++
	kind := int32(c.key.Kind)
	if part.Keys > 0 {
		m := wire.WatchSync(w.id, part.Encoded)
		units.Sent(kind, 0, part.Keys, m.Buffers.Len())
		if !w.put(m) {
			return false
		}
	}
	if !part.Last {
		return true
	}
	w.arrive(body, wire.Sync{Kind: kind, End: true, Revision: body.Revision})
	return !w.s.failed
}

// beginning is the first part of a unit.
func (w *watch) beginning(body *router.Body) wire.Sync {
	s := wire.Sync{Kind: int32(w.climb.key.Kind), Begin: true, Revision: body.Revision}
	if w.climb.key.Delta() {
		s.From = w.at
	}
	return s
}

// arrive sends the end of a unit, which moves the client's position, and opens
// what is behind it.
func (w *watch) arrive(body *router.Body, end wire.Sync) {
	c, units := &w.climb, w.s.api.batches
	units.Leave(c.unit, w, true)
	c.unit = nil
	w.at, w.begin, w.follows.lineage = body.Revision, body.Revision, body.Lineage
	w.in = w.follows
	c.since, c.least = 0, 0
	w.phase = landing
	if !w.put(wire.WatchSync(w.id, wire.NewSyncPart(end))) {
		return
	}
	units.Sent(end.Kind, 1, 0, 0)
	w.tally.Reached(w.at)
	w.latest.sentNow(w.interval)
	req := router.WatchRequest{Range: w.rng, From: w.at + 1, Lineage: w.in.lineage}
	w.s.opening.Go(func() { // it may wait for a relay
		inner, err := w.s.api.cfg.Router.Watch(w.s.ctx, req, w)
		if !c.landed.CompareAndSwap(nil, &landed{inner: inner, err: err}) && inner != nil {
			inner.Close() // the watch was released meanwhile
		}
		w.Wake()
	})
}

// land continues with the opened unit, if there is one.
func (w *watch) land() {
	l := w.climb.landed.Swap(nil)
	switch {
	case l == nil:
	case l.err == nil:
		w.inner = l.inner
		w.goLive()
	default:
		key, ok := w.rung(l.err)
		if !ok {
			w.finish(ended(l.err, w.s.api.cfg.Router.Elsewhere(w.rng)))
			return
		}
		w.phase = syncing
		w.board(key)
	}
}

// goLive continues with the window.
func (w *watch) goLive() {
	w.phase = live
	w.tally.Follow(w.inner)
	if w.interval > 0 {
		w.tally.Wait(tally.Conflated)
	}
}

// position returns the revision up to which everything was sent, in the history
// that lineage names; false when the watch has none.
func (w *watch) position() (kv.Revision, bool) {
	switch {
	case w.owes() || w.phase == creating && w.inner == nil && w.climb.unit == nil:
		return 0, false
	case w.inner == nil || w.latest.collecting():
		return max(w.at, w.climb.since), true
	}
	at, _ := w.inner.Progress()
	return max(at, w.at), true
}

// reached returns the revision that the watch lets its stream's progress come
// to. In the middle of a unit that is where the client is: it does not apply
// progress then.
func (w *watch) reached() kv.Revision {
	switch {
	case w.phase == live && !w.latest.collecting():
		return math.MaxInt64
	case w.owes() || w.in != w.follows:
		return 0
	case w.climb.begun && w.phase == syncing || w.latest.body != nil:
		return w.at
	}
	return max(w.at, w.climb.since)
}

// told says that the client was told of progress.
func (w *watch) told(revision kv.Revision) {
	if w.phase == live || w.phase == syncing || w.phase == landing {
		w.at = max(w.at, revision)
	}
}
