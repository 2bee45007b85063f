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
// same range: an event is read once for all of them, without access to a watch. It
// is the native API's counterpart of the reader of package etcdwatch.
//
// Each watch has a reader of its own when it opens the window. When a reader has nothing
// more to send, its watches join another reader of the same kind, if that is at the same
// revision: both have sent everything up to it, and nothing after it. A conflated watch
// keeps its own.
type reader struct {
	*router.Watch // set before a watch owns the reader

	s         *stream
	conflated *watch // the one watch, if that is conflated; nil
	round     uint64 // guarded by the crowd's mu: of the crowd, when the reader was added last

	// Owned by the pump. Those that each event needs come first.
	live    bool                // its watches are: it has one at most before
	at      kv.Revision         // of the last event that was sent; 0: none
	ids     []int64             // of watches
	sent    watchstats.Messages // for operators
	watches []*watch
	readerKind
	to    wire.Recipient // all of them
	stale bool           // to is not that of ids
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

// remove takes a watch off the list. The last one closes the reader.
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

// fall continues each watch with a unit, or ends it, when the window has failed.
// Everything that was read must be sent.
func (r *reader) fall(err error) {
	for _, w := range slices.Clone(r.watches) {
		if w.fall(err) {
			w.task.Wake()
		}
	}
}

// join moves the reader's watches to the other reader of their kind, if both are at the same
// revision. Otherwise this reader becomes the other one: of two readers, the second one to
// reach a revision finds the first. Everything that was read must have been sent.
func (r *reader) join() {
	if len(r.watches) == 0 { // it has closed its window
		return
	}
	c := &r.s.crowd
	if c.readers == nil && !r.s.several.Load() { // it is offered at its next turn after another watch was created
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

// recipients returns the reader's watches as a message names them.
func (r *reader) recipients() wire.Recipient {
	if r.stale {
		r.to, r.stale = wire.NewRecipients(r.ids), false
	}
	return r.to
}
