package etcdwatch

import (
	"errors"
	"slices"
	"time"

	"github.com/shardwatch/shardwatch/internal/edge/pump"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/ops/watchstats"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// reader reads the window for watches of a stream that are at the same revision of the
// same range. An event is read, filtered and encoded once for all of them, and a delivery
// accesses only the IDs of the watches: with many watches, memory access is most of the
// cost of a delivery.
//
// Each watch that reaches the window has its own reader. Once a reader has sent everything,
// its watches join another reader of the same kind that is at the same revision: both have
// sent everything up to it, and nothing after it.
type reader struct {
	s     *stream
	task  pump.Task
	inner *router.Watch // set before the task starts

	// Owned by the pump.
	readerKind
	begun   bool
	bare    kv.Revision         // events of this revision have no previous values
	held    held                // read from inner, and not to be sent yet
	watches []*watch            // all live
	ids     []int64             // of watches
	left    uint64              // s.left at the last check of watches; see leavers
	sends   uint64              // number of times that events were sent
	sent    watchstats.Messages // for operators
}

// readerKind has the properties that all watches of a reader share.
type readerKind struct {
	rng            kv.Range
	lineage        uint64
	prev, fragment bool
	noPut          bool
	noDelete       bool
}

// held is a revision that must wait; see progress.hold. The zero held is empty.
type held struct {
	revision kv.Revision
	events   []*kv.Event
}

// newReader returns a reader for w. Open it before use.
func newReader(w *watch) *reader {
	r := &reader{s: w.s, readerKind: w.readerKind, bare: w.bare, watches: []*watch{w}, ids: []int64{w.id}}
	r.task.Init(w.s.tasks, r.run)
	return r
}

// open opens the window from a revision on. It waits up to homeLook for shards without a source, and
// fails as router.Watch does.
func (r *reader) open(from kv.Revision) (err error) {
	r.inner, err = r.s.of.cfg.Router.Watch(r.s.ctx, router.WatchRequest{
		Range: r.rng, From: from, Lineage: r.lineage, Until: time.Now().Add(homeLook),
	}, r)
	return err
}

// Wake implements cache.Waker.
func (r *reader) Wake() { r.task.Wake() }

// begin starts the reader of a live watch.
func (r *reader) begin() {
	if !r.begun {
		r.begun = true
		r.lineage = r.inner.Lineage()
		r.task.Start()
	}
}

// close releases the window.
func (r *reader) close() {
	r.inner.Close()
	if r.s.readers[r.readerKind] == r {
		delete(r.s.readers, r.readerKind)
	}
}

// giveUp closes the reader and drops its watches. A pending wake-up may cause another turn, which
// finds no watches and so does not offer the reader to others.
func (r *reader) giveUp() {
	r.close()
	r.watches, r.ids = nil, nil
}

// remove removes a watch. The reader closes with its last watch.
func (r *reader) remove(w *watch) {
	last := len(r.watches) - 1
	if i := w.place; i <= last && r.watches[i] == w {
		r.watches[i], r.ids[i] = r.watches[last], r.ids[last]
		r.watches[i].place = i
		r.watches[last] = nil
		if r.watches, r.ids = r.watches[:last], r.ids[:last]; last == 0 {
			r.close()
		} else {
			r.inner.Serves(last)
		}
	}
}

// leavers removes the watches that are ending or cancelled.
func (r *reader) leavers() {
	at := r.s.left.Load()
	if r.left == at {
		return
	}
	r.left = at
	for _, w := range slices.Clone(r.watches) {
		if w.cancelled.Load() || w.ending.Load() != nil {
			r.remove(w)
		}
	}
}

// join merges the reader into the offered reader of its kind, if both are at the same
// revision. Otherwise this reader is offered in its place: of two readers, the second one to
// reach a revision finds the first. Watches that request fragments do not join: the fragments of
// a response must be consecutive on the stream (clientv3/watch.go joins consecutive ones).
func (r *reader) join() {
	reached, other := r.reached(), r.s.readers[r.readerKind]
	if r.fragment || r.bare > reached || other == r {
		return
	}
	if other == nil || other.reached() != reached {
		r.s.offer(r)
		return
	}
	for _, w := range r.watches {
		w.quiet = w.quiet && w.sends == r.sends
		w.reader, w.sends, w.place = other, other.sends, len(other.watches)
		other.watches, other.ids = append(other.watches, w), append(other.ids, w.id)
		w.stats.Share(&other.sent, wire.RecipientSize(w.id))
		w.stats.Follow(other.inner)
	}
	other.left = min(other.left, r.left)
	other.inner.Serves(len(other.watches))
	r.watches, r.ids = nil, nil
	r.inner.Close()
}

// offer lets other readers merge into r. A stream with a single watch needs no map: the reader is
// offered when it is next idle after another watch was created.
func (s *stream) offer(r *reader) {
	if s.readers == nil {
		if !s.several.Load() {
			return
		}
		s.readers = make(map[readerKind]*reader)
	}
	s.readers[r.readerKind] = r
}

// run runs one turn of the reader.
func (r *reader) run(own *pump.Scratch) (again bool) {
	r.leavers()
	if len(r.watches) == 0 || r.s.failed {
		return false
	}
	if h := r.held; h.revision > 0 {
		if r.s.progress.holds(h.revision) {
			return false
		}
		r.held = held{}
		r.send(own, h.revision, h.events)
	}
	return r.events(own)
}

// events sends pending revisions, within the bounds of a pass. Small revisions share a message, as
// in etcd when a watch catches up (mvcc/watchable_store.go, syncWatchers). No revision is split.
func (r *reader) events(own *pump.Scratch) (again bool) {
	ready, last, size := own.Events[:0], kv.Revision(0), 0 // read, and not sent yet
	sent, skipped := 0, 0
	defer func() { own.Read(skipped) }()
	send := func() {
		if last > 0 {
			sent += r.send(own, last, ready)
			clear(ready)
			ready, last, size = ready[:0], 0, 0
		}
	}
	for n := 0; sent < passBytes && n < passRevisions && skipped < passSkipped && !r.s.failed; n++ {
		revision, events, err := r.inner.Next(ready)
		skipped += r.inner.Skipped()
		if cap(events) > cap(own.Events) && cap(events) <= 4096 {
			own.Events = events
		}
		if err != nil || revision == 0 {
			send()
			return r.idle(err)
		}
		kept := r.filter(events[len(ready):])
		if len(kept) == 0 {
			continue
		}
		if r.s.progress.holds(revision) {
			r.held = held{revision: revision, events: slices.Clone(kept)}
			clear(kept)
			send()
			return false // woken when it may be sent
		}
		more := 0
		for _, e := range kept {
			more += kv.EventSize(e, r.prev)
		}
		if size+more > messageBytes {
			send()
		}
		ready = append(ready, kept...) // in place, unless send has emptied ready
		if last, size = revision, size+more; revision == r.bare {
			send() // alone, because it has no previous values
		}
	}
	send()
	return !r.s.failed
}

// idle ends a turn without pending events, before more batches are examined, or after an error of the
// window. It reports whether to run again at once.
func (r *reader) idle(err error) (again bool) {
	switch {
	case r.s.failed:
	case err != nil:
		r.leave(err)
	case !r.inner.Pending(): // else the window has woken the task
		r.join()
	}
	return false
}

// reached returns the revision up to which everything is sent.
func (r *reader) reached() kv.Revision {
	if r.held.revision > 0 {
		return r.held.revision - 1
	}
	at, _ := r.inner.Progress()
	return at
}

// filter returns the events that pass the filters, in the same slice.
func (k *readerKind) filter(events []*kv.Event) []*kv.Event {
	if !k.noPut && !k.noDelete {
		return events
	}
	return slices.DeleteFunc(events, func(e *kv.Event) bool {
		return e.Type == kv.Put && k.noPut || e.Type == kv.Delete && k.noDelete
	})
}

// send sends events up to revision to all watches, and returns their size.
// etcd splits its messages only for clients that request it (v3rpc/watch.go).
func (r *reader) send(own *pump.Scratch, revision kv.Revision, events []*kv.Event) (size int) {
	r.sends++
	own.Trace.Sent(revision, len(r.ids))
	return r.s.events(own, revision, &r.readerKind, revision != r.bare, events, func(m *wire.Shared) error {
		r.sent.Sent(m.Size())
		return r.s.tasks.SendShared(m, r.ids...)
	})
}

// leave handles the error err of the window. Watches below the window get the missed events from
// etcd's log. If the lineage has ended, its watches end as compacted. If the cluster no longer serves the
// keys, only these watches end. Otherwise the stream ends, and the client resumes on another node.
func (r *reader) leave(err error) {
	at := r.reached()
	var compacted *kv.CompactedError
	switch watches := slices.Clone(r.watches); {
	case errors.As(err, &compacted):
		r.giveUp()
		for _, w := range watches {
			w.reader, w.next, w.before = nil, max(w.next, at+1), compacted.Floor
			w.stats.Leave(w.next-1, time.Now())
			w.stats.Begin(watchstats.Log)
			w.task.Wake()
		}
	case overtaken(err):
		for _, w := range watches {
			w.finish(w.compacted(at + 1))
		}
	case errors.As(err, new(*kv.NotServedError)):
		for _, w := range watches {
			w.finish(w.unserved(err))
		}
	default:
		r.s.fail(wire.Status(err))
	}
}
