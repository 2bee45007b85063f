package check_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/check"
)

func TestCorrectWatchersPass(t *testing.T) {
	rng := testseed.Rand(t)
	for range 200 {
		m := newModel(rng)
		for range 20 + rng.IntN(100) {
			m.change()
		}
		h := m.history(t)
		for range 5 {
			w, stateFirst := randomWatch(rng, m.rev)
			s := m.watch(w, stateFirst)
			if vs := check.Watches(h, s); len(vs) > 0 {
				t.Fatalf("%v: %v", w.Range, vs[0])
			}
		}
	}
}

// The checker accepts a correct watch while the history grows, sometimes behind the watcher
// and sometimes ahead of it.
func TestCheckerFollowsAGrowingHistory(t *testing.T) {
	rng := testseed.Rand(t)
	for range 100 {
		m := newModel(rng)
		for range 100 {
			m.change()
		}
		w, stateFirst := randomWatch(rng, m.rev)
		s := m.watch(w, stateFirst)
		h, c := check.NewHistory(1, nil), check.NewChecker(w)
		events := 0
		for ops, batches := s.Ops, m.batches; len(ops)+len(batches) > 0; {
			if len(batches) > 0 && (len(ops) == 0 || rng.IntN(2) == 0) {
				if err := h.Append(batches[0]); err != nil {
					t.Fatal(err)
				}
				batches = batches[1:]
			} else {
				c.Feed(ops[0])
				if ops[0].Kind == check.OpBatch {
					events += len(ops[0].Events)
				}
				ops = ops[1:]
			}
			if rng.IntN(3) == 0 {
				c.Judge(h)
			}
		}
		if !c.Complete(h, m.rev) {
			t.Fatalf("at %d of %d: not complete", c.Reached(), m.rev)
		}
		c.Finish(h, m.rev)
		if first, n := c.Violations(); n > 0 {
			t.Fatalf("%v: %d violations: %v", w.Range, n, first[0])
		}
		if c.Events() != events {
			t.Fatalf("judged %d events, want %d", c.Events(), events)
		}
	}
}

func TestHistoryAgainstReplay(t *testing.T) {
	rng := testseed.Rand(t)
	m := newModel(rng)
	for range 300 {
		m.change()
	}
	h := m.history(t)
	ranges := []kv.Range{{}, kv.Single("/a/1"), kv.Single("/z"), kv.Prefix("/d/"), {Start: "/b/3", End: "/c/2"}}
	for _, r := range ranges {
		for range 20 {
			rev := kv.Revision(1 + rng.Int64N(int64(m.rev)))
			if vs := check.EqualState("history", rev, m.state(r, rev), h.State(r, rev)); len(vs) > 0 {
				t.Fatalf("%v: %v", r, vs)
			}
		}
		var want []kv.Revision
		for _, b := range m.batches {
			var events []check.Event
			for _, e := range b.Events {
				if r.Contains(e.KV.Key) {
					events = append(events, e)
				}
			}
			if len(events) > 0 {
				want = append(want, b.Revision)
			}
			got := h.Events(r, b.Revision)
			if !slices.EqualFunc(got, events, func(a, b check.Event) bool {
				return a.KV == b.KV && a.Type == b.Type && (a.Prev == nil) == (b.Prev == nil) && (a.Prev == nil || *a.Prev == *b.Prev)
			}) {
				t.Fatalf("%v at %d: %v, want %v", r, b.Revision, got, events)
			}
		}
		if got := h.Touching(r, 0, m.rev); !slices.Equal(got, want) {
			t.Fatalf("%v is touched by %v, want %v", r, got, want)
		}
		if n := len(want) / 2; n > 0 {
			if got := h.Touching(r, want[n-1], m.rev); !slices.Equal(got, want[n:]) {
				t.Fatalf("%v after %d: %v, want %v", r, want[n-1], got, want[n:])
			}
		}
	}
	// Later revisions are indexed as well.
	m.change()
	if err := h.Append(m.batches[len(m.batches)-1]); err != nil {
		t.Fatal(err)
	}
	if got := h.Touching(kv.Range{}, m.rev-1, m.rev); len(got) != 1 {
		t.Fatalf("the new revision is missing: %v", got)
	}
}

func TestHistoryRefuses(t *testing.T) {
	h := check.NewHistory(5, []check.Item{{Key: "a", Mod: 3, Create: 3, Version: 1}})
	if err := h.Append(check.Batch{Revision: 6, Events: []check.Event{check.Delete("a", 6)}}); err != nil {
		t.Fatal(err)
	}
	if e := h.Events(kv.Range{}, 6); e[0].Prev == nil || e[0].Prev.Mod != 3 {
		t.Errorf("the initial state yields no previous value: %v", e[0].Prev)
	}
	for name, b := range map[string]check.Batch{
		"already":  {Revision: 6, Events: []check.Event{check.Delete("b", 6)}},
		"no event": {Revision: 7},
		"carries":  {Revision: 7, Events: []check.Event{check.Delete("b", 8)}},
	} {
		if err := h.Append(b); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
