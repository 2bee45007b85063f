package revtrace_test

import (
	"sync"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/ops/revtrace"
)

func hop(shard uint64) revtrace.Hop {
	now := time.Now()
	return revtrace.Hop{Shard: shard, Source: "etcd", Received: now.Add(-time.Millisecond), Applied: now}
}

func TestTraceOfARevision(t *testing.T) {
	var tr revtrace.Trace
	turn := tr.Turn()
	tr.Applied(1, 7, hop(1))
	tr.Applied(1, 7, hop(2)) // a transaction over two shards
	tr.SentToNode(7)
	tr.SentToNode(7)
	turn.Sent(7, 3)
	turn.Sent(7, 1)
	turn.Sent(8, 1) // not applied at this node
	if w, _ := tr.Of(7); w.Watches.Times != 0 {
		t.Errorf("recorded as sent before the turn has ended: %+v", w)
	}
	turn.Flush()
	turn.Flush()
	w, ok := tr.Of(7)
	if !ok || len(w.Hops) != 2 || w.Hops[1].Shard != 2 || w.Nodes.Times != 2 || w.Watches.Times != 4 || w.Received() != w.Hops[0].Received {
		t.Errorf("%v %+v", ok, w)
	}
	if w.Watches.First.Before(w.Received()) || w.Watches.Last.Before(w.Watches.First) || w.Nodes.Last.Before(w.Nodes.First) {
		t.Errorf("out of order: %+v", w)
	}
	if _, ok := tr.Of(8); ok {
		t.Error("a revision that was not applied here has a trace")
	}
}

// The traces are bounded: a revision replaces an older revision or lineage in its slot.
func TestOldRevisionsAreForgotten(t *testing.T) {
	var tr revtrace.Trace
	tr.Applied(1, 5, hop(1))
	tr.Applied(1, 5+revtrace.Slots, hop(2))
	tr.Applied(1, 5, hop(3)) // a cache that catches up
	if _, ok := tr.Of(5); ok {
		t.Error("the older revision still has a trace")
	}
	if w, ok := tr.Of(5 + revtrace.Slots); !ok || len(w.Hops) != 1 || w.Hops[0].Shard != 2 {
		t.Errorf("%v %+v", ok, w)
	}
	tr.Applied(2, 5, hop(4)) // etcd was restored
	if w, ok := tr.Of(5); !ok || w.Lineage != 2 || w.Hops[0].Shard != 4 {
		t.Errorf("%v %+v", ok, w)
	}
	tr.Applied(1, 5+revtrace.Slots, hop(2))
	if _, ok := tr.Of(5 + revtrace.Slots); ok {
		t.Error("a late revision of an old lineage has a trace")
	}
	tr.Applied(2, 6, hop(1))
	if oldest, newest := tr.Bounds(); oldest != 5 || newest != 6 {
		t.Errorf("bounds %d to %d, want 5 to 6", oldest, newest)
	}
	for shard := range uint64(1000) {
		tr.Applied(2, 6, hop(shard))
	}
	if w, _ := tr.Of(6); len(w.Hops) > 100 {
		t.Errorf("%d hops of one revision", len(w.Hops))
	}
}

func TestATurnOfManyRevisions(t *testing.T) {
	var tr revtrace.Trace
	turn := tr.Turn()
	for r := kv.Revision(1); r <= 100; r++ {
		tr.Applied(1, r, hop(1))
	}
	for range 3 {
		for r := kv.Revision(1); r <= 100; r++ {
			turn.Sent(r, 1)
		}
	}
	turn.Flush()
	for r := kv.Revision(1); r <= 100; r++ {
		if w, _ := tr.Of(r); w.Watches.Times != 3 {
			t.Fatalf("revision %d was sent %d times", r, w.Watches.Times)
		}
	}
}

// Each trace is reported once, when it is old enough.
func TestSettled(t *testing.T) {
	var tr revtrace.Trace
	for r := kv.Revision(1); r <= 3; r++ {
		tr.Applied(1, r, hop(uint64(r)))
	}
	late := hop(4)
	late.Received = late.Received.Add(time.Hour)
	tr.Applied(1, 4, late)
	seen := map[kv.Revision]uint64{}
	look := func(before time.Time) {
		tr.Settled(before, func(w *revtrace.Entry) { seen[w.Revision] = w.Hops[0].Shard })
	}
	look(time.Now().Add(-time.Minute))
	if len(seen) > 0 {
		t.Errorf("too early: %v", seen)
	}
	look(time.Now().Add(time.Minute))
	if len(seen) != 3 || seen[1] != 1 || seen[3] != 3 {
		t.Errorf("%v", seen)
	}
	clear(seen)
	tr.Applied(1, 2+revtrace.Slots, hop(9))
	look(time.Now().Add(time.Minute))
	if len(seen) != 1 || seen[2+revtrace.Slots] != 9 {
		t.Errorf("the second time: %v", seen)
	}
}

func TestNilTrace(t *testing.T) {
	var tr *revtrace.Trace
	turn := tr.Turn()
	tr.Applied(1, 1, hop(1))
	tr.SentToNode(1)
	turn.Sent(1, 1)
	turn.Flush()
	if _, ok := tr.Of(1); ok {
		t.Error("nobody remembers")
	}
	if oldest, newest := tr.Bounds(); oldest != 0 || newest != 0 {
		t.Error("nobody remembers")
	}
}

func TestConcurrentTraces(t *testing.T) {
	var tr revtrace.Trace
	const revisions, pumps = 3 * revtrace.Slots, 4
	var all sync.WaitGroup
	for range pumps {
		all.Go(func() {
			turn := tr.Turn()
			for r := kv.Revision(1); r <= revisions; r++ {
				tr.Applied(1, r, hop(1))
				turn.Sent(r, 1)
				if r%5 == 0 {
					turn.Flush()
				}
				if w, ok := tr.Of(r); ok && w.Revision != r {
					t.Errorf("asked for %d, got %d", r, w.Revision)
				}
			}
		})
	}
	all.Wait()
}

// Recording allocates nothing once every slot has been used.
func TestNoAllocations(t *testing.T) {
	var tr revtrace.Trace
	h, turn, r := hop(1), tr.Turn(), kv.Revision(0)
	step := func() {
		r++
		tr.Applied(1, r, h)
		tr.SentToNode(r)
		turn.Sent(r, 1)
		turn.Sent(r, 1)
		turn.Flush()
	}
	for range revtrace.Slots {
		step()
	}
	if n := testing.AllocsPerRun(revtrace.Slots, step); n != 0 {
		t.Errorf("%v allocations for a revision", n)
	}
}

// The cost of a trace for each batch, turn and additional watch in a turn.
func BenchmarkTrace(b *testing.B) {
	b.Run("applied", func(b *testing.B) {
		var tr revtrace.Trace
		h, r := hop(1), kv.Revision(0)
		b.ReportAllocs()
		for b.Loop() {
			r++
			tr.Applied(1, r, h)
		}
	})
	b.Run("turn", func(b *testing.B) {
		var tr revtrace.Trace
		tr.Applied(1, 1, hop(1))
		turn := tr.Turn()
		b.ReportAllocs()
		for b.Loop() {
			turn.Sent(1, 1)
			turn.Flush()
		}
	})
	b.Run("delivery", func(b *testing.B) {
		var tr revtrace.Trace
		tr.Applied(1, 1, hop(1))
		turn := tr.Turn()
		b.ReportAllocs()
		for b.Loop() {
			turn.Sent(1, 1)
		}
	})
}
