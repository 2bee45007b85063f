package cache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// A shard is split. Whoever watched the parent goes on at a child from any
// revision that the parent could have served, and reads there the same.
func TestSplitInheritsWindowAndState(t *testing.T) {
	rng := newRand(t)
	s := newScript()
	cfg := small(s)
	cfg.WindowBytes = 100 << 10
	parent := New(cfg)
	stop := run(t, parent)
	s.play(begin(10, 11), ready())
	touched := map[string][]kv.Revision{}
	for revision := kv.Revision(11); revision < 2000; revision++ {
		b := batch(revision)
		for i := range 10 {
			if k := fmt.Sprint(i); rng.IntN(8) == 0 {
				b.Events = append(b.Events, put(k, revision))
				touched[k] = append(touched[k], revision)
			}
		}
		if len(b.Events) > 0 {
			s.play(live(b))
		}
	}
	s.play(progress(2005))
	follows(t, parent, 2005)
	floor := parent.Floor()
	if floor == 11 {
		t.Fatal("the test wants a window that has moved")
	}
	if parent.Seed(kv.Range{Start: "a"}) == nil {
		t.Error("an empty part is a part")
	}
	stop()

	for _, r := range []kv.Range{{End: "5"}, {Start: "5"}} {
		childSource := newScript()
		cfg := small(childSource)
		cfg.Range, cfg.Seed = r, parent.Seed(r)
		child := New(cfg)
		select {
		case <-child.Ready():
		default:
			t.Fatal("a child with a seed is ready at once")
		}
		if child.Floor() != floor || child.Progress() != 2005 {
			t.Errorf("child of %v: floor %d, progress %d", r, child.Floor(), child.Progress())
		}
		run(t, child)
		if req := childSource.request(t); req.From != 2006 {
			t.Errorf("child follows from %d", req.From)
		}
		childSource.play(begin(2005, 0), ready(), live(puts(2006, r.Start+"0")), progress(2010))
		follows(t, child, 2010)
		for k, revisions := range touched {
			if !r.Contains(k) {
				continue
			}
			from := floor + kv.Revision(rng.IntN(int(2005-floor)))
			at, _ := slices.BinarySearch(revisions, from)
			want := revisions[at:]
			if r.Start+"0" == k {
				want = append(slices.Clone(want), 2006)
			}
			if got := drain(t, watch(t, child, kv.Single(k), from, &wakes{})); !slices.Equal(got, want) {
				t.Errorf("%q from %d: %v, not %v", k, from, got, want)
			}
		}
		_, err := child.Watch(r, floor-1, &wakes{})
		var compacted *kv.CompactedError
		if !errors.As(err, &compacted) || compacted.Floor != floor {
			t.Errorf("below the parent's floor: %v", err)
		}
		snap, err := child.At(t.Context(), 2005)
		if err != nil {
			t.Fatal(err)
		}
		snap.Ascend(all, func(item *kv.KeyValue) bool {
			k := string(item.Key())
			if !r.Contains(k) || item.ModRevision() != touched[k][len(touched[k])-1] {
				t.Errorf("%q at %d in %v", k, item.ModRevision(), r)
			}
			return true
		})
		if snap.Len() != 5 {
			t.Errorf("%d keys", snap.Len())
		}
	}
}

func TestNothingToInherit(t *testing.T) {
	if New(small(nil)).Seed(all) != nil {
		t.Error("a seed of a cache that was never loaded")
	}
	cfg := small(nil)
	cfg.Range = kv.Prefix("/a/")
	if loaded(cfg, 10).Seed(kv.Prefix("/b/")) != nil {
		t.Error("a seed of keys that are not held")
	}
}

// A peer that takes an export, then watches from behind it, is the cache's
// equal at every revision both can serve.
func TestExportMakesAnEqual(t *testing.T) {
	rng := newRand(t)
	s := newStore(rng, 40, 1500)
	for range 50 {
		s.grow()
	}
	cfg := small(s)
	cfg.WindowBytes = 64 << 10
	owner := New(cfg)
	run(t, owner)
	<-owner.Ready()
	for range 20 {
		from := newScript()
		replica := New(small(from))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = replica.Run(ctx) }()

		x, err := owner.Export()
		if err != nil {
			t.Fatal(err)
		}
		from.play(begin(x.Snapshot.Revision, x.Floor))
		x.Snapshot.Ascend(all, func(item *kv.KeyValue) bool { from.play(state(item)); return true })
		for b := range x.History() {
			if b.Revision < x.Floor || b.Revision > x.Snapshot.Revision {
				t.Errorf("history of %d in [%d, %d]", b.Revision, x.Floor, x.Snapshot.Revision)
			}
			from.play(history(kv.Batch{Revision: b.Revision, Events: slices.Clone(b.Events), Received: b.Received}))
		}
		from.play(ready())
		follows(t, replica, x.Snapshot.Revision)
		if replica.Floor() != x.Floor {
			t.Errorf("floor %d, not %d", replica.Floor(), x.Floor)
		}
		r := client{s: s, c: replica, rng: rng}
		for next := x.Floor; ; {
			w := watch(t, replica, all, next, &wakes{})
			revision, events, err := w.Next(nil)
			if err != nil {
				t.Fatal(err)
			}
			if revision == 0 {
				break
			}
			if err := r.compare(all, next, revision, events); err != nil {
				t.Fatal(err)
			}
			next = revision + 1
			w.Close()
		}
		cancel()
		<-done
	}
}
