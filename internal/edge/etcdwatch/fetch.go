package etcdwatch

import (
	"errors"

	"github.com/shardwatch/shardwatch/internal/edge/pump"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wait"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// A watch may begin before the oldest revision of the window: clientv3
// resumes one that was quiet for a day at the revision of its creation. etcd would continue
// with it as long as nothing is compacted, and so does a node: it sends the events
// before the window from etcd's log, see past, then those of the window.

// fetched is the result for which a watch without a window has waited.
type fetched struct {
	reader *reader     // of the window, from the watch's next revision on
	before kv.Revision // else, without err: the window's first revision
	err    error       // instead: why the watch must end
}

// catchUp sends events that the window has evicted, up to a pass's worth, and
// then looks for the window. It reports whether there is more to do at once.
func (w *watch) catchUp(own *pump.Scratch) (again bool) {
	if f := w.fetched.Swap(nil); f != nil {
		w.fetching = false
		var compacted *kv.CompactedError
		switch {
		case errors.As(f.err, &compacted):
			w.finish(w.compacted(compacted.Floor))
			return false
		case f.err != nil:
			w.finish(w.unserved(f.err))
			return false
		case f.reader != nil:
			w.reader = f.reader
			w.follow()
			w.s.of.past.caughtUp(w)
			w.s.progress.caughtUp()
			return false
		}
		w.before = f.before
	}
	if w.fetching {
		return false
	}
	for sent := 0; w.next < w.before && !w.s.failed; {
		if sent >= passBytes {
			return true
		}
		batches, next, ok := w.s.of.past.take(w)
		if !ok {
			return false // woken when there is more
		}
		for i := range batches {
			n, held := w.sendPast(own, &batches[i])
			if held {
				return false // woken when it may go
			}
			sent += n
		}
		w.next = next
	}
	if !w.s.failed {
		w.fetching = true
		from := w.next
		w.s.spawn(func() { w.rejoin(from) })
	}
	return false
}

// sendPast sends a revision of the log, and returns its size; held says that it must
// wait.
func (w *watch) sendPast(own *pump.Scratch, b *kv.Batch) (size int, held bool) {
	if w.next = b.Revision; w.s.progress.holds(b.Revision) {
		return 0, true
	}
	events := make([]*kv.Event, len(b.Events))
	for i := range b.Events {
		events[i] = &b.Events[i]
	}
	if kept := w.filter(events); len(kept) > 0 {
		w.quiet = false
		own.Trace.Sent(b.Revision, 1)
		size = w.s.events(own, b.Revision, &w.readerKind, b.Revision != w.bare, kept, func(m *wire.Shared) error {
			w.stats.Sent(m.Size() + wire.RecipientSize(w.id))
			return w.s.tasks.SendShared(m, w.id)
		})
	}
	w.stats.Reached(b.Revision)
	w.next++
	return size, false
}

// deliver has the pump take f. It does not block.
func (w *watch) deliver(f *fetched) {
	w.fetched.Store(f)
	if w.over.Load() {
		w.forget()
	}
	w.task.Wake()
}

// rejoin looks for the window from a revision on, or for where it begins. It tries
// for as long as the watch is wanted and its keys are served.
func (w *watch) rejoin(from kv.Revision) {
	for {
		r, err := w.home(from)
		var compacted *kv.CompactedError
		switch {
		case err == nil:
			w.deliver(&fetched{reader: r})
			return
		case overtaken(err):
			w.deliver(&fetched{err: &kv.CompactedError{Requested: from, Floor: from}}) // with its lineage
			return
		case errors.As(err, &compacted) && compacted.Floor > from:
			w.deliver(&fetched{before: compacted.Floor})
			return
		case errors.As(err, new(*kv.NotServedError)):
			w.deliver(&fetched{err: err})
			return
		}
		w.s.of.cfg.Logger.Debug("a watch waits for the window", "range", w.rng, "from", from, "error", err)
		if !wait.Sleep(w.s.ctx, fetchRetry) {
			return
		}
		if w.over.Load() {
			return
		}
	}
}

// forget gives back the result that the watch has waited for, or waits for.
func (w *watch) forget() {
	if f := w.fetched.Swap(nil); f != nil && f.reader != nil {
		f.reader.inner.Close()
	}
}
