package cache

import (
	"errors"
	"slices"
	"testing"

	"github.com/shardwatch/shardwatch/internal/kv"
)

func TestWatchFrom(t *testing.T) {
	c := loaded(small(nil), 10)
	for _, b := range []kv.Batch{puts(11, "a"), puts(13, "b"), puts(15, "a", "b")} {
		c.apply(&b)
	}
	c.advance(17)
	for _, x := range []struct {
		r        kv.Range
		from     kv.Revision
		want     []kv.Revision
		progress kv.Revision
	}{
		{all, 11, []kv.Revision{11, 13, 15}, 17},
		{kv.Single("a"), 11, []kv.Revision{11, 15}, 17},
		{kv.Single("a"), 12, []kv.Revision{15}, 17},
		{kv.Single("c"), 11, nil, 17},
		{kv.Range{Start: "b"}, 14, []kv.Revision{15}, 17},
		{all, 16, nil, 17},
		{all, 18, nil, 17},
		{all, 100, nil, 99},
	} {
		w := watch(t, c, x.r, x.from, &wakes{})
		if got := w.Progress(); len(x.want) > 0 && got >= x.want[0] {
			t.Errorf("%v from %d: progress %d before anything was read", x.r, x.from, got)
		}
		if got := drain(t, w); !slices.Equal(got, x.want) {
			t.Errorf("%v from %d: %v", x.r, x.from, got)
		}
		if got := w.Progress(); got != x.progress {
			t.Errorf("%v from %d: progress %d, not %d", x.r, x.from, got, x.progress)
		}
	}
	_, err := c.Watch(all, 10, &wakes{})
	var compacted *kv.CompactedError
	if !errors.As(err, &compacted) || compacted.Requested != 10 || compacted.Floor != 11 {
		t.Errorf("below the floor: %v", err)
	}
	if _, err := New(small(nil)).Watch(all, 10, &wakes{}); !errors.Is(err, ErrNotReady) {
		t.Errorf("before the state: %v", err)
	}
}

// A watcher of future revisions, or a watcher that has read all batches, does not fall
// behind when the window moves; a watcher that has not called Next does.
func TestFallBehind(t *testing.T) {
	cfg := small(nil)
	cfg.WindowBytes = 32 << 10
	c := loaded(cfg, 10)
	var idleWakes, slowWakes wakes
	idle := watch(t, c, kv.Single("idle"), 11, &idleWakes)
	drain(t, idle)
	fresh := watch(t, c, all, 5000, &wakes{}) // starts above the newest revision, not read yet
	slow := watch(t, c, kv.Single("a"), 11, &slowWakes)
	for revision := kv.Revision(11); revision < 4000; revision++ {
		b := puts(revision, "a")
		c.apply(&b)
	}
	floor := c.Floor()
	if floor <= 12 {
		t.Fatalf("the test needs a window that moves; floor %d", floor)
	}
	if got := drain(t, idle); got != nil || idle.Progress() != 3999 || idleWakes.n.Load() != 0 {
		t.Errorf("idle: %v, progress %d, woken %d", got, idle.Progress(), idleWakes.n.Load())
	}
	if got := drain(t, fresh); got != nil {
		t.Errorf("fresh: %v", got)
	}
	_, _, err := slow.Next(nil)
	var compacted *kv.CompactedError
	if !errors.As(err, &compacted) || compacted.Requested != 11 || compacted.Floor != floor {
		t.Errorf("slow: %v", err)
	}
	if got := slow.Progress(); got != 10 {
		t.Errorf("slow: progress %d", got)
	}
	b := puts(4000, "idle")
	c.apply(&b)
	if got := drain(t, idle); !slices.Equal(got, []kv.Revision{4000}) || idleWakes.n.Load() != 1 {
		t.Errorf("idle: %v, woken %d", got, idleWakes.n.Load())
	}
}

// A woken watcher whose batch has left the window misses that batch. It does not miss the
// batches before it, which it has read.
func TestAWatcherBehindTheWindowKeepsItsPosition(t *testing.T) {
	cfg := small(nil)
	cfg.WindowBytes = 32 << 10
	c := loaded(cfg, 10)
	var woken wakes
	w := watch(t, c, kv.Single("rare"), 11, &woken)
	drain(t, w)
	const at = 300
	for revision := kv.Revision(11); revision < 900; revision++ {
		key := "often"
		if revision == at {
			key = "rare"
		}
		b := puts(revision, key)
		c.apply(&b)
	}
	if c.Floor() <= at || woken.n.Load() != 1 {
		t.Fatalf("the test needs revision %d to have left the window: floor %d, woken %d", at, c.Floor(), woken.n.Load())
	}
	const most = segmentBatches // the window drops so many batches at a time
	if got := w.Progress(); got >= at || got < at-1-most {
		t.Errorf("progress %d, want up to %d below %d", got, most, at)
	}
	_, _, err := w.Next(nil)
	var compacted *kv.CompactedError
	if !errors.As(err, &compacted) || compacted.Requested > at || compacted.Requested < at-most || compacted.Floor != c.Floor() {
		t.Errorf("got %v, want an error that covers revision %d", err, at)
	}
	if got := w.Progress(); got != compacted.Requested-1 {
		t.Errorf("progress %d, though %d is missing", got, compacted.Requested)
	}
}

// A woken watcher is not woken again until it calls Next.
func TestOneWakeUntilRead(t *testing.T) {
	c := loaded(small(nil), 10)
	var n wakes
	w := watch(t, c, kv.Prefix("a"), 11, &n)
	drain(t, w)
	for revision := kv.Revision(11); revision < 20; revision++ {
		b := puts(revision, "a1", "a2", "b")
		c.apply(&b)
	}
	if n.n.Load() != 1 {
		t.Errorf("woken %d times", n.n.Load())
	}
	for revision := kv.Revision(11); revision < 20; revision++ {
		got, events, err := w.Next(nil)
		if got != revision || len(events) != 2 || err != nil {
			t.Fatalf("%d: %d %v %v", revision, got, events, err)
		}
	}
	w.Close()
	b := puts(20, "a1")
	c.apply(&b)
	if n.n.Load() != 1 {
		t.Error("woken after Close")
	}
}

// One batch arrives after the reader's last check and before it becomes idle, another one
// after that. The writer moves the idle watcher to the second batch, and the watcher must
// still deliver the first.
func TestABatchBetweenCheckAndIdleIsDelivered(t *testing.T) {
	c := loaded(small(nil), 10)
	w := watch(t, c, kv.Single("a"), 11, &wakes{})
	pos := c.view.Load().win.next // Next has found nothing
	first, second := puts(11, "a"), puts(12, "a")
	c.apply(&first)
	w.state.Store(pos<<1 | idleBit) // Next becomes idle
	c.apply(&second)
	if w.staysIdle(pos) {
		t.Fatal("the watcher is idle with a pending batch")
	}
	if got := w.Progress(); got != 10 {
		t.Errorf("progress %d before anything was delivered", got)
	}
	if got := drain(t, w); !slices.Equal(got, []kv.Revision{11, 12}) {
		t.Errorf("delivered %v", got)
	}
}

// The writer may be delayed between publishing a batch and waking its watchers: the
// progress of an idle watcher does not cover the batch yet.
func TestProgressWaitsForTheWake(t *testing.T) {
	c := loaded(small(nil), 10)
	w := watch(t, c, kv.Single("a"), 11, &wakes{})
	drain(t, w)
	b := puts(11, "a")
	seq := c.win.next
	added := c.win.append(&b)
	v := &view{win: c.win.view(), root: c.view.Load().root, changed: 11, progress: 11, ready: true}
	for _, step := range []func(){
		func() { c.view.Store(v) },
		func() { c.wakeups.matching(added, seq) },
		func() { c.settle(v) },
	} {
		step()
		if got := w.Progress(); got != 10 {
			t.Fatalf("progress %d before 11 was delivered", got)
		}
	}
	if got := drain(t, w); !slices.Equal(got, []kv.Revision{11}) || w.Progress() != 11 {
		t.Errorf("delivered %v, progress %d", got, w.Progress())
	}
}

// A watcher from the first revision misses no events if etcd was empty when the cache was
// loaded.
func TestWatchFromTheFirstRevision(t *testing.T) {
	c := loaded(small(nil), 1)
	w := watch(t, c, all, 1, &wakes{})
	b := batch(2, put("a", 2))
	c.apply(&b)
	if got := drain(t, w); !slices.Equal(got, []kv.Revision{2}) {
		t.Errorf("got %v", got)
	}
}
