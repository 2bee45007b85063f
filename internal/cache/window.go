package cache

import (
	"bytes"
	"slices"
	"sort"
	"sync/atomic"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// A window holds the newest batches of a range, oldest first, each with a
// sequence number. It is kept in segments; a segment's batches are written
// once, by the one writer, and become visible to readers only through a view
// published afterwards. Old batches are evicted by whole segments, so a reader
// that holds an old view pins a bounded amount of memory.
//
// Invariants: revisions strictly increase; sequence numbers increase by one;
// floor <= the first batch's revision.
type window struct {
	maxBytes int64
	maxAge   time.Duration

	segments []*segment  // owned by the writer; replaced, never changed in place
	next     uint64      // sequence number of the next batch
	floor    kv.Revision // the oldest revision a watch may start from
	bytes    int64
	passed   []passed // positions below the window, by number; appended to, and never changed in place
}

// A segment is full when it has segmentBatches batches, or 1/segmentShare of the
// window's bytes. So evicting one segment drops little.
const (
	segmentBatches = 256
	segmentShare   = 32
)

type segment struct {
	first   uint64       // sequence number of batches[0]
	n       int          // owned by the writer
	size    atomic.Int64 // bytes; written by the writer alone
	batches [segmentBatches]entry
}

// entry is a batch in the window. If it has many events, watchers search them by
// key instead of reading all: either the events are in key order, as after the
// delete of a range, or byKey is.
type entry struct {
	*kv.Batch
	byKey   []int32 // positions of the events, by key, then position; or nil
	inOrder bool    // there are many events, and they are in key order
}

const (
	manyEvents = 16  // batches with at least this many events are searched by key
	fewMatches = 256 // at most this many events found by key are sorted back into etcd's order
)

func newEntry(b *kv.Batch) entry {
	e := entry{Batch: b}
	if len(b.Events) < manyEvents {
		return e
	}
	e.inOrder = slices.IsSortedFunc(b.Events, func(x, y kv.Event) int {
		return bytes.Compare(x.KV.Key(), y.KV.Key())
	})
	if e.inOrder {
		return e
	}
	e.byKey = make([]int32, len(b.Events))
	for i := range e.byKey {
		e.byKey[i] = int32(i)
	}
	slices.SortStableFunc(e.byKey, func(x, y int32) int {
		return bytes.Compare(b.Events[x].KV.Key(), b.Events[y].KV.Key())
	})
	return e
}

// keys appends the keys of the events to dst, which is empty, in key order.
func (e *entry) keys(dst [][]byte) [][]byte {
	for i := range e.Events {
		if e.byKey != nil {
			i = int(e.byKey[i])
		}
		dst = append(dst, e.Events[i].KV.Key())
	}
	if e.byKey == nil && !e.inOrder {
		slices.SortFunc(dst, bytes.Compare)
	}
	return dst
}

// match appends the events of the batch that lie in r to dst, in etcd's order.
// A key may have two events: etcd refuses to change a key twice in one
// transaction, except for a put under an open-ended delete.
func (e *entry) match(r kv.Range, dst []*kv.Event) []*kv.Event {
	switch {
	case e.inOrder:
		from, to := e.span(r, func(i int) []byte { return e.Events[i].KV.Key() })
		for i := from; i < to; i++ {
			dst = append(dst, &e.Events[i])
		}
		return dst
	case e.byKey != nil:
		from, to := e.span(r, func(i int) []byte { return e.Events[e.byKey[i]].KV.Key() })
		if to-from <= fewMatches {
			var found [fewMatches]int32
			at := found[:copy(found[:], e.byKey[from:to])]
			slices.Sort(at)
			for _, i := range at {
				dst = append(dst, &e.Events[i])
			}
			return dst
		}
	}
	for i := range e.Events {
		if ev := &e.Events[i]; r.ContainsBytes(ev.KV.Key()) {
			dst = append(dst, ev)
		}
	}
	return dst
}

// span returns the positions of the events in r; key returns the keys in order.
func (e *entry) span(r kv.Range, key func(i int) []byte) (from, to int) {
	n := len(e.Events)
	from = sort.Search(n, func(i int) bool { return string(key(i)) >= r.Start })
	if r.End == "" {
		return from, n
	}
	return from, from + sort.Search(n-from, func(i int) bool { return string(key(from+i)) >= r.End })
}

// reset empties the window, which was complete up to reached. The new first sequence
// number is above all earlier ones, so that every watcher detects the gap.
func (w *window) reset(floor, reached kv.Revision) {
	for _, s := range w.segments {
		w.pass(s)
	}
	w.note(passed{seq: w.next, reached: reached})
	w.segments, w.bytes, w.floor = nil, 0, floor
	w.next++
}

// passed is the progress of watchers whose next batch is no longer in the window: a
// watcher whose next batch had the number seq, or a later number below the next record's
// seq, has all events up to reached, and no batch received at the time received or
// later. That time is zero when no later batch had been received.
type passed struct {
	seq      uint64
	reached  kv.Revision
	received time.Time
}

// maxPassed bounds the number of records of batches that have left the window. Beyond
// it every second record is dropped: the known progress of a watcher is then less exact,
// but never too high.
const maxPassed = 1 << 9

// pass records the progress of the watchers whose next batch is in an evicted segment.
func (w *window) pass(s *segment) {
	first := &s.batches[0]
	w.note(passed{seq: s.first, reached: first.Revision - 1, received: first.Received})
}

func (w *window) note(p passed) {
	if len(w.passed) == maxPassed {
		half := make([]passed, 0, maxPassed) // views have the old slice
		for i := 0; i < maxPassed; i += 2 {
			half = append(half, w.passed[i])
		}
		w.passed = half
	}
	w.passed = append(w.passed, p)
}

// append adds a batch, and returns its entry. Its revision must be above all
// earlier ones.
func (w *window) append(b *kv.Batch) *entry {
	size := int64(b.Size())
	var last *segment
	if len(w.segments) > 0 {
		last = w.segments[len(w.segments)-1]
	}
	if last == nil || last.n == segmentBatches || (last.n > 0 && last.size.Load()+size > w.maxBytes/segmentShare) {
		last = &segment{first: w.next}
		w.segments = append(w.segments[:len(w.segments):len(w.segments)], last)
	}
	added := &last.batches[last.n]
	*added = newEntry(b)
	last.n++
	last.size.Add(size)
	w.bytes += size
	w.next++
	return added
}

// evict drops the oldest segments while the window is over its bounds. The
// newest segment stays: it holds at most a 32nd of the bytes, or one batch.
func (w *window) evict(now time.Time) {
	drop := 0
	for drop < len(w.segments)-1 {
		s := w.segments[drop]
		last := s.batches[s.n-1]
		if w.bytes <= w.maxBytes && now.Sub(last.Received) <= w.maxAge {
			break
		}
		w.bytes -= s.size.Load()
		w.pass(s)
		w.floor = last.Revision + 1
		drop++
	}
	if drop > 0 {
		w.segments = append([]*segment(nil), w.segments[drop:]...)
	}
}

// view returns the window as it is now, for readers.
func (w *window) view() windowView {
	first := w.next
	if len(w.segments) > 0 {
		first = w.segments[0].first
	}
	return windowView{segments: w.segments, first: first, next: w.next, floor: w.floor, passed: w.passed}
}

// windowView is a window at one moment. Readers must not read batches at or
// after next.
type windowView struct {
	segments    []*segment
	first, next uint64
	floor       kv.Revision
	passed      []passed
}

// passedBy returns the progress of a watcher whose next batch had the number seq, which
// is below first.
func (v *windowView) passedBy(seq uint64) passed {
	after := sort.Search(len(v.passed), func(i int) bool { return v.passed[i].seq > seq })
	if after == 0 {
		return passed{}
	}
	return v.passed[after-1]
}

// at returns the batch with the sequence number seq, which must lie in
// [first, next).
func (v *windowView) at(seq uint64) *entry {
	s := v.segments[v.segment(seq)]
	return &s.batches[seq-s.first]
}

// segment returns the index of the segment that holds seq.
func (v *windowView) segment(seq uint64) int {
	// Almost every reader is at the end.
	if n := len(v.segments); n > 0 && seq >= v.segments[n-1].first {
		return n - 1
	}
	return sort.Search(len(v.segments), func(i int) bool { return v.segments[i].first > seq }) - 1
}

// seek returns the sequence number of the first batch at or above revision,
// or next when there is none.
func (v *windowView) seek(revision kv.Revision) uint64 {
	n := v.next - v.first
	at := sort.Search(int(n), func(i int) bool { //nolint:gosec // a count of batches in memory
		return v.at(v.first+uint64(i)).Revision >= revision //nolint:gosec // as above
	})
	return v.first + uint64(at) //nolint:gosec // as above
}
