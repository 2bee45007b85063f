package cache

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// fullWindow is the window's model: all history since the last reset.
type fullWindow struct {
	batches []*kv.Batch
	first   uint64 // sequence number of batches[0]
}

// check compares a view with the history at the time the view was taken.
func (m fullWindow) check(v windowView) error {
	if next := m.first + uint64(len(m.batches)); v.next != next {
		return fmt.Errorf("next is %d, not %d", v.next, next)
	}
	if v.first < m.first || v.first > v.next {
		return fmt.Errorf("first is %d of [%d, %d)", v.first, m.first, v.next)
	}
	for seq := v.first; seq < v.next; seq++ {
		if got, want := v.at(seq).Batch, m.batches[seq-m.first]; got != want {
			return fmt.Errorf("batch %d is revision %d, not %d", seq, got.Revision, want.Revision)
		}
	}
	if v.first < v.next && v.floor > v.at(v.first).Revision {
		return fmt.Errorf("floor %d is above the first batch, %d", v.floor, v.at(v.first).Revision)
	}
	// No batch at or above the floor is missing.
	for i, b := range m.batches {
		if b.Revision >= v.floor && m.first+uint64(i) < v.first {
			return fmt.Errorf("floor %d, but the window lacks %d", v.floor, b.Revision)
		}
	}
	return nil
}

// seek is windowView.seek for revisions >= floor.
func (m fullWindow) seek(revision kv.Revision) uint64 {
	for i, b := range m.batches {
		if b.Revision >= revision {
			return m.first + uint64(i)
		}
	}
	return m.first + uint64(len(m.batches))
}

func TestWindowAgainstHistory(t *testing.T) {
	rng := testseed.Rand(t)
	for range 8 {
		w := window{maxBytes: 1 << (10 + rng.IntN(10)), maxAge: time.Duration(1+rng.IntN(100)) * time.Second, next: 1}
		m := fullWindow{first: 2}
		w.reset(1, 0)
		type old struct {
			view  windowView
			model fullWindow
		}
		var views []old                  // of slow readers
		at := map[uint64]kv.Revision{}   // of all batches
		ends := map[uint64]kv.Revision{} // of all replaced windows
		revision, now := kv.Revision(1), time.Now()
		remembered, exact := 0, true // until some evicted positions are forgotten
		for range 3000 {
			switch n := rng.IntN(1000); {
			case n < 2:
				last := w.next
				revision += kv.Revision(rng.IntN(3))
				w.reset(revision+1, revision)
				ends[last] = revision
				m = fullWindow{first: w.next}
				if w.next <= last {
					t.Fatal("a sequence number is used twice")
				}
			case n < 50:
				now = now.Add(time.Duration(rng.IntN(20)) * time.Second)
				w.evict(now)
			case n < 60:
				views = append(views, old{w.view(), fullWindow{slices.Clone(m.batches), m.first}})
			default:
				revision += 1 + kv.Revision(rng.IntN(3))
				b := &kv.Batch{Revision: revision, Received: now}
				for range 1 + rng.IntN(3)*rng.IntN(20) {
					b.Events = append(b.Events, put(fmt.Sprint(rng.IntN(100)), revision))
				}
				w.append(b)
				m.batches = append(m.batches, b)
				at[w.next-1] = revision
				w.evict(now)
				if w.bytes > w.maxBytes && len(w.segments) > 1 {
					t.Fatalf("%d bytes in %d segments exceed the bound of %d", w.bytes, w.maxBytes, len(w.segments))
				}
			}
			exact = exact && len(w.passed) >= remembered
			remembered = len(w.passed)
			v := w.view()
			if err := m.check(v); err != nil {
				t.Fatal(err)
			}
			var bytes int64
			for seq := v.first; seq < v.next; seq++ {
				bytes += int64(v.at(seq).Size())
			}
			if bytes != w.bytes {
				t.Fatalf("counted %d bytes, want %d", w.bytes, bytes)
			}
			w.evict(now)
			if oldest := w.segments; len(oldest) > 1 && now.Sub(oldest[0].batches[oldest[0].n-1].Received) > w.maxAge {
				t.Fatal("a segment is older than the maximum age")
			}
			v = w.view()
			from := v.floor + kv.Revision(rng.IntN(int(max(1, revision-v.floor+3))))
			if got, want := v.seek(from), m.seek(from); got != max(want, v.first) {
				t.Fatalf("seek %d: %d, not %d", from, got, want)
			}
		}
		v := w.view()
		for seq, revision := range at {
			// The recorded progress of a watcher that has read all earlier batches is
			// never too high, and at most a segment too low.
			if got := v.passedBy(seq).reached; seq < v.first && (got >= revision || exact && at[seq-segmentBatches] > 0 && got < at[seq-segmentBatches]-1) {
				t.Errorf("a watcher below revision %d has progress %d", revision, got)
			}
		}
		for seq, revision := range ends {
			if got := v.passedBy(seq).reached; got > revision || exact && got != revision {
				t.Errorf("a watcher at the end of a window up to %d has progress %d", revision, got)
			}
		}
		for _, o := range views {
			if err := o.model.check(o.view); err != nil {
				t.Fatalf("an old view has changed: %v", err)
			}
		}
	}
}

// A single batch over the bound is kept, because it is the newest.
func TestWindowHoldsHugeBatch(t *testing.T) {
	w := window{maxBytes: 64 << 10, maxAge: time.Hour, next: 1}
	small := func(from, to kv.Revision) {
		for revision := from; revision < to; revision++ {
			b := puts(revision, "a")
			w.append(&b)
			w.evict(b.Received)
			if w.bytes > w.maxBytes && len(w.segments) > 1 {
				t.Fatalf("%d bytes at %d", w.bytes, revision)
			}
		}
	}
	small(2, 1000)
	huge := batch(1000)
	for i := range 5000 {
		huge.Events = append(huge.Events, put(fmt.Sprintf("%04d", i), 1000))
	}
	w.append(&huge)
	w.evict(huge.Received)
	if v := w.view(); v.next-v.first != 1 || v.floor != 1000 {
		t.Errorf("%d batches from %d on in addition to the huge one", v.next-v.first, v.floor)
	}
	small(1001, 2000)
	if v := w.view(); v.floor <= 1000 {
		t.Error("the huge batch was not evicted")
	}
}

func TestMatchAgainstScan(t *testing.T) {
	rng := testseed.Rand(t)
	for range 300 {
		b := randomBatch(rng, 1+rng.IntN(100))
		if rng.IntN(2) == 0 {
			slices.SortStableFunc(b.Events, func(a, c kv.Event) int { return slices.Compare(a.KV.Key(), c.KV.Key()) })
		}
		e := newEntry(&b)
		var sorted [][]byte
		for i := range b.Events {
			sorted = append(sorted, b.Events[i].KV.Key())
		}
		slices.SortFunc(sorted, bytes.Compare)
		if keys := e.keys(nil); !slices.EqualFunc(keys, sorted, bytes.Equal) {
			t.Fatalf("keys of %d events: %q, want %q", len(b.Events), keys, sorted)
		}
		for range 50 {
			r := randomRange(rng)
			var want []*kv.Event
			for i := range b.Events {
				if r.Contains(string(b.Events[i].KV.Key())) {
					want = append(want, &b.Events[i])
				}
			}
			head := []*kv.Event{&b.Events[0]} // existing entries are kept
			got := e.match(r, head)
			if got[0] != head[0] || !slices.Equal(got[1:], want) {
				t.Fatalf("%v of %d events: %d, not %d, or in another order", r, len(b.Events), len(got)-1, len(want))
			}
		}
	}
}

func randomKey(rng *rand.Rand) string {
	return fmt.Sprintf("%d%s%d", rng.IntN(10), "/"[:rng.IntN(2)], rng.IntN(30))
}

func randomBatch(rng *rand.Rand, n int) kv.Batch {
	b := batch(7)
	for range n {
		k := randomKey(rng)
		if rng.IntN(5) == 0 {
			b.Events = append(b.Events, del(k, 7)) // rarely, a key has two events
		} else {
			b.Events = append(b.Events, put(k, 7))
		}
	}
	return b
}

// randomRange returns a range over randomKey's keys: single, bounded, unbounded, or all
// keys.
func randomRange(rng *rand.Rand) kv.Range {
	a, b := randomKey(rng), randomKey(rng)
	if a > b {
		a, b = b, a
	}
	switch n := rng.IntN(6); {
	case n == 0:
		return kv.Range{Start: a}
	case n == 1:
		return kv.Prefix(a[:1])
	case n == 2:
		return all
	case n == 3 && a < b:
		return kv.Range{Start: a, End: b}
	case n == 4:
		return kv.Range{End: b}
	}
	return kv.Single(a)
}

// The number of records of evicted segments is bounded, and the recorded progress of a
// watcher is never too high.
func TestKnowledgeOfOldPositionsIsBounded(t *testing.T) {
	w := window{maxBytes: 1, next: 1}
	w.reset(1, 0)
	const batches = 5 * maxPassed
	now := time.Now()
	old := w.view()
	for revision := kv.Revision(1); revision <= batches; revision++ {
		w.append(&kv.Batch{Revision: revision, Received: now})
		w.evict(now)
		if revision == maxPassed/2 {
			old = w.view()
		}
	}
	v := w.view()
	if len(v.passed) > maxPassed || cap(v.passed) > 2*maxPassed {
		t.Errorf("%d records, want at most %d; capacity %d", len(v.passed), maxPassed, cap(v.passed))
	}
	for seq := uint64(2); seq < v.first; seq++ {
		got, exact := v.passedBy(seq).reached, kv.Revision(seq)-2
		if got > exact || seq > v.first-maxPassed/2 && got != exact {
			t.Fatalf("a watcher with progress %d has the recorded progress %d", exact, got)
		}
		if seq < old.first && old.passedBy(seq).reached != exact {
			t.Fatalf("an old view has changed: %d, not %d", old.passedBy(seq).reached, exact)
		}
	}
}
