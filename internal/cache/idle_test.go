package cache

import (
	"slices"
	"testing"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// A cache without watchers that was not read since the last call is idle. It calls arrived
// once when it is used again.
func TestIdle(t *testing.T) {
	c := loaded(small(nil), 10)
	arrivals := 0
	idle := func() bool { return c.Idle(func() { arrivals++ }) }
	is := func(when string, want bool, calls int) {
		t.Helper()
		if arrivals != calls {
			t.Errorf("%s: called %d times, want %d", when, arrivals, calls)
		}
		if arrivals = 0; idle() != want {
			t.Errorf("%s: idle is %v", when, !want)
		}
	}
	read := func() {
		t.Helper()
		if _, err := c.At(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	}
	is("at first", true, 0)
	is("still", true, 0)
	read()
	read()
	is("after reads", false, 1)
	read()
	is("after another read", false, 0)
	is("without reads", true, 0)
	w, err := c.Watch(kv.Single("x"), 11, &wakes{})
	if err != nil {
		t.Fatal(err)
	}
	read()
	is("with a watch and a read", false, 1)
	is("with a watch", false, 0)
	w.Close()
	is("without the watch", true, 0)
	b := puts(11, "a")
	c.apply(&b)
	c.advance(12)
	is("with new events alone", true, 0)
	if _, err := c.Changes(t.Context(), c.Range(), 10, 0); err != nil {
		t.Fatal(err)
	}
	is("after a read of changes", false, 1)
}

// A deferring watcher is woken once when the given number of bytes is pending, and when the
// cache ends. It misses no events.
func TestDefer(t *testing.T) {
	c := loaded(small(nil), 10)
	var n wakes
	w := watch(t, c, all, 11, &n)
	drain(t, w)
	revision, size := kv.Revision(10), int64(0)
	apply := func(times int) (out []kv.Revision) {
		for range times {
			revision++
			b := puts(revision, "a")
			c.apply(&b)
			size = int64(b.Size()) // with the previous value
			out = append(out, revision)
		}
		return out
	}
	is := func(when string, wakes int64, want []kv.Revision) {
		t.Helper()
		if got := n.n.Swap(0); got != wakes {
			t.Errorf("%s: woken %d times, want %d", when, got, wakes)
		}
		if got := drain(t, w); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", when, got, want)
		}
	}
	is("before anything", 0, nil)
	is("by itself", 1, apply(3))
	deferred := func(when string, want int64, is bool) {
		t.Helper()
		if got, ok := w.Deferred(); got != want || ok != is {
			t.Errorf("%s: %d bytes deferred, %v; want %d, %v", when, got, ok, want, is)
		}
	}
	deferred("by itself", 0, false)
	if w.Defer(10 * size) {
		t.Error("Defer reports pending events, but there are none")
	}
	deferred("at first", 0, true)
	less := apply(9)
	deferred("with less", 9*size, true)
	is("with less", 0, less)
	deferred("after a read", 0, true)
	is("with as much", 1, apply(10))
	is("with more", 1, apply(25))
	is("with less again", 0, apply(9))
	got := apply(9)
	if !w.Defer(10 * size) {
		t.Error("Defer reports no pending events")
	}
	is("when it defers again", 0, append(got, apply(9)...))
	got = apply(5)
	if !w.Defer(0) {
		t.Error("Defer reports no pending events")
	}
	is("when it defers no more", 0, got)
	is("and from then on", 1, apply(2))
	w.Defer(10 * size)
	apply(2)
	c.retire()
	if n.n.Load() == 0 {
		t.Error("not woken when the cache has ended")
	}
}
