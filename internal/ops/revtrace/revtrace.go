package revtrace

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// Slots is the number of traces kept. A revision uses the slot of its remainder, until another revision
// overwrites it.
const Slots = 4096

// maxHops bounds the hops recorded for one revision.
const maxHops = 64

// Hop is the arrival of a revision in one cache of the node.
type Hop struct {
	Shard uint64
	// Relay: the cache is a relay, not a replica.
	Relay bool
	// Source is the node that sent the revision, or "etcd".
	Source string
	// Received is when the revision had arrived completely; Applied when it became readable.
	Received, Applied time.Time
}

// Sent records when and how often a revision was sent. The zero Sent: never.
type Sent struct {
	First, Last time.Time
	Times       int64
}

func (s *Sent) add(times int64, first, last time.Time) {
	if s.Times == 0 || first.Before(s.First) {
		s.First = first
	}
	if s.Times == 0 || last.After(s.Last) {
		s.Last = last
	}
	s.Times += times
}

// Entry is the trace of one revision.
type Entry struct {
	Lineage  uint64
	Revision kv.Revision
	// Hops are in the order in which the caches applied the revision.
	Hops []Hop
	// Nodes counts sends to nodes that follow this one, Watches sends to watches of clients. Late sends count
	// while the entry is kept.
	Nodes, Watches Sent
}

// Received returns when the node first received the revision.
func (w *Entry) Received() time.Time {
	first := w.Hops[0].Received
	for _, h := range w.Hops[1:] {
		if h.Received.Before(first) {
			first = h.Received
		}
	}
	return first
}

// Trace keeps the newest entries. The zero Trace is empty; a nil one records nothing.
type Trace struct{ slots [Slots]slot }

// slot keeps the entry of one revision of those with the same remainder.
type slot struct {
	revision atomic.Int64 // of way: detects an overwritten entry without the lock
	begun    atomic.Bool  // it was sent to a watch

	mu   sync.Mutex
	way  Entry // guarded by mu
	told bool  // guarded by mu; see Settled
}

func (t *Trace) slot(revision kv.Revision) *slot { return &t.slots[uint64(revision)%Slots] } //nolint:gosec // never negative

// Applied records that a cache has applied a revision, unless it is older than the one in its slot, or of an
// older lineage.
func (t *Trace) Applied(lineage uint64, revision kv.Revision, h Hop) {
	if t == nil || revision <= 0 {
		return
	}
	s := t.slot(revision)
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &s.way
	switch {
	case lineage < w.Lineage || lineage == w.Lineage && revision < w.Revision:
		return
	case lineage != w.Lineage || revision != w.Revision:
		*w = Entry{Lineage: lineage, Revision: revision, Hops: w.Hops[:0]}
		s.told = false
		s.begun.Store(false)
		s.revision.Store(int64(revision))
	}
	if len(w.Hops) < maxHops {
		w.Hops = append(w.Hops, h)
	}
}

// SentToNode records that a revision was sent to another node.
func (t *Trace) SentToNode(revision kv.Revision) {
	if t == nil {
		return
	}
	now := time.Now()
	t.sent(revision, func(w *Entry) { w.Nodes.add(1, now, now) })
}

// sent changes the entry of a revision, if it is kept.
func (t *Trace) sent(revision kv.Revision, change func(*Entry)) {
	s := t.slot(revision)
	if s.revision.Load() != int64(revision) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.way.Revision == revision {
		change(&s.way)
	}
}

// Of returns the trace of a revision, and whether it is kept.
func (t *Trace) Of(revision kv.Revision) (Entry, bool) {
	if t == nil || revision <= 0 {
		return Entry{}, false
	}
	s := t.slot(revision)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.way.Revision != revision {
		return Entry{}, false
	}
	w := s.way
	w.Hops = slices.Clone(w.Hops)
	return w, true
}

// Settled calls told once for the trace of each revision that arrived before a time, in any order, except those
// overwritten since. The entry is valid until told returns. One goroutine at a time may call Settled.
func (t *Trace) Settled(before time.Time, told func(*Entry)) {
	var w Entry
	for i := range t.slots {
		if s := &t.slots[i]; s.settle(before, &w) {
			told(&w)
		}
	}
}

// settle copies the entry of a slot to w; false: it is not due, or has been reported.
func (s *slot) settle(before time.Time, w *Entry) bool {
	if s.revision.Load() == 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.told || !s.way.Received().Before(before) {
		return false
	}
	s.told = true
	hops := append(w.Hops[:0], s.way.Hops...)
	*w = s.way
	w.Hops = hops
	return true
}

// Bounds returns the oldest and the newest kept revision; 0: none. Revisions between them may be missing.
func (t *Trace) Bounds() (oldest, newest kv.Revision) {
	if t == nil {
		return 0, 0
	}
	for i := range t.slots {
		at := kv.Revision(t.slots[i].revision.Load())
		if at > 0 && (oldest == 0 || at < oldest) {
			oldest = at
		}
		newest = max(newest, at)
	}
	return oldest, newest
}

// Turn collects the messages that a pump sends to watches in a turn, so that it reads the clock once and not
// for every event. It belongs to one goroutine. The zero Turn records nothing.
type Turn struct {
	trace *Trace
	first time.Time // of the turn's first revision that was not sent before; zero: none
	marks [turnMarks]mark
	n     int
}

// turnMarks is the number of revisions that a turn collects before it flushes.
const turnMarks = 8

type mark struct {
	revision kv.Revision
	watches  int64
}

// Turn returns a collector for a pump.
func (t *Trace) Turn() Turn { return Turn{trace: t} }

// Sent records that a revision was sent to a number of watches.
func (t *Turn) Sent(revision kv.Revision, watches int) {
	for i := t.n - 1; i >= 0; i-- {
		if t.marks[i].revision == revision {
			t.marks[i].watches += int64(watches)
			return
		}
	}
	t.begin(revision, watches)
}

// begin records the first send of a revision in the turn.
func (t *Turn) begin(revision kv.Revision, watches int) {
	if t.trace == nil {
		return
	}
	s := t.trace.slot(revision)
	if s.revision.Load() != int64(revision) {
		return // overwritten: a watch catches up
	}
	if t.n == turnMarks {
		t.Flush()
	}
	if t.first.IsZero() && !s.begun.Load() {
		t.first = time.Now()
	}
	t.marks[t.n] = mark{revision, int64(watches)}
	t.n++
}

// Flush ends the turn, and records its revisions as sent now.
func (t *Turn) Flush() {
	if t.n == 0 {
		return
	}
	last := time.Now()
	first := t.first
	if first.IsZero() {
		first = last
	}
	for _, m := range t.marks[:t.n] {
		t.trace.slot(m.revision).begun.Store(true)
		t.trace.sent(m.revision, func(w *Entry) { w.Watches.add(m.watches, first, last) })
	}
	t.n, t.first = 0, time.Time{}
}
