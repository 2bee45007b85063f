package cache

import (
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/data/keytree"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// Any goroutine may call Position: an idle watcher does not lag; a watcher with pending
// batches lags since the arrival of the oldest one.
func TestPosition(t *testing.T) {
	cfg := small(nil)
	cfg.WindowBytes = 32 << 10
	c := loaded(cfg, 10)
	is := func(w *Watcher, revision, newest kv.Revision, since time.Time) {
		t.Helper()
		if got, want := w.Position(), (Position{Revision: revision, Newest: newest, Since: since}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	idle, slow, future := watch(t, c, kv.Single("b"), 11, &wakes{}), watch(t, c, kv.Single("a"), 11, &wakes{}), watch(t, c, all, 50, &wakes{})
	drain(t, idle)
	for revision := kv.Revision(11); revision <= 20; revision++ {
		b := puts(revision, "a")
		b.Received = time.Unix(int64(revision), 0)
		c.apply(&b)
	}
	drain(t, future)
	is(idle, 20, 20, time.Time{})
	is(future, 20, 20, time.Time{})
	is(slow, 10, 20, time.Unix(11, 0))
	if _, _, err := slow.Next(nil); err != nil {
		t.Fatal(err)
	}
	is(slow, 11, 20, time.Unix(12, 0))
	drain(t, slow)
	is(slow, 20, 20, time.Time{})
	b := puts(21, "a")
	b.Received = time.Unix(21, 0)
	c.apply(&b)
	is(slow, 20, 21, time.Unix(21, 0))
	is(idle, 21, 21, time.Time{})
	if got := slow.Received(15); !got.Equal(time.Unix(15, 0)) || !slow.Received(22).IsZero() {
		t.Errorf("received at %v", got)
	}
	for revision := kv.Revision(22); revision < 1500; revision++ {
		b := puts(revision, "a")
		b.Received = time.Unix(int64(revision), 0)
		c.apply(&b)
	}
	// Its next batch has left the window, and its position stays the same.
	first := slow.Position()
	if first.Revision < 11 || first.Revision > 20 || !first.Since.Equal(time.Unix(int64(first.Revision)+1, 0)) || first.Newest != 1499 {
		t.Errorf("behind the floor %d: %+v", c.Floor(), first)
	}
	// Loaded again, with an empty window.
	c.load(keytree.New(), &Past{Progress: 5000, Floor: 5001, DeltaFloor: 5001})
	is(slow, first.Revision, 5000, first.Since)
	is(idle, 1499, 5000, time.Time{})
	if _, _, err := idle.Next(nil); err == nil {
		t.Error("a watcher below a gap got no error")
	}
	is(idle, 1499, 5000, time.Time{})
}

// A follower with all events up to the newest also has all events up to the progress.
// Unknown revisions count as events: revisions before the window, and revisions in a gap.
func TestQuiet(t *testing.T) {
	c := loaded(small(nil), 10)
	is := func(since, progress kv.Revision) {
		t.Helper()
		if s, p := c.Quiet(); s != since || p != progress {
			t.Errorf("quiet from %d to %d, want %d to %d", s, p, since, progress)
		}
	}
	is(10, 10)
	c.advance(12)
	is(10, 12)
	b := puts(15, "a")
	c.apply(&b)
	is(15, 15)
	c.advance(20)
	is(15, 20)
	older := puts(14, "a")
	c.apply(&older) // the range had this batch
	c.advance(19)
	is(15, 20)
	c.load(keytree.New(), &Past{Progress: 50, Floor: 41, DeltaFloor: 41})
	is(40, 50)
	b = puts(45, "a")
	c.load(keytree.New(), &Past{Progress: 60, Floor: 41, DeltaFloor: 41, Batches: []*kv.Batch{&b}})
	is(45, 60)
}
