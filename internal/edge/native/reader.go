package native

import (
	"context"
	"slices"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/ops/watchstats"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// reader reads the window for watches of a stream that are at the same revision of the
// same range. An event is read once for all of them, without access to any watch.
// It is the native API's counterpart of the reader in package etcdwatch.
//
// Each watch opens the window with its own reader. Once a reader has sent everything, its
// watches join another reader of the same kind that is at the same revision: both have sent
// everything up to it, and nothing after it. A conflated watch keeps its own reader.
type reader struct {
	*router.Watch // set before a watch owns the reader

	s         *stream
	conflated *watch // the reader's only watch, if it is conflated; else nil
	round     uint64 // guarded by the crowd's mu; crowd.round when the reader was added last

	// Owned by the pump. The fields used for each event come first.
	live    bool                // its watches are live; before, it has at most one
	at      kv.Revision         // of the last sent event; 0: none
	ids     []int64             // of watches
	sent    watchstats.Messages // for operators
	watches []*watch
	readerKind
	to    wire.Recipient // all watches
	stale bool           // to does not match ids
}

// readerKind identifies the watches that share a reader.
type readerKind struct {
	rng     kv.Range
	prev    bool
	follows history
}

// openReader opens the window for the watch. It fails as router.Watch does.
func (w *watch) openReader(ctx context.Context, from kv.Revision, lineage uint64) (*reader, error) {
	r := &reader{s: w.s, watches: []*watch{w}, ids: []int64{w.id}}
	if w.interval > 0 {
		r.conflated = w
	}
	var err error
	r.Watch, err = w.s.api.cfg.Router.Watch(ctx, router.WatchRequest{Range: w.rng, From: from, Lineage: lineage}, r)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Wake implements cache.Waker.
func (r *reader) Wake() {
	if r.conflated != nil {
		r.conflated.task.Wake()
	} else {
		r.s.crowd.add(r)
	}
}

// remove removes a watch. The reader closes with its last watch.
func (r *reader) remove(w *watch) {
	last := len(r.watches) - 1
	if i := w.place; i <= last && r.watches[i] == w {
		r.watches[i], r.ids[i] = r.watches[last], r.ids[last]
		r.watches[i].place = i
		r.watches[last] = nil
		r.watches, r.ids, r.stale = r.watches[:last], r.ids[:last], true
	}
	if n := len(r.watches); n > 0 {
		r.Serves(n)
		return
	}
	r.Close()
	if r.s.crowd.readers[r.readerKind] == r {
		delete(r.s.crowd.readers, r.readerKind)
	}
}

// fall continues each watch with a unit, or ends it, after the window has failed.
// All events that were read must have been sent.
func (r *reader) fall(err error) {
	for _, w := range slices.Clone(r.watches) {
		if w.fall(err) {
			w.task.Wake()
		}
	}
}

// join merges the reader into the offered reader of its kind, if both are at the same
// revision. Otherwise this reader is offered in its place: of two readers, the second one to
// reach a revision finds the first. All events that were read must have been sent.
func (r *reader) join() {
	if len(r.watches) == 0 { // the reader is closed
		return
	}
	c := &r.s.crowd
	if c.readers == nil && !r.s.several.Load() { // it is offered in a later turn, once there is another watch
		return
	}
	reached, _ := r.Progress()
	other := c.readers[r.readerKind]
	if other == r {
		return
	}
	if other != nil {
		if at, _ := other.Progress(); at == reached {
			r.mergeInto(other)
			return
		}
	}
	if c.readers == nil {
		c.readers = make(map[readerKind]*reader)
	}
	c.readers[r.readerKind] = r
}

func (r *reader) mergeInto(other *reader) {
	for _, w := range r.watches {
		w.at = max(w.at, r.at)
		w.inner, w.place = other, len(other.watches)
		other.watches, other.ids = append(other.watches, w), append(other.ids, w.id)
		w.stats.Share(&other.sent, 0)
		w.stats.Follow(other.Watch)
	}
	other.stale = true
	other.Serves(len(other.watches))
	r.watches, r.ids = nil, nil
	r.Close()
}

// recipients returns the reader's watches in the form for messages.
func (r *reader) recipients() wire.Recipient {
	if r.stale {
		r.to, r.stale = wire.NewRecipients(r.ids), false
	}
	return r.to
}
