package cache

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// A list has the existing keys, but no deletes: a state without history is valid only at
// its own revision.
func TestStateWithoutHistoryHoldsAtItsRevisionOnly(t *testing.T) {
	for _, c := range []struct {
		name   string
		floor  kv.Revision
		hist   []kv.Batch
		oldest kv.Revision // that can be read
	}{
		{"no floor given", 0, nil, 100},
		{"no history", 101, nil, 100},
		{"quiet since the floor", 90, nil, 89},
		{"delete in the history", 90, []kv.Batch{puts(92, "a"), batch(95, del("b", 95))}, 95},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript()
			cache := New(small(s))
			run(t, cache)
			s.play(begin(100, c.floor), state(item("a", "x", 80)))
			for _, b := range c.hist {
				s.play(history(b))
			}
			s.play(ready())
			follows(t, cache, 100)
			for _, revision := range []kv.Revision{0, c.oldest, 100} {
				snap, err := cache.At(t.Context(), revision)
				if err != nil {
					t.Fatalf("at %d: %v", revision, err)
				}
				if snap.Len() != 1 || (revision > 0 && snap.Revision != revision) {
					t.Errorf("at %d: %d keys at %d", revision, snap.Len(), snap.Revision)
				}
			}
			_, err := cache.At(t.Context(), c.oldest-1)
			var compacted *kv.CompactedError
			if !errors.As(err, &compacted) || compacted.Floor != c.oldest {
				t.Errorf("at %d: %v", c.oldest-1, err)
			}
		})
	}
}

// The status of a loading cache counts the received bytes as the status of a loaded
// cache does. Bytes from a lost source no longer count.
func TestStatusWhileLoading(t *testing.T) {
	s := newScript()
	c := New(small(s))
	run(t, c)
	gone := kv.Update{Kind: kv.UpdateTombstones, Tombstones: []kv.Tombstone{{Key: "x", Revision: 85}}}
	given := begin(100, 90)
	given.DeltaFloor = 80
	parts := []kv.Update{given, gone, state(item("a", "x", 92)), state(item("b", "y", 70)), history(puts(92, "a"))}
	s.request(t)
	s.play(parts...)
	s.lose(t, errLost)
	s.play(begin(100, 0), state(item("a", "x", 92)))
	s.lose(t, errLost)
	one := c.Status()
	if one.Ready || one.Keys != 0 || one.StateBytes == 0 || one.WindowBytes != 0 || one.TombstoneBytes != 0 {
		t.Errorf("after one key: %+v", one)
	}
	s.play(parts...)
	s.lose(t, errLost)
	loading := c.Status()
	if loading.Ready || loading.StateBytes != 2*one.StateBytes {
		t.Errorf("loading: %+v", loading)
	}
	s.play(parts...)
	s.play(ready())
	follows(t, c, 100)
	loaded := c.Status()
	if loaded.StateBytes != loading.StateBytes || loaded.WindowBytes != loading.WindowBytes || loaded.TombstoneBytes != loading.TombstoneBytes || loaded.TombstoneBytes == 0 || loaded.WindowBytes == 0 {
		t.Errorf("loaded: %+v, and before that %+v", loaded, loading)
	}
}

func TestResumeAfterLoss(t *testing.T) {
	s := newScript()
	c := New(small(s))
	run(t, c)
	if r := s.request(t); r.From != 0 {
		t.Fatalf("first request %+v", r)
	}
	s.play(begin(10, 11), ready(), live(puts(12, "a")), progress(20))
	if r := s.lose(t, errLost); r.From != 21 {
		t.Fatalf("resumed from %d, not 21", r.From)
	}
	w := watch(t, c, all, 11, &wakes{})
	// The new source sends some batches twice.
	s.play(begin(20, 0), ready(), live(puts(12, "a")), live(puts(20, "b")), live(puts(21, "c")), progress(15), progress(22))
	follows(t, c, 22)
	if got := drain(t, w); !slices.Equal(got, []kv.Revision{12, 21}) {
		t.Errorf("delivered %v", got)
	}
	if st := c.Status(); st.Late != 2 || st.Batches != 2 || st.Resets != 0 {
		t.Errorf("status %+v", st)
	}
}

// The cache rejects updates that are out of order, and asks the source again. Readers see
// none of these updates.
func TestUpdatesOutOfOrderAreRejected(t *testing.T) {
	for _, c := range []struct {
		name    string
		fresh   bool
		updates []kv.Update
	}{
		{"batch before the state", true, []kv.Update{live(puts(11, "a"))}},
		{"progress before the state", true, []kv.Update{progress(11)}},
		{"batch within the state", true, []kv.Update{begin(10, 11), live(puts(11, "a"))}},
		{"state without begin", true, []kv.Update{state(item("a", "", 5))}},
		{"history without begin", true, []kv.Update{history(puts(5, "a"))}},
		{"ready without begin", true, []kv.Update{ready()}},
		{"leap without a state", true, []kv.Update{{Kind: kv.UpdateBegin, Revision: 10, Floor: 11, Leap: true}, ready()}},
		{"state in a resume", false, []kv.Update{begin(10, 11), state(item("a", "", 5))}},
		{"resume with a gap", false, []kv.Update{begin(11, 11)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript()
			cache := New(small(s))
			run(t, cache)
			s.request(t)
			if !c.fresh {
				s.play(begin(10, 11), ready())
				s.lose(t, errLost)
			}
			s.play(c.updates...)
			if again := s.request(t); (again.From == 0) != c.fresh {
				t.Errorf("asked again from %d", again.From)
			}
			if st := cache.Status(); st.Ready == c.fresh || st.Batches != 0 || st.Keys != 0 {
				t.Errorf("status %+v", st)
			}
		})
	}
}

// After a compaction at the source the state is loaded again. Watchers in the
// gap fail; watchers without events in the gap continue.
func TestCompactedAtSource(t *testing.T) {
	s := newScript()
	c := New(small(s))
	run(t, c)
	s.request(t)
	s.play(begin(10, 11), ready(), live(puts(12, "a", "b")), progress(20))
	follows(t, c, 20)
	var quietWakes, futureWakes wakes
	quiet := watch(t, c, kv.Single("z"), 11, &quietWakes)
	future := watch(t, c, all, 60, &futureWakes)
	drain(t, quiet)
	drain(t, future)
	if got := quiet.Progress(); got != 20 {
		t.Errorf("progress %d, not 20", got)
	}
	if r := s.lose(t, &kv.CompactedError{Requested: 21, Floor: 40}); r.From != 0 {
		t.Fatalf("asked from %d", r.From)
	}
	if !c.Status().Ready || c.Progress() != 20 {
		t.Errorf("the old state must be served while the new one loads: %+v", c.Status())
	}
	s.play(begin(19, 20)) // an older state is refused
	if r := s.request(t); r.From != 0 {
		t.Fatalf("asked again from %d", r.From)
	}
	s.play(begin(50, 51), state(item("a", "v12", 12), item("c", "", 30)), ready(), live(puts(60, "a")))
	follows(t, c, 60)
	if quietWakes.n.Load() == 0 {
		t.Error("not woken")
	}
	_, _, err := quiet.Next(nil)
	var compacted *kv.CompactedError
	if !errors.As(err, &compacted) || compacted.Requested != 21 || compacted.Floor != 51 {
		t.Errorf("quiet watcher: %v", err)
	}
	if got := quiet.Progress(); got != 20 {
		t.Errorf("progress went to %d", got)
	}
	if got := drain(t, future); !slices.Equal(got, []kv.Revision{60}) {
		t.Errorf("future watcher got %v", got)
	}
	if st := c.Status(); st.Resets != 1 || st.Leaps != 1 || st.Keys != 2 || st.DeltaFloor != 11 {
		t.Errorf("status %+v", st)
	}
}

// A source that lags behind the cache cannot move it back.
func TestOlderStateIsRefused(t *testing.T) {
	s := newScript()
	c := New(small(s))
	run(t, c)
	s.request(t)
	s.play(begin(10, 11), ready(), progress(20))
	s.lose(t, &kv.CompactedError{Requested: 21, Floor: 22})
	s.play(begin(15, 16), ready())
	if r := s.request(t); r.From != 0 || c.Progress() != 20 {
		t.Errorf("asked from %d at progress %d", r.From, c.Progress())
	}
}

// A source that always reports a compaction is not asked in a busy loop.
func TestCompactedWithoutEnd(t *testing.T) {
	s := newScript()
	c := New(small(s))
	run(t, c)
	s.request(t)
	began := time.Now()
	for range 5 {
		s.lose(t, &kv.CompactedError{Floor: 5})
	}
	if took := time.Since(began); took < 100*time.Millisecond {
		t.Errorf("asked five times within %v", took)
	}
}

func TestStatelessKeepsNoState(t *testing.T) {
	s := newScript()
	cfg := small(s)
	cfg.Stateless = true
	c := New(cfg)
	run(t, c)
	b := puts(11, "a")
	b.Events[0].Prev = item("a", "old", 5)
	s.play(begin(10, 9), state(item("a", "old", 5)), history(puts(9, "c")), ready(), live(b))
	follows(t, c, 11)
	w := watch(t, c, all, 10, &wakes{})
	_, events, err := w.Next(nil)
	if err != nil || len(events) != 1 || events[0].Prev == nil || string(events[0].Prev.Value()) != "old" {
		t.Errorf("%v %v", events, err)
	}
	if c.tree.Len() != 0 {
		t.Errorf("%d keys kept", c.tree.Len())
	}
	if _, err := c.At(t.Context(), 0); !errors.Is(err, ErrNotReady) {
		t.Errorf("At: %v", err)
	}
	if _, err := c.Export(); !errors.Is(err, ErrNotReady) {
		t.Errorf("Export: %v", err)
	}
}

func TestRetire(t *testing.T) {
	s := newScript()
	c := New(small(s))
	stop := run(t, c)
	s.play(begin(10, 11), ready(), live(puts(12, "a")), progress(20))
	follows(t, c, 20)
	var idleWakes, waitWakes wakes
	idle := watch(t, c, kv.Single("a"), 11, &idleWakes)
	drain(t, idle)
	quiet := watch(t, c, kv.Single("q"), 11, &idleWakes)
	drain(t, quiet)
	idle.WakeAt(100)
	waiting := watch(t, c, kv.Single("z"), 11, &waitWakes) // never pulled: active
	waiting.WakeAt(100)
	blocked := make(chan error, 2)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // bounds the wait if they are not woken
	defer cancel()
	go func() { blocked <- c.WaitProgress(ctx, 1000) }()
	go func() { _, err := c.At(ctx, 1000); blocked <- err }()
	testkit.Eventually(t, "four waiters", func() bool { return waitersOf(c) == 4 })
	stop()
	for range 2 {
		if err := <-blocked; !errors.Is(err, ErrRetired) {
			t.Errorf("blocked: %v", err)
		}
	}
	if idleWakes.n.Load() < 2 || waitWakes.n.Load() == 0 {
		t.Errorf("woken: %d %d", idleWakes.n.Load(), waitWakes.n.Load())
	}
	for _, w := range []*Watcher{idle, quiet} {
		if _, _, err := w.Next(nil); !errors.Is(err, ErrRetired) {
			t.Errorf("Next: %v", err)
		}
		if got := w.Progress(); got != 20 {
			t.Errorf("%v: progress %d, not 20: the position is lost", w.Range(), got)
		}
	}
	if _, err := c.Watch(all, 11, &wakes{}); !errors.Is(err, ErrRetired) {
		t.Errorf("Watch: %v", err)
	}
	if _, err := c.At(t.Context(), 0); !errors.Is(err, ErrRetired) {
		t.Errorf("At: %v", err)
	}
	if _, err := c.Export(); !errors.Is(err, ErrRetired) {
		t.Errorf("Export: %v", err)
	}
	if c.Status().Ready {
		t.Error("a retired cache reports that it is ready")
	}
	var late wakes
	idle.WakeAt(1000)
	c.WakeAt(1000, &late)
	if late.n.Load() != 1 {
		t.Error("a waiter of a retired cache was not woken")
	}
}

// A watcher of quiet keys has all events up to the replacement of the window: it misses
// only the revisions of the leap, even if the window is replaced several times before it
// calls Next.
func TestQuietWatcherKeepsItsPositionWhenTheWindowIsReplaced(t *testing.T) {
	for _, leaps := range []int{1, 5} {
		s := newScript()
		c := New(small(s))
		run(t, c)
		s.request(t)
		s.play(begin(10, 11), ready(), live(puts(12, "a")))
		follows(t, c, 12)
		quiet := watch(t, c, kv.Single("z"), 11, &wakes{})
		slow := watch(t, c, all, 11, &wakes{})
		future := watch(t, c, all, 1000, &wakes{})
		drain(t, quiet)
		drain(t, future)
		s.play(live(puts(15, "a")), progress(20))
		follows(t, c, 20)
		for i := range leaps {
			revision := kv.Revision(100 * (i + 1))
			s.lose(t, &kv.CompactedError{Requested: revision - 79, Floor: revision - 10})
			s.play(begin(revision, revision+1), state(item("a", "", revision-1)), ready(), live(puts(revision+2, "a")), progress(revision+20))
			follows(t, c, revision+20)
		}
		for w, requested := range map[*Watcher]kv.Revision{quiet: 21, slow: 12} {
			_, _, err := w.Next(nil)
			var compacted *kv.CompactedError
			if !errors.As(err, &compacted) || compacted.Requested != requested || w.Progress() != requested-1 {
				t.Errorf("after %d leaps, a watcher of %v misses %v and is at %d; want it to miss %d", leaps, w.Range(), err, w.Progress(), requested)
			}
		}
		if got := drain(t, future); len(got) > 0 {
			t.Errorf("the watcher of a future revision got %v", got)
		}
		if future.from != 1000 {
			t.Errorf("the watcher of a future revision waits for %d", future.from)
		}
	}
}

// One revision is missing between the cache's state and the deletes of the source. The
// cache finds that the key deleted in it is missing, and earlier positions remain valid.
func TestLeapOverOneRevision(t *testing.T) {
	s := newScript()
	c := New(small(s))
	run(t, c)
	s.request(t)
	s.play(begin(10, 11), state(item("a", "x", 5), item("b", "x", 6)), ready(), live(puts(12, "a")), progress(20))
	follows(t, c, 20)
	s.lose(t, &kv.CompactedError{Requested: 21, Floor: 22})
	s.play(begin(25, 22), state(item("a", "v24", 24)), history(puts(24, "a")), ready()) // b was deleted at 21
	follows(t, c, 25)
	for _, since := range []kv.Revision{10, 12, 20} {
		got, err := c.Changes(t.Context(), all, since, 0)
		if err != nil || len(got.Changed) != 1 || !slices.Equal(got.Deleted, []string{"b"}) {
			t.Errorf("since %d: %+v, %v", since, got, err)
		}
	}
}
