package router_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
	"github.com/shardwatch/shardwatch/internal/wait"
)

const letters = "abcdefghijklmnop"

func letter(rng *rand.Rand) string { return string(letters[rng.IntN(len(letters))]) }

func someRange(rng *rand.Rand) kv.Range {
	switch a, b := letter(rng), letter(rng); {
	case rng.IntN(3) == 0:
		return kv.Range{}
	case a == b:
		return kv.Single(a)
	default:
		return kv.Range{Start: min(a, b), End: max(a, b)}
	}
}

func someOps(rng *rand.Rand) (ops []cachetest.Op) {
	for _, i := range rng.Perm(len(letters))[:1+rng.IntN(4)] {
		if key := letters[i : i+1]; rng.IntN(4) == 0 {
			ops = append(ops, cachetest.Delete(key))
		} else {
			ops = append(ops, cachetest.Put(key, fmt.Sprint(rng.Uint32())))
		}
	}
	return ops
}

// someMap returns a map of up to 6 shards, each here or elsewhere.
func someMap(rng *rand.Rand, version uint64) *shard.Map {
	var cuts []string
	for range rng.IntN(6) {
		cuts = append(cuts, letter(rng))
	}
	slices.Sort(cuts)
	m := cachetest.Map(version, slices.Compact(cuts), "here")
	for i := range m.Shards {
		if rng.IntN(3) == 0 {
			m.Shards[i].Replicas = []shard.NodeID{"there"}
		}
	}
	return m
}

// reader is a watch with a model of its expected events.
type reader struct {
	bell *bell
	w    *router.Watch
	rng  kv.Range
	last kv.Revision // the watch has returned all events up to it
}

func open(tb testing.TB, r *router.Router, rng kv.Range, from kv.Revision) *reader {
	tb.Helper()
	b := newBell()
	w, err := r.Watch(tb.Context(), router.WatchRequest{Range: rng, From: from, Lineage: 1}, b)
	if err != nil {
		tb.Fatalf("watch %v from %d: %v", rng, from, err)
	}
	return &reader{bell: b, w: w, rng: rng, last: from - 1}
}

// read reads the pending events, if the bell has rung, and compares them with h.
func (r *reader) read(tb testing.TB, h *cachetest.Script) {
	tb.Helper()
	if !r.bell.heard() {
		return
	}
	for {
		revision, events, err := r.w.Next(nil)
		if err != nil {
			tb.Fatalf("%v after %d: %v", r.rng, r.last, err)
		}
		if revision == 0 {
			break
		}
		due := h.Batches(r.rng, r.last, revision)
		if len(due) != 1 || due[0].Revision != revision {
			tb.Fatalf("%v after %d: got %d, but the history has %d batches up to it", r.rng, r.last, revision, len(due))
		}
		if got, want := describe(events), describe(pointers(due[0].Events)); got != want {
			tb.Fatalf("%v at %d: got %s, want %s", r.rng, revision, got, want)
		}
		r.last = revision
	}
	r.check(tb, h)
}

// check compares the watch's progress with the returned events.
func (r *reader) check(tb testing.TB, h *cachetest.Script) {
	tb.Helper()
	if at, open := r.w.Position(); !open || at.Revision > at.Newest || len(h.Batches(r.rng, r.last, at.Revision)) > 0 {
		tb.Fatalf("%v after %d: wrong position %+v, %v", r.rng, r.last, at, open)
	}
	progress, _ := r.w.Progress()
	if progress < r.last {
		tb.Fatalf("%v: progress %d is below the last returned revision, %d", r.rng, progress, r.last)
	}
	if missed := h.Batches(r.rng, r.last, progress); len(missed) > 0 {
		tb.Fatalf("%v: progress %d, but revision %d was not returned", r.rng, progress, missed[0].Revision)
	}
}

func (r *reader) done(h *cachetest.Script) bool { return len(h.Batches(r.rng, r.last, h.Now())) == 0 }

func pointers(events []kv.Event) (out []*kv.Event) {
	for i := range events {
		out = append(out, &events[i])
	}
	return out
}

// describe returns the events ordered by key, because events are grouped by shard.
func describe(events []*kv.Event) string {
	var out []string
	for _, e := range events {
		out = append(out, fmt.Sprintf("%s %s=%s@%d", e.Type, e.KV.Key(), e.KV.Value(), e.KV.ModRevision()))
	}
	slices.SortFunc(out, func(a, b string) int { return strings.Compare(a[strings.Index(a, " "):], b[strings.Index(b, " "):]) })
	return strings.Join(out, " ")
}

// Watches over many shards return every revision of the history once, whole and in order,
// and their progress never exceeds the returned events. This holds at any pace of the
// shards, and while shards are split, merged, moved away and back. A watch is read only
// after a wake-up.
func TestWatchAgainstHistory(t *testing.T) {
	rng := testseed.Rand(t)
	for round := range 12 {
		h := cachetest.New()
		n := cachetest.NewNode("here", h, nil)
		r := start(t, h, n)
		switch round % 3 {
		case 1:
			r.ShortenMerged() // watches leave merged windows and come back
		case 2:
			r.MergeAlone()
		}
		m := someMap(rng, 1)
		n.Use(m)
		for range 20 {
			h.Commit(someOps(rng)...)
		}
		var readers []*reader
		for range 12 {
			readers = append(readers, open(t, r, someRange(rng), cachetest.Start+1+kv.Revision(rng.IntN(30))))
		}
		for range 300 {
			switch rng.IntN(12) {
			case 0, 1, 2, 3:
				h.Commit(someOps(rng)...)
			case 4, 5:
				s := m.Shards[rng.IntN(len(m.Shards))]
				n.Gate(s.ID).Limit(h.Now() - kv.Revision(rng.IntN(4)))
			case 6:
				n.Gate(m.Shards[rng.IntN(len(m.Shards))].ID).Limit(0)
			case 7:
				if rng.IntN(4) == 0 {
					m = someMap(rng, m.Version+1)
					n.Use(m)
					r.Kick()
				}
			case 8:
				x := readers[rng.IntN(len(readers))]
				x.w.WakeAt(h.Now())
				x.check(t, h)
			case 9: // one watch leaves, another comes
				i := rng.IntN(len(readers))
				readers[i].w.Close()
				readers[i] = open(t, r, someRange(rng), cachetest.Start+1+kv.Revision(rng.IntN(int(h.Now()-cachetest.Start))))
			default:
				readers[rng.IntN(len(readers))].read(t, h)
			}
		}
		for i := range m.Shards {
			n.Gate(m.Shards[i].ID).Limit(0)
		}
		for _, x := range readers {
			testkit.Eventually(t, fmt.Sprintf("round %d: %v after %d returns all up to %d", round, x.rng, x.last, h.Now()), func() bool {
				x.read(t, h)
				return x.done(h)
			})
			x.w.Close()
			x.w.Close()
		}
		testkit.Eventually(t, "all watchers and relays are released", func() bool { return n.Idle() == nil })
	}
}

// A watch that waits for one revision after the other reaches each of them, even if its shards reach it while the
// watch decides whether to wait. It reads only when woken, so that a lost wake-up fails the test.
func TestNoWakeUpIsLost(t *testing.T) {
	for name, alone := range map[string]bool{"merged window": false, "alone": true} {
		t.Run(name, func(t *testing.T) {
			h := cachetest.New()
			n := cachetest.NewNode("here", h, nil)
			n.Use(cachetest.Map(1, []string{"h"}, "here"))
			<-n.Replica(1).Ready()
			<-n.Replica(2).Ready()
			r := start(t, h, n)
			if alone {
				r.MergeAlone()
			}
			woken := wait.NewBell()
			w, err := r.Watch(t.Context(), router.WatchRequest{From: h.Now() + 1, Lineage: 1}, woken)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			patience := time.After(testkit.Patience)
			for i := range 2000 {
				var ops []cachetest.Op
				if i%2 == 0 {
					ops = append(ops, cachetest.Put("a", "1"))
				}
				at := h.Commit(ops...)
				n.Replica(2).Demand(at) // quiet: reached by progress alone
				for !w.WakeAt(at) {
					select {
					case <-woken:
					case <-patience:
						t.Fatalf("not woken at %d: shards at %d and %d", at, n.Replica(1).Progress(), n.Replica(2).Progress())
					}
					for revision := kv.Revision(1); revision > 0; {
						if revision, _, err = w.Next(nil); err != nil {
							t.Fatal(err)
						}
					}
				}
				if progress, _ := w.Progress(); progress < at {
					t.Fatalf("progress %d, though %d was reported as reached", progress, at)
				}
			}
		})
	}
}

// Watches that are closed at any time, concurrently with the search for a source,
// leave no watchers or relays behind.
func TestWatchClosedWhileItMoves(t *testing.T) {
	rng := testseed.Rand(t)
	h := cachetest.New()
	n := cachetest.NewNode("here", h, nil)
	r := start(t, h, n)
	n.Use(someMap(rng, 1))
	var busy sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		seed := rng.Uint64()
		busy.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 1))
			for {
				select {
				case <-stop:
					return
				default:
				}
				b := newBell()
				w, err := r.Watch(t.Context(), router.WatchRequest{Range: someRange(rng), From: cachetest.Start + 1}, b)
				if err != nil {
					continue // between two maps
				}
				for range rng.IntN(20) {
					if _, _, err := w.Next(nil); err != nil {
						t.Errorf("next: %v", err)
					}
				}
				w.Close()
			}
		})
	}
	for version := uint64(2); version < 60; version++ {
		h.Commit(someOps(rng)...)
		n.Use(someMap(rng, version))
		r.Kick()
	}
	close(stop)
	busy.Wait()
	testkit.Eventually(t, "all watchers and relays are released", func() bool { return n.Idle() == nil })
}

// next reads until there is an event or an error.
func next(tb testing.TB, w *router.Watch) (revision kv.Revision, events []*kv.Event, err error) {
	tb.Helper()
	testkit.Eventually(tb, "an event or an error", func() bool {
		revision, events, err = w.Next(nil)
		return revision > 0 || err != nil
	})
	return revision, events, err
}

// A transaction over two shards arrives whole even if one of them is late, and Progress
// returns the late shard.
func TestWatchWaitsForTheLateShard(t *testing.T) {
	h := cachetest.New()
	n := cachetest.NewNode("here", h, nil)
	r := start(t, h, n)
	n.Use(cachetest.Map(1, []string{"h"}, "here"))
	x := open(t, r, kv.Range{}, cachetest.Start+1)
	n.Gate(2).Limit(cachetest.Start)
	at := h.Commit(cachetest.Put("a", "1"), cachetest.Put("p", "1"))
	testkit.Eventually(t, "the first shard has it", func() bool { return n.Replica(1).Progress() == at })
	if revision, _, err := x.w.Next(nil); revision != 0 || err != nil {
		t.Fatalf("before the late shard: got %d, %v", revision, err)
	}
	if progress, behind := x.w.Progress(); progress != at-1 || behind != 2 {
		t.Errorf("progress %d, held back by shard %d", progress, behind)
	}
	n.Gate(2).Limit(0)
	if revision, events, err := next(t, x.w); revision != at || len(events) != 2 || err != nil {
		t.Fatalf("%d with %d events, %v", revision, len(events), err)
	}
	x.w.Close()
}

// If a shard is split while its next revision waits for another shard, the watch finds its
// new source. It is not woken repeatedly meanwhile.
func TestWatchWaitsWhileAShardIsSplit(t *testing.T) {
	h := cachetest.New()
	n := cachetest.NewNode("here", h, nil)
	r := start(t, h, n)
	m := cachetest.Map(1, []string{"h", "m"}, "here")
	n.Use(m)
	x := open(t, r, kv.Range{}, cachetest.Start+1)
	n.Gate(2).Limit(cachetest.Start)
	first, second := h.Commit(cachetest.Put("p", "1")), h.Commit(cachetest.Put("a", "1"))
	testkit.Eventually(t, "the others have it", func() bool { return n.Replica(1).Progress() == second && n.Replica(3).Progress() >= first })
	if revision, _, err := x.w.Next(nil); revision != 0 || err != nil {
		t.Fatalf("got %d before all shards have reached it: %v", revision, err)
	}
	m.Spec = shard.Spec{Ranges: []kv.Range{{}}, Shards: 3, Replicas: 1}
	m, err := shard.Apply(m, shard.Command{IfVersion: 1, Change: shard.Split{Shard: 1, At: []string{"c"}}})
	if err != nil {
		t.Fatal(err)
	}
	n.Use(m)
	n.Gate(2).Limit(first)
	if revision, _, err := next(t, x.w); revision != first || err != nil {
		t.Fatalf("got %d, want %d: %v", revision, first, err)
	}
	const most = 1000
	x.bell.Wake()
	for i := 0; x.bell.heard(); i++ {
		if revision, _, err := x.w.Next(nil); revision != 0 || err != nil {
			t.Fatalf("got %d before all shards have reached it: %v", revision, err)
		}
		if i == most {
			t.Fatal("the watch is woken repeatedly")
		}
	}
	n.Gate(2).Limit(0)
	if revision, _, err := next(t, x.w); revision != second || err != nil {
		t.Fatalf("got %d, want %d: %v", revision, second, err)
	}
	x.w.Close()
}

// A watch whose shards have no source ends after a while with a retryable error that names the reason.
func TestWatchWithoutHome(t *testing.T) {
	h := cachetest.New()
	n := cachetest.NewNode("here", h, nil)
	r := start(t, h, n)
	n.Use(cachetest.Map(1, nil, "here"))
	x := open(t, r, kv.Range{}, cachetest.Start+1)
	why := &kv.UnavailableError{Why: kv.NotReady, Detail: "nobody has it"}
	n.RefuseRelays(why)
	n.Use(cachetest.Map(2, nil, "there"))
	_, _, err := next(t, x.w)
	if !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
	x.w.Close()
}

// A watch fails with the floor if its shard returns with a window above the revision of the watch.
func TestAMovedWatchBelowTheFloorIsCompacted(t *testing.T) {
	h := cachetest.New()
	n := cachetest.NewNode("here", h, nil)
	r := start(t, h, n)
	n.Use(cachetest.Map(1, nil, "here"))
	x := open(t, r, kv.Range{}, cachetest.Start+1)
	var last kv.Revision
	for range 5 {
		last = h.Commit(cachetest.Put("a", "1"))
	}
	h.Forget(last)
	n.Use(cachetest.Map(2, nil, "there"))
	var compacted *kv.CompactedError
	if _, _, err := next(t, x.w); !errors.As(err, &compacted) || compacted.Floor != last {
		t.Errorf("got %v, want the floor %d", err, last)
	}
	x.w.Close()
}

// A watch does not continue in another history, even if the revisions would match.
func TestWatchEndsWithItsLineage(t *testing.T) {
	h := cachetest.New()
	n := cachetest.NewNode("here", h, nil)
	r := start(t, h, n)
	n.Use(cachetest.Map(1, nil, "here"))
	x := open(t, r, kv.Range{}, cachetest.Start+1)
	m := cachetest.Map(2, nil, "here")
	m.Lineage = 2
	n.Use(m)
	var lineage *kv.LineageError
	if _, _, err := next(t, x.w); !errors.As(err, &lineage) || lineage.Requested != 1 || lineage.Current != 2 {
		t.Errorf("got %v", err)
	}
	x.w.Close()
	if _, err := r.Watch(t.Context(), router.WatchRequest{From: 11, Lineage: 1}, newBell()); !errors.As(err, &lineage) {
		t.Errorf("a watch from the old lineage: %v", err)
	}
}

// A shard that is still being loaded here is watched through a relay.
func TestWatchWhileTheReplicaLoads(t *testing.T) {
	h := cachetest.New()
	n := cachetest.NewNode("here", h, nil)
	r := start(t, h, n)
	if _, err := r.Watch(t.Context(), router.WatchRequest{From: 1}, newBell()); !isNotReady(err) {
		t.Errorf("without a map: %v", err)
	}
	gate := &cachetest.Gate{}
	gate.Close()
	n = cachetest.NewNode("here", h, func(c *cache.Config) { c.Source = h.Source(gate) })
	r = start(t, h, n)
	n.Use(cachetest.Map(1, nil, "here"))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := r.Watch(ctx, router.WatchRequest{From: cachetest.Start + 1}, newBell()); err == nil {
		t.Error("a shard that is not loaded is watched")
	}
	if r.Here(kv.Range{}) {
		t.Error("a shard that is not loaded is reported as local")
	}
	gate.Limit(0)
	x := open(t, r, kv.Range{}, cachetest.Start+1)
	x.w.Close()
	testkit.Eventually(t, "the shard is here", func() bool { return r.Here(kv.Range{}) })
}

func isNotReady(err error) bool {
	var e *kv.UnavailableError
	return errors.As(err, &e) && e.Why == kv.NotReady
}
