package cache

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/shardwatch/shardwatch/internal/data/keytree"
	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// After a split, a watcher of the parent can resume on a child from any revision that the
// parent could serve, and reads the same events.
func TestSplitInheritsWindowAndState(t *testing.T) {
	rng := testseed.Rand(t)
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
		t.Fatal("the test needs a window that has moved")
	}
	if Inherit(kv.Range{Start: "a"}, false, parent) == nil {
		t.Error("an empty range inherits a seed")
	}
	stop()

	for _, r := range []kv.Range{{End: "5"}, {Start: "5"}} {
		childSource := newScript()
		cfg := small(childSource)
		cfg.Range, cfg.Seed = r, Inherit(r, false, parent)
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
			t.Errorf("watch below the parent's floor: %v", err)
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
	if Inherit(all, false) != nil || Inherit(all, false, New(small(nil))) != nil {
		t.Error("a seed of a cache that was never loaded")
	}
	part := func(r kv.Range) *Cache {
		cfg := small(nil)
		cfg.Range = r
		return loaded(cfg, 10)
	}
	a, c := part(kv.Prefix("/a/")), part(kv.Prefix("/c/"))
	if Inherit(kv.Prefix("/b/"), false, a, c) != nil {
		t.Error("a seed of keys that are not held")
	}
	if Inherit(kv.Range{Start: "/a/", End: "/c0"}, false, a, c) != nil {
		t.Error("a seed with a gap")
	}
	relay := small(nil)
	relay.Stateless = true
	if r := loaded(relay, 10); Inherit(all, false, r) != nil || Inherit(all, true, r) == nil {
		t.Error("a relay's heir is a relay")
	}
}

// Two shards at different revisions are merged, and the shard ahead no longer has its state
// at the other's revision.
func TestTooFarApartToMerge(t *testing.T) {
	left, right := small(nil), small(nil)
	left.Range, right.Range = kv.Range{End: "m"}, kv.Range{Start: "m"}
	right.RootsBytes = 0
	a, b := loaded(left, 10), loaded(right, 10)
	two := puts(12, "x")
	b.apply(&two)
	if Inherit(all, false, a, b) != nil {
		t.Error("inherited, though no cache has the state of revision 10")
	}
	one := puts(12, "a")
	a.apply(&one)
	s := Inherit(all, false, a, b)
	if s == nil || len(s.past.Batches) != 1 || len(s.past.Batches[0].Events) != 2 {
		t.Fatalf("the batches of both at 12 are not one: %+v", s)
	}
}

// Shards are split, merged and cut differently many times, at random progress. The states,
// the window and the old deletes of each resulting cache agree with the model.
func TestSplitsAndMergesAgainstModel(t *testing.T) {
	rng := testseed.Rand(t)
	generations := 150
	if testing.Short() {
		generations = 30
	}
	s := newStore(rng, 60, 0)
	for range 100 {
		s.grow()
	}
	config := func(r kv.Range, seed *Seed) Config {
		cfg := small(nil)
		cfg.Range, cfg.Seed = r, seed
		cfg.WindowBytes, cfg.TombstoneBytes = 16<<10, 1<<20
		return cfg
	}
	caches := []*Cache{New(config(all, nil))}
	caches[0].load(keytree.New(), &Past{Progress: 1, Floor: 2, DeltaFloor: 2})
	roots, reads := 0, 0
	for range generations {
		for range rng.IntN(80) {
			s.grow()
		}
		now, _ := s.head()
		for _, c := range caches {
			advanceTo(s, c, max(c.Progress(), now-kv.Revision(rng.IntN(20))))
		}
		meet(s, caches)
		var heirs []*Cache
		for _, r := range somePartition(rng, s) {
			seed := Inherit(r, false, caches...)
			if seed == nil {
				t.Fatalf("%v inherits no seed", r)
			}
			heirs = append(heirs, New(config(r, seed)))
		}
		for _, c := range heirs {
			progress, floor, oldest := kv.Revision(1<<60), kv.Revision(0), kv.Revision(0)
			for _, p := range caches {
				if p.Range().Overlaps(c.Range()) {
					progress, floor = min(progress, p.Progress()), max(floor, p.Floor())
					_, root := p.rootAt(p.view.Load(), 0)
					oldest = max(oldest, root)
				}
			}
			if c.Progress() != progress || c.Floor() < floor {
				t.Fatalf("heir of %v is at %d with floor %d, its parents at %d with %d", c.Range(), c.Progress(), c.Floor(), progress, floor)
			}
			x := client{s: s, c: c, rng: rng}
			oldest = max(oldest, floor-1)
			for at := oldest; at <= progress; at++ {
				if err := x.stateAt(at); err != nil {
					t.Fatal(err)
				}
				roots++
			}
			for range 10 {
				reads++
				from := c.Floor() + kv.Revision(rng.Int64N(int64(progress-c.Floor()+2)))
				if err := x.replay(from); err != nil {
					t.Fatal(err)
				}
				low := max(1, c.DeltaFloor()-1)
				since := low + kv.Revision(rng.Int64N(int64(progress-low+1)))
				if err := x.changesOf(t.Context(), x.randomRangeIn(c.Range()), since, 0); err != nil {
					t.Fatal(err)
				}
			}
		}
		caches = heirs
	}
	t.Logf("%d states of the past, %d replays", roots, reads)
}

// meet advances caches that have not reached the start of another cache's window, because
// no cache can inherit from them (TestTooFarApartToMerge).
func meet(s *store, caches []*Cache) {
	for apart := true; apart; {
		floor := kv.Revision(0)
		for _, c := range caches {
			floor = max(floor, c.Floor())
		}
		apart = false
		for _, c := range caches {
			if c.Progress() < floor-1 {
				advanceTo(s, c, floor-1)
				apart = true
			}
		}
	}
}

// somePartition cuts all keys in up to four ranges.
func somePartition(rng *rand.Rand, s *store) []kv.Range {
	var cuts []string
	for range rng.IntN(4) {
		cuts = append(cuts, s.keys[rng.IntN(len(s.keys))])
	}
	slices.Sort(cuts)
	var out []kv.Range
	start := ""
	for _, c := range slices.Compact(cuts) {
		out = append(out, kv.Range{Start: start, End: c})
		start = c
	}
	return append(out, kv.Range{Start: start})
}

// advanceTo applies the events up to a revision to a cache that is not running.
func advanceTo(s *store, c *Cache, revision kv.Revision) {
	for _, at := range s.between(c.Progress()+1, revision) {
		whole := s.batch(at)
		b := kv.Batch{Revision: at, Received: whole.Received}
		for _, e := range whole.Events {
			if c.Range().ContainsBytes(e.KV.Key()) {
				b.Events = append(b.Events, e)
			}
		}
		if len(b.Events) > 0 {
			c.apply(&b)
		}
	}
	c.advance(revision)
}

func (x *client) randomRangeIn(in kv.Range) kv.Range {
	for {
		if r, some := x.randomRange().Intersect(in); some {
			return r
		}
	}
}

// stateAt compares the state at a revision with the store.
func (x *client) stateAt(revision kv.Revision) error {
	snap, err := x.c.At(context.Background(), revision)
	if err != nil {
		return fmt.Errorf("state at %d: %w", revision, err)
	}
	want := map[string]kv.Revision{}
	for k, v := range x.s.at(revision) {
		if x.c.Range().Contains(k) {
			want[k] = v.mod
		}
	}
	got := map[string]kv.Revision{}
	snap.Ascend(all, func(item *kv.KeyValue) bool {
		got[string(item.Key())] = item.ModRevision()
		return true
	})
	if !maps.Equal(got, want) {
		return fmt.Errorf("state of %v at %d: %v, not %v", x.c.Range(), revision, got, want)
	}
	return nil
}

// replay watches a random range from a revision to the cache's progress.
func (x *client) replay(from kv.Revision) error {
	r := x.randomRangeIn(x.c.Range())
	w, err := x.c.Watch(r, from, &wakes{})
	if err != nil {
		return fmt.Errorf("watch %v from %d: %w", r, from, err)
	}
	defer w.Close()
	for next := from; ; {
		revision, events, err := w.Next(nil)
		if err != nil {
			return fmt.Errorf("watch %v from %d: %w", r, next, err)
		}
		if revision == 0 {
			if missed, _ := x.s.after(r, next); missed > 0 && missed <= x.c.Progress() {
				return fmt.Errorf("watch %v from %d: %d is missing", r, from, missed)
			}
			return nil
		}
		if err := x.compare(r, next, revision, events); err != nil {
			return fmt.Errorf("watch %v from %d: %w", r, from, err)
		}
		next = revision + 1
	}
}

// A peer that loads an export, then watches from the next revision, equals the cache
// at every revision that both can serve.
func TestAnExportedCacheEqualsItsOrigin(t *testing.T) {
	rng := testseed.Rand(t)
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

// Caches that together cover a range return its events, up to their lowest progress.
func TestSinceIsOfOneMoment(t *testing.T) {
	left, right := small(nil), small(nil)
	left.Range, right.Range = kv.Range{End: "m"}, kv.Range{Start: "m"}
	a, b := loaded(left, 10), loaded(right, 10)
	for _, one := range []kv.Batch{puts(11, "a"), puts(12, "b"), puts(14, "c")} {
		a.apply(&one)
	}
	for _, one := range []kv.Batch{puts(12, "x", "y"), puts(13, "z")} {
		b.apply(&one)
	}
	whole := kv.Range{Start: "b", End: "z"}
	for _, c := range []struct {
		from, progress kv.Revision
		want           []string
	}{
		{11, 13, []string{"12 b x y"}},
		{12, 13, []string{"12 b x y"}},
		{13, 13, nil},
		{14, 13, nil}, // b has not reached 14
	} {
		batches, progress, err := Since(whole, c.from, a, b)
		var got []string
		for _, one := range batches {
			what := fmt.Sprint(one.Revision)
			for _, e := range one.Events {
				what += " " + string(e.KV.Key())
			}
			got = append(got, what)
		}
		if err != nil || progress != c.progress || !slices.Equal(got, c.want) {
			t.Errorf("from %d: %q up to %d, %v; want %q up to %d", c.from, got, progress, err, c.want, c.progress)
		}
	}
	var compacted *kv.CompactedError
	if _, _, err := Since(whole, 10, a, b); !errors.As(err, &compacted) || compacted.Floor != 11 {
		t.Errorf("before the floor: %v", err)
	}
	if _, _, err := Since(whole, 11, a); !errors.Is(err, ErrNotReady) {
		t.Errorf("with one of the two caches: %v", err)
	}
}
