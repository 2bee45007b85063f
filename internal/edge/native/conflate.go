package native

import (
	"fmt"
	"time"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/edge/pump"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// Bounds of CreateWatch.conflate.
const (
	minConflate = 10 * time.Millisecond
	maxConflate = time.Hour
)

// conflation returns the requested minimum interval between two units; 0: the
// watch is not conflated.
func conflation(r *shardwatchv1.CreateWatch) (time.Duration, error) {
	d := r.GetConflate()
	wrong := func(format string, args ...any) (time.Duration, error) {
		return 0, &kv.InvalidError{Field: "conflate", Reason: fmt.Sprintf(format, args...)}
	}
	switch {
	case d == nil:
		return 0, nil
	case !d.IsValid() || d.AsDuration() < minConflate || d.AsDuration() > maxConflate:
		return wrong("must lie between %v and %v", minConflate, maxConflate)
	case !r.GetAllowSync():
		return wrong("needs allow_sync: the watch is sent units")
	case r.GetPrevKv():
		return wrong("excludes prev_kv: between two units a key has had many values")
	}
	return d.AsDuration(), nil
}

// latest collects the next unit of a conflated watch. While the watch waits for the interval to
// end, latest is empty: the watch is only a position in the window, and like any other watch it
// joins a sync batch when the window evicts its position.
type latest struct {
	timer    *time.Timer
	next     time.Time               // the earliest time of the next unit
	keys     map[string]*kv.KeyValue // being collected; a nil value is a deleted key
	revision kv.Revision             // keys are collected up to this revision
	upTo     kv.Revision             // all shards must reach it: the newest revision when collecting began
	body     *router.Body            // being sent
	place    router.Place
	// size is the memory of keys, without the values, which the window shares. taken of it are the
	// budget's. body takes less.
	size, taken int64
}

// collectEvents is the number of events examined before the connection's other
// watches run.
const collectEvents = 10_000

const (
	// keyCost is the memory of a collected key in addition to its bytes.
	keyCost = 96
	// freeCollected is the size up to which a unit takes nothing from the budget, and collectStep the number
	// of bytes that it takes at a time.
	freeCollected = 4 << 10
	collectStep   = 64 << 10
)

// collecting reports whether events were read from the window that the client has not received.
func (l *latest) collecting() bool { return l.keys != nil || l.body != nil }

// dropLatest discards the collected keys, and returns their bytes to the budget.
func (w *watch) dropLatest() {
	l := &w.latest
	if l.taken > 0 {
		w.s.api.cfg.Budget.Give(w.s.holder, budget.CatchUps, l.taken)
	}
	l.keys, l.body, l.size, l.taken = nil, nil, 0, 0
}

// collect adds an event to the next unit. It reports whether the budget has the bytes. Units may fill half of the
// share: clients that do not read hold them for any time, and the watches of etcd's API use the other half.
func (w *watch) collect(e *kv.Event) bool {
	l, key := &w.latest, string(e.KV.Key())
	item, n := e.KV, len(l.keys)
	if e.Type == kv.Delete {
		item = nil
	}
	if l.keys[key] = item; len(l.keys) > n {
		l.size += int64(keyCost + len(key))
	}
	b := w.s.api.cfg.Budget
	for l.size > max(l.taken, freeCollected) {
		if b.Held(budget.CatchUps)+collectStep > b.Share(budget.CatchUps)/2 || !b.Grow(w.s.holder, budget.CatchUps, collectStep, 0) {
			return false
		}
		l.taken += collectStep
	}
	return true
}

// sentNow records that a unit was sent, and starts the next interval.
func (l *latest) sentNow(interval time.Duration) {
	if interval > 0 {
		l.next = time.Now().Add(interval)
	}
}

// conflate sends the latest value of each key that has changed, once per
// interval. It reports whether to run again at once.
func (w *watch) conflate(own *pump.Scratch) (again bool) {
	l := &w.latest
	if l.body != nil {
		return w.sendLatest()
	}
	if l.keys == nil {
		if wait := time.Until(l.next); wait > 0 {
			if l.timer == nil {
				l.timer = time.AfterFunc(wait, w.Wake)
			} else {
				l.timer.Reset(wait)
			}
			return false
		}
		w.resync.since, _ = w.position()
		l.keys, l.revision, l.upTo = make(map[string]*kv.KeyValue), 0, w.inner.Newest()
	}
	looked := 0
	defer func() { own.Read(looked) }()
	for looked < collectEvents {
		revision, events, err := w.inner.Next(own.Events[:0])
		if err != nil {
			return w.fall(err)
		}
		for _, e := range events {
			if !w.collect(e) { // a delta, of which few exist at a time, has the same content
				clear(events)
				w.resync.least = max(w.at, w.resync.since)
				return w.fallBack(w.delta())
			}
		}
		looked += 1 + len(events) + w.inner.Skipped()
		clear(events)
		if revision == 0 {
			if !w.inner.WakeAt(l.upTo) { // a shard lags: WakeAt has asked it for its progress
				return false
			}
			revision, _ = w.inner.Progress()
		}
		if l.revision = max(l.revision, revision); revision >= l.upTo {
			return w.collected()
		}
	}
	return true
}

// collected sends the collected keys, if there are any.
func (w *watch) collected() (again bool) {
	l := &w.latest
	if len(l.keys) == 0 {
		w.dropLatest()
		return false
	}
	l.body, l.place = bodyOf(w.in.lineage, l.revision, l.keys), router.Place{}
	l.keys = nil
	return w.sendLatest()
}

// sendLatest sends the next part of a unit.
func (w *watch) sendLatest() (again bool) {
	l := &w.latest
	chunk, next := l.body.Chunk(l.place, w.s.api.cfg.FragmentBytes)
	part := wire.Sync{
		Kind:     int32(shardwatchv1.SyncKind_SYNC_KIND_CONFLATED),
		Begin:    l.place == router.Place{},
		End:      l.body.End(next),
		Revision: l.body.Revision, KVs: chunk.KVs, Deleted: chunk.Deleted,
	}
	if part.Begin {
		part.From = w.at
	}
	l.place = next
	units := 0
	if part.End {
		w.at, units = part.Revision, 1
		w.dropLatest()
		l.sentNow(w.interval)
	}
	m := wire.WatchSync(w.id, wire.NewSyncPart(part))
	w.s.api.batches.Sent(part.Kind, units, len(chunk.KVs)+len(chunk.Deleted), m.Buffers.Len())
	return w.put(m) // more may follow, now or after the interval
}

// bodyOf returns the unit of one watch.
func bodyOf(lineage uint64, revision kv.Revision, latest map[string]*kv.KeyValue) *router.Body {
	var changed []*kv.KeyValue
	var deleted []string
	for key, item := range latest {
		if item == nil {
			deleted = append(deleted, key)
		} else {
			changed = append(changed, item)
		}
	}
	return router.NewBody(lineage, revision, changed, deleted)
}
