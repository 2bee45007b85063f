package etcdwatch

import (
	"errors"

	"github.com/shardwatch/shardwatch/internal/edge/pump"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wait"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// A watch may begin before the oldest revision of the window: clientv3 resumes a
// watch that was quiet for a day at the revision of its creation. etcd serves it
// unless that revision is compacted, and so does a node: it sends the older events
// from etcd's log, see past, then the events of the window.

// fetched is the result of opening the window for a watch that catches up.
type fetched struct {
	reader *reader     // reads the window from the watch's next revision on
	before kv.Revision // without reader and err: the window's first revision
	err    error       // the reason why the watch must end
}

// catchUp sends the events that the window has evicted, within the bounds of a pass,
// and then opens the window. It reports whether to run again at once.
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
			return false // woken when more events arrive
		}
		for i := range batches {
			n, held := w.sendPast(own, &batches[i])
			if held {
				return false // woken when it may be sent
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

// sendPast sends a revision of the log, and returns its size. held reports that the
// revision must wait; see progress.hold.
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

// deliver passes f to the pump. It does not block.
func (w *watch) deliver(f *fetched) {
	w.fetched.Store(f)
	if w.over.Load() {
		w.forget()
	}
	w.task.Wake()
}

// rejoin opens the window from a revision on, or finds its first revision. It retries
// until the watch ends or its keys are no longer served.
func (w *watch) rejoin(from kv.Revision) {
	for {
		r, err := w.home(from)
		var compacted *kv.CompactedError
		switch {
		case err == nil:
			w.deliver(&fetched{reader: r})
			return
		case overtaken(err):
			w.deliver(&fetched{err: &kv.CompactedError{Requested: from, Floor: from}}) // its lineage has ended
			return
		case errors.As(err, &compacted) && compacted.Floor > from:
			w.deliver(&fetched{before: compacted.Floor})
			return
		case errors.As(err, new(*kv.NotServedError)):
			w.deliver(&fetched{err: err})
			return
		}
		w.s.of.cfg.Logger.Debug("watch waits for the window", "range", w.rng, "from", from, "error", err)
		if !wait.Sleep(w.s.ctx, fetchRetry) {
			return
		}
		if w.over.Load() {
			return
		}
	}
}

// forget releases the result of rejoin, if there is one.
func (w *watch) forget() {
	if f := w.fetched.Swap(nil); f != nil && f.reader != nil {
		f.reader.inner.Close()
	}
}
