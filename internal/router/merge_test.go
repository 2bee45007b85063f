package router_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
)

// merging runs f with a node that has the shards 1 (below h) and 2 of an empty
// history, on fake time.
func merging(t *testing.T, f func(t *testing.T, n *cachetest.Node, r *router.Router, h *cachetest.Script)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := cachetest.New()
		n := cachetest.NewNode("here", h, nil)
		n.Use(cachetest.Map(1, []string{"h"}, "here"))
		<-n.Replica(1).Ready()
		<-n.Replica(2).Ready()
		f(t, n, start(t, h, n), h)
	})
}

// mergingEachWay runs merging twice: with watches that read a merged window, and with
// watches that merge separately.
func mergingEachWay(t *testing.T, f func(t *testing.T, n *cachetest.Node, r *router.Router, h *cachetest.Script)) {
	t.Helper()
	t.Run("merged window", func(t *testing.T) { merging(t, f) })
	t.Run("alone", func(t *testing.T) {
		merging(t, func(t *testing.T, n *cachetest.Node, r *router.Router, h *cachetest.Script) {
			r.MergeAlone()
			f(t, n, r, h)
		})
	})
}

func watch(t *testing.T, r *router.Router, rng kv.Range, from kv.Revision, b *bell) *router.Watch {
	t.Helper()
	w, err := r.Watch(t.Context(), router.WatchRequest{Range: rng, From: from, Lineage: 1}, b)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// A revision that a merge has taken and holds back is not progress, even if all shards have
// reached it, because its events were not sent to the client.
func TestHeldBackEventsAreNotProgress(t *testing.T) {
	mergingEachWay(t, func(t *testing.T, n *cachetest.Node, r *router.Router, h *cachetest.Script) {
		w := watch(t, r, kv.Range{}, cachetest.Start+1, newBell())
		n.Gate(2).Limit(cachetest.Start)
		at := h.Commit(cachetest.Put("a", "1"))
		synctest.Wait()
		if p, open := w.Position(); !open || p.Revision != at-1 || p.Newest != at-1 || !p.Since.IsZero() {
			t.Errorf("late before the read, though no event can be delivered: %+v", p)
		}
		if revision, _, err := w.Next(nil); revision != 0 || err != nil {
			t.Fatalf("got %d, %v", revision, err)
		}
		if furthest, newest := w.Furthest(), w.Newest(); furthest != at || newest != at {
			t.Errorf("furthest %d, newest %d, want %d", furthest, newest, at)
		}
		if progress, behind := w.Progress(); progress != at-1 || behind != 2 {
			t.Errorf("progress %d, shard %d is late", progress, behind)
		}
		if p, open := w.Position(); !open || p.Revision != at-1 || p.Newest != at-1 || !p.Since.IsZero() {
			t.Errorf("late, though no event can be delivered: %+v", p)
		}
		n.Gate(2).Limit(0)
		next := h.Commit(cachetest.Put("p", "1"))
		synctest.Wait()
		if n.Replica(2).Progress() != next {
			t.Fatalf("shard 2 is at %d", n.Replica(2).Progress())
		}
		if progress, behind := w.Progress(); progress != at-1 || behind == 0 {
			t.Errorf("progress %d, though the events of %d were not returned", progress, at)
		}
		if p, open := w.Position(); !open || p.Revision != at-1 || p.Newest < at || p.Since.IsZero() {
			t.Errorf("position %+v", p)
		}
		for _, want := range []kv.Revision{at, next} {
			if revision, events, err := w.Next(nil); revision != want || len(events) != 1 || err != nil {
				n.Replica(1).Demand(next)
				synctest.Wait()
				if revision, events, err = w.Next(nil); revision != want || len(events) != 1 || err != nil {
					t.Fatalf("got %d with %d events, %v, want %d", revision, len(events), err, want)
				}
			}
			if progress, _ := w.Progress(); progress < want {
				t.Errorf("progress %d, want %d", progress, want)
			}
		}
		if revision, _, err := w.Next(nil); revision != 0 || err != nil {
			t.Errorf("after the end: %d, %v", revision, err)
		}
		if p, open := w.Position(); !open || p.Revision != p.Newest || !p.Since.IsZero() {
			t.Errorf("position at the end %+v", p)
		}
		w.Close()
	})
}

// A taken and deliverable revision counts as late from the time it was received.
func TestAMergeIsLateSinceItCouldDeliver(t *testing.T) {
	mergingEachWay(t, func(t *testing.T, n *cachetest.Node, r *router.Router, h *cachetest.Script) {
		w := watch(t, r, kv.Range{}, cachetest.Start+1, newBell())
		defer w.Close()
		n.Gate(2).Limit(cachetest.Start)
		at := h.Commit(cachetest.Put("a", "1"))
		synctest.Wait()
		received := time.Now()
		if revision, _, err := w.Next(nil); revision != 0 || err != nil {
			t.Fatalf("got %d, %v", revision, err)
		}
		time.Sleep(time.Second)
		n.Gate(2).Limit(0)
		n.Replica(2).Demand(at)
		synctest.Wait()
		if p, open := w.Position(); !open || p.Revision != at-1 || p.Newest != at || !p.Since.Equal(received) {
			t.Errorf("position %+v, want late since %v", p, received)
		}
		if progress, _ := w.Progress(); progress != at-1 {
			t.Errorf("progress %d, though %d was not returned", progress, at)
		}
	})
}

// Events of two shards come in the order of their revisions.
func TestAMergeIsInOrder(t *testing.T) {
	mergingEachWay(t, func(t *testing.T, n *cachetest.Node, r *router.Router, h *cachetest.Script) {
		w := watch(t, r, kv.Range{}, cachetest.Start+1, newBell())
		defer w.Close()
		for _, key := range []string{"a", "p", "b", "q"} {
			h.Commit(cachetest.Put(key, "1"))
		}
		last := h.Commit(cachetest.Put("c", "1"), cachetest.Put("r", "1"))
		synctest.Wait()
		for want := cachetest.Start + 1; want <= last; want++ {
			revision, events, err := w.Next(nil)
			if due := len(h.Batches(kv.Range{}, want-1, want)[0].Events); revision != want || len(events) != due || err != nil {
				t.Fatalf("got %d with %d events, %v, want %d with %d", revision, len(events), err, want, due)
			}
		}
		if revision, _, err := w.Next(nil); revision != 0 || err != nil {
			t.Errorf("after the end: %d, %v", revision, err)
		}
	})
}

// The age of a merge is that of its oldest shard.
func TestTheAgeOfAMerge(t *testing.T) {
	mergingEachWay(t, func(t *testing.T, n *cachetest.Node, r *router.Router, h *cachetest.Script) {
		w := watch(t, r, kv.Range{}, cachetest.Start+1, newBell())
		defer w.Close()
		fresh := func(id shard.ID) { n.Replica(id).Observe(time.Now(), n.Replica(id).Progress()) }
		for _, id := range []shard.ID{2, 1} {
			if _, known := w.Age(); known {
				t.Error("the age is known, though the age of one shard is not")
			}
			fresh(id)
			time.Sleep(time.Second)
		}
		if age, known := w.Age(); !known || age != 2*time.Second {
			t.Errorf("%v, %v", age, known)
		}
		fresh(2)
		time.Sleep(time.Second)
		if age, known := w.Age(); !known || age != 2*time.Second {
			t.Errorf("%v, %v", age, known)
		}
		n.Gate(1).Limit(h.Now()) // shard 2 gets ahead
		before := h.Now()
		h.Commit(cachetest.Put("z", "1"))
		synctest.Wait()
		if age, at, known := w.AgeAt(); !known || age != 2*time.Second || at != before {
			t.Errorf("%v at %d, %v; shard 1 is at %d", age, at, known, before)
		}
	})
}

// WakeAt wakes once every shard of the watch has reached the revision, including quiet
// shards. It has no effect for a revision that is already reached.
func TestWakeAt(t *testing.T) {
	for name, rng := range map[string]kv.Range{"one shard": {Start: "a", End: "c"}, "two shards": {Start: "a", End: "k"}} {
		t.Run(name, func(t *testing.T) {
			merging(t, func(t *testing.T, n *cachetest.Node, r *router.Router, h *cachetest.Script) {
				b := newBell()
				w := watch(t, r, rng, cachetest.Start+1, b)
				defer w.Close()
				b.heard()
				n.Gate(1).Limit(h.Now())
				at := h.Commit(cachetest.Put("z", "1"))
				if w.WakeAt(at) {
					t.Error("at the revision, though a shard has not reached it")
				}
				synctest.Wait()
				if b.heard() {
					t.Error("woken though a shard has not reached the revision")
				}
				n.Gate(1).Limit(0)
				synctest.Wait()
				if !b.heard() {
					t.Error("not woken")
				}
				if n.Replica(1).Progress() < at {
					t.Errorf("the quiet shard is at %d", n.Replica(1).Progress())
				}
				for {
					if revision, _, err := w.Next(nil); err != nil {
						t.Fatal(err)
					} else if revision == 0 {
						break
					}
				}
				b.heard()
				progress, _ := w.Progress()
				if progress < at || !w.WakeAt(progress) || !w.WakeAt(progress-1) {
					t.Errorf("waits for a revision that is reached; progress %d, want %d at least", progress, at)
				}
				synctest.Wait()
				if b.heard() {
					t.Error("woken for a revision that is reached")
				}
			})
		})
	}
}

// A shard may reach the held-back revision after the watch has checked the shard, and before the watch
// waits for it. It gets there by progress alone, which wakes no watcher: the watch checks again, and a
// watch with a WakeAt for that revision is woken.
func TestAMergeDoesNotWaitForAShardThatHasCome(t *testing.T) {
	merging(t, func(t *testing.T, n *cachetest.Node, r *router.Router, h *cachetest.Script) {
		r.MergeAlone()
		b := newBell()
		w := watch(t, r, kv.Range{}, h.Now()+1, b)
		defer w.Close()
		comes := func() (at kv.Revision) {
			t.Helper()
			n.Gate(2).Limit(h.Now())
			at = h.Commit(cachetest.Put("a", "1"))
			synctest.Wait()
			if revision, err := w.LookAlone(); revision != 0 || err != nil {
				t.Fatalf("got %d, %v, though shard 2 may have an earlier event", revision, err)
			}
			b.heard()
			n.Gate(2).Limit(0)
			n.Replica(2).Demand(at)
			synctest.Wait()
			if n.Replica(2).Progress() < at || b.heard() {
				t.Fatal("the test needs shard 2 to reach the revision without a wake-up")
			}
			return at
		}
		delivers := func(at kv.Revision) {
			t.Helper()
			if revision, events, err := w.Next(nil); revision != at || len(events) != 1 || err != nil {
				t.Fatalf("got %d with %d events, %v, want %d", revision, len(events), err, at)
			}
		}
		at := comes()
		if w.WaitAlone() {
			t.Error("waits for a shard that has reached the revision")
		}
		delivers(at)
		at = comes()
		if w.WakeAt(at) || !b.heard() {
			t.Error("not woken at a revision that all shards have reached, and whose events were not returned")
		}
		delivers(at)
		if revision, _, err := w.Next(nil); revision != 0 || err != nil || !w.WaitAlone() {
			t.Errorf("after the end: %d, %v", revision, err)
		}
	})
}

// WakeAt of a merge waits for each shard below the revision, including a shard whose event is
// held back by another shard.
func TestAMergeWaitsForAShardWithAnEventThatIsHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := cachetest.New()
		n := cachetest.NewNode("here", h, nil)
		n.Use(cachetest.Map(1, []string{"h", "p"}, "here"))
		for id := shard.ID(1); id <= 3; id++ {
			<-n.Replica(id).Ready()
		}
		r := start(t, h, n)
		r.MergeAlone()
		b := newBell()
		w := watch(t, r, kv.Range{}, h.Now()+1, b)
		defer w.Close()
		began := h.Now()
		n.Gate(1).Limit(began + 3)
		n.Gate(2).Limit(began)
		at := h.Commit(cachetest.Put("a", "1"))
		for range 9 {
			h.Commit() // outside the watched range
		}
		wanted := h.Now()
		n.Replica(1).Demand(at + 2)
		n.Replica(3).Demand(wanted)
		synctest.Wait()
		if revision, _, err := w.Next(nil); revision != 0 || err != nil {
			t.Fatalf("got %d, %v, though shard 2 may have an earlier event", revision, err)
		}
		w.WakeAt(wanted)
		synctest.Wait()
		b.heard()
		n.Gate(2).Limit(0)
		synctest.Wait()
		if !b.heard() {
			t.Fatal("not woken when the event can be delivered")
		}
		if revision, _, err := w.Next(nil); revision != at || err != nil {
			t.Fatalf("got %d, %v, want %d", revision, err, at)
		}
		if revision, _, err := w.Next(nil); revision != 0 || err != nil {
			t.Fatalf("got %d, %v", revision, err)
		}
		if progress, behind := w.Progress(); progress != at+2 || behind != 1 {
			t.Fatalf("progress %d, shard %d is late; want %d and shard 1", progress, behind, at+2)
		}
		b.heard()
		w.WakeAt(wanted)
		synctest.Wait()
		if b.heard() {
			t.Error("woken before shard 1 has reached the revision")
		}
		n.Gate(1).Limit(0)
		synctest.Wait()
		if !b.heard() {
			t.Error("not woken at the revision, which all shards have reached")
		}
		if progress, _ := w.Progress(); progress != wanted {
			t.Errorf("progress %d, want %d", progress, wanted)
		}
	})
}

// After several calls of WakeAt, the lowest revision counts.
func TestWakeAtTheLowest(t *testing.T) {
	merging(t, func(t *testing.T, n *cachetest.Node, r *router.Router, h *cachetest.Script) {
		b := newBell()
		w := watch(t, r, kv.Range{Start: "g", End: "i"}, cachetest.Start+1, b)
		b.heard()
		now := h.Now()
		for _, at := range []kv.Revision{now + 5, now + 3, now + 4, now + 3} {
			w.WakeAt(at)
		}
		if held := r.HoldingBack(); len(held) > 0 {
			t.Errorf("a watch without events is held back: %v", held)
		}
		for i := range 3 {
			h.Commit(cachetest.Put("a", "1"), cachetest.Put("p", "1")) // both shards reach the revision
			synctest.Wait()
			if woken := b.heard(); woken != (i == 2) {
				t.Errorf("woken at %d: %v", h.Now(), woken)
			}
		}
		w.Close()
		if windows, users, _ := r.Shared(); windows+users > 0 {
			t.Errorf("%d windows with %d watches are left", windows, users)
		}
	})
}

// Watches that share a merged window leave it one by one. The others stay, and have the
// hold-back time of the window.
func TestWatchesLeaveTheirWindowOneByOne(t *testing.T) {
	merging(t, func(t *testing.T, n *cachetest.Node, r *router.Router, h *cachetest.Script) {
		var bells []*bell
		var watches []*router.Watch
		n.Gate(2).Limit(h.Now())
		at := h.Commit(cachetest.Put("a", "1"))
		synctest.Wait()
		for range 4 {
			b := newBell()
			w := watch(t, r, kv.Range{}, at, b)
			synctest.Wait()
			for range 2 { // the second time it still waits
				if revision, _, err := w.Next(nil); revision != 0 || err != nil {
					t.Fatal(revision, err)
				}
			}
			synctest.Wait()
			b.heard()
			bells, watches = append(bells, b), append(watches, w)
			time.Sleep(time.Second)
		}
		if age := r.HoldingBack()[n.Replica(2)]; age != 4*time.Second || len(r.HoldingBack()) != 1 {
			t.Errorf("held back for %v", r.HoldingBack())
		}
		shared := func(windows, users int) {
			t.Helper()
			synctest.Wait()
			if w, u, readers := r.Shared(); w != windows || u != users || readers != users {
				t.Errorf("%d watches, %d reading %d windows, want %d of %d", u, readers, w, users, windows)
			}
		}
		shared(1, 4)
		watches[0].Close()
		watches[0].Close()
		shared(1, 3)
		watches[3].Close()
		shared(1, 2)
		n.Gate(2).Limit(0)
		synctest.Wait()
		for i, b := range bells {
			if stays := i == 1 || i == 2; b.heard() != stays {
				t.Errorf("watch %d: woken %v", i, !stays)
			}
		}
		for _, i := range []int{1, 2} {
			if revision, _, err := watches[i].Next(nil); revision != at || err != nil {
				t.Errorf("watch %d: %d, %v", i, revision, err)
			}
		}
		watches[1].Close()
		shared(1, 1)
		watches[2].Close()
		shared(0, 0)
		if err := n.Idle(); err != nil {
			t.Error(err)
		}
	})
}

// A watch without a source keeps its progress, and its position has the time at which it lost the source.
func TestAHomelessWatchKeepsItsPosition(t *testing.T) {
	mergingEachWay(t, func(t *testing.T, n *cachetest.Node, r *router.Router, h *cachetest.Script) {
		for _, rng := range []kv.Range{{}, {Start: "a", End: "c"}} {
			n.Use(cachetest.Map(uint64(h.Now()), []string{"h"}, "here"))
			<-n.Replica(1).Ready()
			<-n.Replica(2).Ready()
			w := watch(t, r, rng, h.Now()+1, newBell())
			at := h.Commit(cachetest.Put("none", "1"))
			n.Replica(1).Demand(at)
			n.Replica(2).Demand(at)
			synctest.Wait()
			for range 2 { // the batch has none of its keys
				if _, _, err := w.Next(nil); err != nil {
					t.Fatal(err)
				}
			}
			if progress, _ := w.Progress(); progress != at {
				t.Fatalf("%v: progress %d, want %d", rng, progress, at)
			}
			n.RefuseRelays(errors.New("no relay"))
			away := cachetest.Map(uint64(h.Now()), []string{"h"}, "there")
			n.Use(away)
			synctest.Wait()
			if _, _, err := w.Next(nil); err != nil {
				t.Fatal(err)
			}
			left := time.Now()
			time.Sleep(time.Second)
			if progress, behind := w.Progress(); progress != at || behind != 0 {
				t.Errorf("%v: progress %d without a source, want %d", rng, progress, at)
			}
			if _, known := w.Age(); known || w.Furthest() != at || w.Newest() != at {
				t.Errorf("%v: age known, furthest %d, newest %d", rng, w.Furthest(), w.Newest())
			}
			w.WakeAt(at + 1)
			if p, open := w.Position(); !open || p.Revision != at || p.Newest != at || !p.Since.Equal(left) {
				t.Errorf("%v: position %+v, %v", rng, p, open)
			}
			h.Commit(cachetest.Put("a", "1"))
			n.Use(cachetest.Map(uint64(h.Now()), []string{"h"}, "here"))
			n.RefuseRelays(nil) // only now: a relay would be the new source
			r.Kick()
			time.Sleep(time.Second)
			if p, open := w.Position(); !open || p.Revision != at || p.Newest < at+1 {
				t.Errorf("%v: position at the new source %+v, %v", rng, p, open)
			}
			n.Replica(2).Demand(h.Now())
			synctest.Wait()
			if revision, _, err := w.Next(nil); revision != at+1 || err != nil {
				t.Errorf("%v: %d, %v", rng, revision, err)
			}
			w.Close()
			if _, open := w.Position(); open {
				t.Errorf("%v: a closed watch has a position", rng)
			}
			w = watch(t, r, rng, h.Now()+1, newBell())
			n.RefuseRelays(errors.New("no relay"))
			n.Use(cachetest.Map(uint64(h.Now()), []string{"h"}, "there"))
			synctest.Wait()
			if _, _, err := w.Next(nil); err != nil {
				t.Fatal(err)
			}
			w.Close()
			if _, open := w.Position(); open {
				t.Errorf("%v: a watch that was closed without a source has a position", rng)
			}
			n.RefuseRelays(nil)
		}
	})
}

func TestEarlier(t *testing.T) {
	var none time.Time
	a, b := time.Unix(1, 0), time.Unix(2, 0)
	for _, c := range []struct{ x, y, want time.Time }{{none, none, none}, {a, none, a}, {none, a, a}, {a, b, a}, {b, a, a}, {a, a, a}} {
		if got := router.Earlier(c.x, c.y); !got.Equal(c.want) {
			t.Errorf("of %v and %v: %v", c.x, c.y, got)
		}
	}
}
