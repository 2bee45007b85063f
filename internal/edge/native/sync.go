package native

import (
	"errors"
	"math"
	"sync/atomic"
	"time"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/edge/syncbatch"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/ops/watchstats"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// Resync. A watch whose position the window has evicted joins a sync batch: a
// delta, or the whole state if no node can compute the delta. After the batch the
// watch continues with the window. If the window has evicted that revision
// meanwhile, the watch falls behind again, from a later position: the next batch
// is smaller.
//
//	live ─fall─▶ syncing ─last chunk─▶ opening ─▶ live
//	                ▲                     │
//	                └────── fall ─────────┘

// resync is the state of a watch that has fallen behind the window. The owner of
// watch.phase owns all fields except opened.
type resync struct {
	batch  *syncbatch.Batch // pending, or being sent
	key    syncbatch.Key
	since  kv.Revision // the watch had sent everything up to it when it fell behind
	least  kv.Revision // the window could continue after it at that time
	begun  bool        // the first part was sent
	part   int         // the next chunk
	opened atomic.Pointer[opened]
}

// opened is the result of opening the window after a sync batch. The zero opened
// marks a released watch, so that a late result is closed.
type opened struct {
	inner *reader
	err   error
}

// syncKey returns the sync batch that a watch needs after err; false: none helps.
// A change of lineage ends a running watch: the client learns the new
// lineage when it creates the watch again, from the same position.
func (w *watch) syncKey(err error) (syncbatch.Key, bool) {
	var compacted *kv.CompactedError
	var lineage *kv.LineageError
	switch {
	case !w.allowSync:
	case errors.As(err, &compacted):
		w.in = w.follows // in.lineage is 0 if the client named none
		w.resync.least = max(w.at, w.resync.since, compacted.Floor-1)
		return w.delta(), true
	case errors.As(err, &lineage) && w.phase == creating:
		w.follows.lineage, w.resync.least = lineage.Current, 0
		return syncbatch.Key{Kind: shardwatchv1.SyncKind_SYNC_KIND_RESYNC}, true
	}
	return syncbatch.Key{}, false
}

// delta returns the key of the batch to try first.
func (w *watch) delta() syncbatch.Key {
	kind := shardwatchv1.SyncKind_SYNC_KIND_DELTA
	if w.interval > 0 {
		kind = shardwatchv1.SyncKind_SYNC_KIND_CONFLATED
	}
	return syncbatch.Key{Kind: kind, Since: max(w.at, w.resync.since)}
}

// fall continues the watch with a unit, or ends it, after the window has failed.
func (w *watch) fall(err error) (again bool) {
	w.resync.since, _ = w.position()
	w.at = max(w.at, w.inner.at)
	key, ok := w.syncKey(err)
	if !ok {
		w.finish(ended(err, w.s.api.cfg.Router.Elsewhere(w.rng)))
		return false
	}
	return w.fallBack(key)
}

// fallBack continues the watch with a sync batch instead of the window.
func (w *watch) fallBack(key syncbatch.Key) (again bool) {
	w.dropLatest()
	w.close()
	w.phase = syncing
	w.join(key)
	return w.sync()
}

// join makes the watch wait for a sync batch.
func (w *watch) join(key syncbatch.Key) {
	key.Range, key.Lineage = w.rng, w.follows.lineage
	c := &w.resync
	c.key, c.begun, c.part = key, false, 0
	w.stats.Leave(max(w.at, c.since), time.Now())
	w.stats.Wait(key.Mode())
	c.batch = w.s.api.batches.Join(w, key, c.least, w.s.turns())
}

// leave removes the watch from its sync batch.
func (w *watch) leave() {
	if w.resync.batch != nil {
		w.s.api.batches.Leave(w.resync.batch, w, false)
		w.resync.batch = nil
	}
}

// rejoin restarts the sync batch.
func (w *watch) rejoin(key syncbatch.Key) {
	w.leave()
	w.join(key)
}

// owesState reports whether the initial state is still to be sent.
func (w *watch) owesState() bool {
	return w.resync.batch != nil && w.resync.key.Kind == shardwatchv1.SyncKind_SYNC_KIND_STATE
}

// stateReady reports whether to confirm the watch: a watch with an initial state is
// confirmed once the revision of that state is known.
func (w *watch) stateReady() (bool, error) {
	if !w.owesState() {
		return true, nil
	}
	body, state, err := w.s.api.batches.Result(w.resync.batch)
	var lineage *kv.LineageError
	if errors.As(err, &lineage) { // nothing was sent: accept the current lineage
		w.follows.lineage = lineage.Current
		w.rejoin(w.resync.key)
		return false, nil
	}
	if state != syncbatch.Ready || err != nil {
		return false, err
	}
	w.begin, w.follows.lineage = body.Revision, body.Lineage
	w.in = w.follows
	return true, nil
}

// sync sends the next chunk of the sync batch, if it is ready. Other watches of the
// connection run between two chunks. It reports whether to run again at once.
func (w *watch) sync() (again bool) {
	c, units := &w.resync, w.s.api.batches
	body, state, err := units.Result(c.batch)
	if lineage := w.s.api.cfg.Router.History().Lineage; err == nil && lineage != w.follows.lineage {
		err = &kv.LineageError{Requested: w.follows.lineage, Current: lineage}
	}
	switch {
	case errors.As(err, new(*kv.CompactedError)): // the deleted keys are unknown
		w.rejoin(syncbatch.Key{Kind: shardwatchv1.SyncKind_SYNC_KIND_RESYNC})
		return true
	case err != nil:
		w.finish(ended(err, w.s.api.cfg.Router.Elsewhere(w.rng)))
		return false
	case state == syncbatch.Gone && w.owesState():
		w.finish(ended(&kv.UnavailableError{Why: kv.NotReady, RetryAfter: kv.RetrySoon, Detail: "the state was released: it was not read for too long"}, nil))
		return false
	case state != syncbatch.Gone && state != syncbatch.Ready:
		return false
	case state == syncbatch.Gone, body.Revision < c.least: // released because the client did not read; computed before the watch fell behind
		w.rejoin(c.key)
		return true
	}
	if !c.begun {
		c.begun = true
		w.stats.Begin(c.key.Mode())
		if !w.put(wire.WatchSync(w.id, wire.NewSyncPart(w.beginning(body)))) {
			return false
		}
	}
	part, gone := units.Take(c.batch, w, c.part)
	if part == nil {
		return gone // else woken once it is ready
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

// beginning returns the first part of a sync batch.
func (w *watch) beginning(body *router.Body) wire.Sync {
	s := wire.Sync{Kind: int32(w.resync.key.Kind), Begin: true, Revision: body.Revision}
	if w.resync.key.Delta() {
		s.From = w.at
	}
	return s
}

// arrive sends the end of a sync batch, which moves the client's position, and opens
// the window after it.
func (w *watch) arrive(body *router.Body, end wire.Sync) {
	c, units := &w.resync, w.s.api.batches
	units.Leave(c.batch, w, true)
	c.batch = nil
	w.at, w.begin, w.follows.lineage = body.Revision, body.Revision, body.Lineage
	w.in = w.follows
	c.since, c.least = 0, 0
	w.phase = opening
	if !w.put(wire.WatchSync(w.id, wire.NewSyncPart(end))) {
		return
	}
	units.Sent(end.Kind, 1, 0, 0)
	w.stats.Reached(w.at)
	w.latest.sentNow(w.interval)
	from, lineage := w.at+1, w.in.lineage
	w.s.opening.Go(func() { // may wait for a relay
		inner, err := w.openReader(w.s.ctx, from, lineage)
		if !c.opened.CompareAndSwap(nil, &opened{inner: inner, err: err}) && inner != nil {
			inner.Close() // the watch was released meanwhile
		}
		w.Wake()
	})
}

// takeOpened continues with the opened window, if the opening has finished.
func (w *watch) takeOpened() {
	l := w.resync.opened.Swap(nil)
	switch {
	case l == nil:
	case l.err == nil:
		w.inner, w.place = l.inner, 0 // not the place in its previous reader
		w.goLive()
	default:
		key, ok := w.syncKey(l.err)
		if !ok {
			w.finish(ended(l.err, w.s.api.cfg.Router.Elsewhere(w.rng)))
			return
		}
		w.phase = syncing
		w.join(key)
	}
}

// goLive continues with the window.
func (w *watch) goLive() {
	w.phase = live
	w.inner.live = true
	w.inner.readerKind = readerKind{rng: w.rng, prev: w.prev, follows: w.follows}
	w.stats.Share(&w.inner.sent, 0)
	w.stats.Follow(w.inner.Watch)
	if w.interval > 0 {
		w.stats.Wait(watchstats.Conflated)
	}
}

// position returns the last revision sent, in the lineage of the watch; false if
// none was sent.
func (w *watch) position() (kv.Revision, bool) {
	switch {
	case w.owesState() || w.phase == creating && w.inner == nil && w.resync.batch == nil:
		return 0, false
	case w.inner == nil || w.latest.collecting():
		return max(w.at, w.resync.since), true
	}
	at, _ := w.inner.Progress()
	return max(at, w.at), true
}

// reached returns the highest progress revision that the stream may send. Within a
// sync batch it is the client's position, since a client ignores progress there.
func (w *watch) reached() kv.Revision {
	switch {
	case w.phase == live && !w.latest.collecting():
		return math.MaxInt64
	case w.owesState() || w.in != w.follows:
		return 0
	case w.resync.begun && w.phase == syncing || w.latest.body != nil:
		return w.at
	}
	return max(w.at, w.resync.since)
}

// told records that progress was sent to the client.
func (w *watch) told(revision kv.Revision) {
	if w.phase == live || w.phase == syncing || w.phase == opening {
		w.at = max(w.at, revision)
	}
}
