package cache

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// ErrRetired reports that the cache no longer serves its range: the shard was
// split or moved, or the node stops. The position remains valid: the router
// provides another watcher from it.
var ErrRetired = errors.New("the shard is no longer served here")

// Waker is called when a watcher has events or an error to read, or has reached
// an awaited revision. Wake must not block and must not call back into the cache.
type Waker interface{ Wake() }

// Watcher is a position in a cache's window. One goroutine at a time may use
// it; Close may be called from any.
//
// A watcher is active or idle. While it is active, its reader owns the
// position. While it is idle, it has returned all matching batches of the cache,
// and the writer moves it straight to the next batch that touches its range,
// makes it active and calls Wake; see staysIdle for the race between the two.
// So an idle watcher never falls behind the floor, and batches outside its
// range cost nothing.
type Watcher struct {
	c *Cache
	// state is the position (sequence number of the next batch to look at)
	// shifted left by one, and the idle bit.
	state atomic.Uint64
	// The waker is called when pending reaches deferral; 0: with the first batch. pending
	// counts the bytes of the batches since the watcher became active.
	deferral, pending int64 // guarded by c.wakeups.mu

	from  kv.Revision // nothing below it is delivered; owned by the reader
	r     kv.Range
	waker Waker

	entry   *watchers // guarded by c.wakeups.mu; nil once closed
	waits   *waiter   // guarded by c.wakeups.mu; see WakeAt
	place   int32     // guarded by c.wakeups.mu; in entry's list
	watches int       // guarded by c.wakeups.mu; its count in the status, see Serves
	skipped int32     // owned by the reader; see Skipped
	single  bool
}

const idleBit = 1

// maxSkipped bounds the batches outside the range that one call of Next examines: some 0.1 ms.
const maxSkipped = 1 << 10

// Watch returns a watcher of r from revision from on, which may lie in the
// future. r must lie in the cache's range. It fails with a *kv.CompactedError
// when from is below the floor, with ErrRetired, and with ErrNotReady.
//
// The watcher starts active: call Next without waiting for Wake.
func (c *Cache) Watch(r kv.Range, from kv.Revision, waker Waker) (*Watcher, error) {
	w := &Watcher{c: c, r: r, single: r.IsSingle(), from: from, waker: waker, watches: 1}
	// Add to the index before the view is read: a batch appended from here on
	// either is in the view or finds the watcher.
	c.wakeups.mu.Lock()
	c.wakeups.index.add(w)
	arrived := c.wakeups.arriveLocked()
	c.wakeups.mu.Unlock()
	arrived()
	v := c.view.Load()
	var err error
	switch {
	case v.retired:
		err = ErrRetired
	case !v.ready:
		err = ErrNotReady
	case from < v.win.floor:
		err = &kv.CompactedError{Requested: from, Floor: v.win.floor}
	default:
		w.state.Store(v.win.seek(from) << 1)
		return w, nil
	}
	w.Close()
	return nil, err
}

// Close ends the watcher. It may be called twice. A Wake that has already begun
// may still arrive.
func (w *Watcher) Close() {
	w.c.wakeups.mu.Lock()
	defer w.c.wakeups.mu.Unlock()
	w.c.wakeups.index.remove(w)
	for w.waits != nil {
		w.c.wakeups.forgetLocked(w.waits)
	}
}

// Defer delays the call of the waker from the first pending batch until batches of that
// many bytes are pending; 0 ends the delay. The caller may read pending batches at any
// time. Defer reports whether batches may be pending now.
func (w *Watcher) Defer(bytes int64) (pending bool) {
	w.c.wakeups.mu.Lock()
	defer w.c.wakeups.mu.Unlock()
	w.deferral, w.pending = bytes, 0
	return w.state.Load()&idleBit == 0
}

// Deferred reports whether the call of the waker is delayed, and returns the bytes of the
// batches that are pending.
func (w *Watcher) Deferred() (bytes int64, deferred bool) {
	w.c.wakeups.mu.Lock()
	defer w.c.wakeups.mu.Unlock()
	if w.deferral > 0 && w.state.Load()&idleBit == 0 {
		bytes = w.pending
	}
	return bytes, w.deferral > 0
}

// pendsLocked counts a pending batch, and reports whether to call the waker for it. first is
// set for the first batch since the watcher was idle.
func (w *Watcher) pendsLocked(first bool, bytes int64) bool {
	if w.deferral == 0 {
		return first
	}
	if first {
		w.pending = 0
	}
	before := w.pending
	w.pending += bytes
	return before < w.deferral && w.pending >= w.deferral
}

// waitsLocked returns the waiter that w already has for revision, or nil.
func (w *Watcher) waitsLocked(revision kv.Revision) *waiter {
	for at := w.waits; at != nil; at = at.next {
		if at.revision == revision {
			return at
		}
	}
	return nil
}

// Age returns how old the cache's data may be; see Cache.Age.
func (w *Watcher) Age() (time.Duration, bool) { return w.c.Age() }

// Serves sets the number of watches that the watcher counts as in the cache's status, initially
// one. It may be called at any time, and has no effect after Close.
func (w *Watcher) Serves(watches int) {
	w.c.wakeups.mu.Lock()
	defer w.c.wakeups.mu.Unlock()
	if w.entry != nil {
		w.c.wakeups.index.count += watches - w.watches
	}
	w.watches = watches
}

// Range returns the watched range.
func (w *Watcher) Range() kv.Range { return w.r }

// Next returns the next revision that has events in the range, with those
// events appended to dst, and moves the position past it. It does not block:
// revision 0 means that Wake will be called once Next may return more. Either no events are
// pending, or Next has passed so many batches outside the range that other readers come first:
// then Wake has been called already, and Pending returns true.
//
// A watcher that has fallen behind the floor gets a *kv.CompactedError; when
// the cache stops, ErrRetired. After either, another watcher may resume at
// Progress()+1.
func (w *Watcher) Next(dst []*kv.Event) (kv.Revision, []*kv.Event, error) {
	state := w.state.Load()
	if state&idleBit != 0 {
		w.skipped = 0
		return 0, dst, nil
	}
	skipped := int32(0)
	for pos := state >> 1; ; {
		v := w.c.view.Load()
		if v.retired {
			return 0, dst, ErrRetired
		}
		if pos < v.win.first {
			w.from = max(w.from, v.win.passedBy(pos).reached+1)
			if w.from < v.win.floor {
				return 0, dst, &kv.CompactedError{Requested: max(w.from, 1), Floor: v.win.floor}
			}
			pos = v.win.seek(w.from) // evicted batches are below from: nothing is missed
		}
		for pos < v.win.next {
			e := v.win.at(pos)
			pos++
			if e.Revision < w.from {
				continue
			}
			n := len(dst)
			if dst = e.match(w.r, dst); len(dst) > n {
				w.from = e.Revision + 1
				w.skipped = skipped
				w.state.Store(pos << 1)
				return e.Revision, dst, nil
			}
			if skipped++; skipped >= maxSkipped && pos < v.win.next {
				w.skipped = skipped
				w.state.Store(pos << 1)
				w.waker.Wake() // the writer does not wake an active watcher
				return 0, dst, nil
			}
		}
		w.skipped = skipped
		w.state.Store(pos<<1 | idleBit)
		if w.staysIdle(pos) {
			return 0, dst, nil
		}
	}
}

// Skipped returns the number of batches outside the range that the last call of Next has examined.
func (w *Watcher) Skipped() int { return int(w.skipped) }

// Pending reports whether the watcher is active: Next may return events, or has more batches to examine.
func (w *Watcher) Pending() bool { return w.state.Load()&idleBit == 0 }

// staysIdle reports whether a watcher that has just gone idle at pos may stay
// idle. If not, staysIdle makes it active at pos again.
//
// The writer publishes, then looks for idle watchers; the reader goes idle,
// then checks the published view. At least one of the two sees the other. If
// the reader sees a new batch, it restores its own position even if the writer
// has moved it meanwhile: the writer considers only the batches that it
// published after the watcher had gone idle, not those published between the
// reader's last check and that moment.
func (w *Watcher) staysIdle(pos uint64) bool {
	if v := w.c.view.Load(); v.win.next == pos && !v.retired {
		return true
	}
	w.state.Store(pos << 1)
	return false
}

// Progress returns the revision up to which Next has returned all events in
// the range. It never goes back. For a watcher from a future revision it begins
// with the revision before, because the watcher needs no events below.
//
// While the watcher is active, only Next moves Progress past batches outside the range.
func (w *Watcher) Progress() kv.Revision {
	// Load settled before state: a match up to settled has already made the watcher
	// active, unless the reader has consumed the batch since.
	progress := w.c.settled.Load().progress
	if state := w.state.Load(); state&idleBit == 0 {
		v := w.c.view.Load()
		switch pos := state >> 1; {
		case pos >= v.win.next:
			progress = v.progress
		case pos < v.win.first:
			progress = v.win.passedBy(pos).reached // Next checks whether events are missing
		default:
			progress = v.win.at(pos).Revision - 1
		}
	}
	w.from = max(w.from, progress+1)
	return w.from - 1
}

// WakeAt arranges a call of the waker once the cache has all events up to
// revision, and asks the source to reach it soon, even if the range is quiet.
// Close cancels the call.
func (w *Watcher) WakeAt(revision kv.Revision) {
	w.c.wait(&waiter{revision: revision, waker: w.waker, place: -1, owner: w})
}

// NotifyAt is WakeAt without a request to the source.
func (w *Watcher) NotifyAt(revision kv.Revision) {
	w.c.wait(&waiter{revision: revision, waker: w.waker, place: -1, owner: w, idle: true})
}

// wakeFor makes an idle watcher active at the batch with number seq, which need
// not exist yet. It reports whether the waker must be called. Only the writer
// may call it.
func (w *Watcher) wakeFor(seq uint64) bool {
	state := w.state.Load()
	return state&idleBit != 0 && w.state.CompareAndSwap(state, seq<<1)
}
