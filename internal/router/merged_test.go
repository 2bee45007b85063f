package router_test

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
)

// counter is a waker that counts.
type counter struct{ n atomic.Int64 }

func (c *counter) Wake() { c.n.Add(1) }

// Watches over the same shards are woken once for an event, when all shards have reached
// it, regardless of the number of shards that were late.
func TestWatchesOfTheSameShardsAreWokenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := cachetest.New()
		n := cachetest.NewNode("here", h, nil)
		r := start(t, h, n)
		m := cachetest.Map(1, []string{"d", "g", "k"}, "here")
		n.Use(m)
		for i := range m.Shards {
			<-n.Replica(m.Shards[i].ID).Ready()
		}
		const watches = 100
		var opened []*router.Watch
		wakers := make([]counter, watches+1)
		for i := range wakers {
			rng := kv.Range{Start: "a"} // all four shards
			if i == watches {
				rng = kv.Range{Start: "a", End: "k"} // three of them
			}
			w, err := r.Watch(t.Context(), router.WatchRequest{Range: rng, From: h.Now() + 1, Lineage: 1}, &wakers[i])
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if revision, _, err := w.Next(nil); revision != 0 || err != nil || !w.Joined() {
				t.Fatal(revision, err, w.Joined())
			}
			opened = append(opened, w)
		}
		if n := testing.AllocsPerRun(100, func() { _, _, _ = opened[0].Next(nil) }); n > 0 {
			t.Errorf("Next without an event costs %v allocations", n)
		}
		if windows, users, readers := r.Shared(); windows != 2 || users != len(opened) || readers != len(opened) {
			t.Errorf("%d windows with %d watches, %d reading them", windows, users, readers)
		}
		for i := range m.Shards {
			c, own, all := n.Replica(m.Shards[i].ID), 2, watches+1 // a watcher for each window
			if i == 3 {
				own, all = 1, watches
			}
			if got := c.Status().Watchers; got != own || got+r.Merged().Watches[c] != all {
				t.Errorf("shard %d has %d watchers, and %d more watches", m.Shards[i].ID, got, r.Merged().Watches[c])
			}
		}
		for i := range m.Shards[1:] {
			n.Gate(m.Shards[1+i].ID).Limit(h.Now())
		}
		at := h.Commit(cachetest.Put("a", "1"))
		synctest.Wait()
		for i, w := range opened {
			if revision, _, err := w.Next(nil); revision != 0 || err != nil {
				t.Fatalf("got %d, %v, though three shards may have an earlier event", revision, err)
			}
			w.WakeAt(at)
			if wakers[i].n.Load() != 0 {
				t.Error("woken before the revision")
			}
		}
		time.Sleep(time.Second)
		held := r.HoldingBack()
		for i := range m.Shards {
			if age, holds := held[n.Replica(m.Shards[i].ID)]; holds != (i > 0) || (holds && age != time.Second) {
				t.Errorf("shard %d: holds back %v, for %v", m.Shards[i].ID, holds, age)
			}
		}
		for i := range m.Shards[1:] {
			n.Gate(m.Shards[1+i].ID).Limit(at)
			synctest.Wait()
			if woken := wakers[0].n.Load(); woken > 0 && i < 2 {
				t.Errorf("woken when %d of 4 shards have reached the revision", i+2)
			}
		}
		for i, w := range opened {
			// One wake-up for the event and one for the requested progress, which usually coincide.
			if woken := wakers[i].n.Load(); woken < 1 || woken > 2 {
				t.Errorf("woken %d times", woken)
			}
			if revision, events, err := w.Next(nil); revision != at || len(events) != 1 || err != nil {
				t.Fatalf("got %d, %d events, %v", revision, len(events), err)
			}
			if revision, _, err := w.Next(nil); revision != 0 || err != nil {
				t.Fatal(revision, err)
			}
			wakers[i].n.Store(0)
		}
		if held := r.HoldingBack(); len(held) > 0 {
			t.Errorf("held back: %v", held)
		}
		n.Gate(m.Shards[1].ID).Limit(0)
		n.Gate(m.Shards[2].ID).Limit(0)
		n.Gate(m.Shards[3].ID).Limit(0)
		h.Commit(cachetest.Put("a", "2"), cachetest.Put("e", "2"))
		synctest.Wait()
		for i := range opened {
			if woken := wakers[i].n.Load(); woken != 1 {
				t.Errorf("watch %d was woken %d times by an event, want once", i, woken)
			}
		}
		opened[watches].Close()
		synctest.Wait()
		if windows, _, _ := r.Shared(); windows != 1 {
			t.Errorf("%d windows after the only watch of one was closed, want 1", windows)
		}
		for _, w := range opened {
			w.Close()
			w.Close()
		}
		synctest.Wait()
		if windows, users, readers := r.Shared(); windows+users+readers != 0 {
			t.Errorf("%d windows are left without watches", windows)
		}
		if err := n.Idle(); err != nil {
			t.Error(err)
		}
	})
}

// A watch that starts below the merged window merges its shards separately, and continues
// in the window when it has caught up, without losing taken but undelivered events.
func TestAWatchBelowTheMergedWindowJoinsIt(t *testing.T) {
	merging(t, func(t *testing.T, n *cachetest.Node, r *router.Router, h *cachetest.Script) {
		h.Commit(cachetest.Put("a", "0"), cachetest.Put("p", "0"))
		h.Commit(cachetest.Put("p", "1"))
		before := h.Now()
		n.Replica(1).Demand(before)
		synctest.Wait()
		first := watch(t, r, kv.Range{}, before+1, newBell())
		defer first.Close()
		if !first.Joined() {
			t.Fatal("a watch from the current revision does not read the merged window")
		}
		b := newBell()
		w := watch(t, r, kv.Range{}, cachetest.Start+1, b)
		defer w.Close()
		n.Gate(2).Limit(before)
		held := h.Commit(cachetest.Put("a", "2"))
		late := h.Commit(cachetest.Put("a", "3"), cachetest.Put("p", "3"))
		synctest.Wait()
		for want := cachetest.Start + 1; want <= before; want++ {
			if w.Joined() {
				t.Error("it reads the merged window, which begins later")
			}
			if revision, _, err := w.Next(nil); revision != want || err != nil {
				t.Fatalf("got %d, %v, want %d", revision, err, want)
			}
		}
		if revision, _, err := w.Next(nil); revision != 0 || err != nil || !w.Joined() {
			t.Fatalf("got %d, %v; reads the merged window: %v", revision, err, w.Joined())
		}
		if progress, behind := w.Progress(); progress != before || behind != 2 {
			t.Errorf("progress %d, shard %d is late; %d was returned", progress, behind, before)
		}
		b.heard()
		n.Gate(2).Limit(0)
		synctest.Wait()
		if !b.heard() {
			t.Error("not woken")
		}
		for _, want := range []kv.Revision{held, late} {
			for _, w := range []*router.Watch{w, first} {
				if revision, events, err := w.Next(nil); revision != want || len(events) != int(want-held)+1 || err != nil {
					t.Fatalf("got %d with %d events, %v, want %d", revision, len(events), err, want)
				}
			}
		}
		if s := n.Replica(1).Status(); s.Watchers != 1 {
			t.Errorf("%d watchers of a shard, want the window's", s.Watchers)
		}
	})
}

// A watch that is slower than the merged window misses no event that the shards still have:
// it continues with a separate merge, and returns to the window.
func TestAWatchThatFallsBelowTheMergedWindow(t *testing.T) {
	merging(t, func(t *testing.T, n *cachetest.Node, r *router.Router, h *cachetest.Script) {
		r.ShortenMerged()
		b := newBell()
		w := watch(t, r, kv.Range{}, h.Now()+1, b)
		rare := watch(t, r, kv.Range{Start: "b", End: "z"}, h.Now()+1, newBell())
		defer w.Close()
		defer rare.Close()
		if revision, _, err := rare.Next(nil); revision != 0 || err != nil {
			t.Fatal(revision, err)
		}
		const revisions = 50
		var rarely kv.Revision
		for i := range revisions {
			keys := []cachetest.Op{cachetest.Put("a", "1"), cachetest.Put("z", "1")}
			if i == revisions/2 {
				rarely = h.Now() + 1
				keys = append(keys, cachetest.Put("b", "1"))
			}
			h.Commit(keys[i%2:]...)
			synctest.Wait()
		}
		if p, _ := w.Progress(); p != cachetest.Start {
			t.Errorf("progress %d before anything was read", p)
		}
		if p, _ := rare.Progress(); p != rarely-1 {
			t.Errorf("progress %d, want all below %d", p, rarely)
		}
		for want := cachetest.Start + 1; want <= h.Now(); want++ {
			revision, events, err := w.Next(nil)
			if due := len(h.Batches(kv.Range{}, want-1, want)[0].Events); revision != want || len(events) != due || err != nil {
				t.Fatalf("got %d with %d events, %v, want %d with %d", revision, len(events), err, want, due)
			}
			if p, _ := w.Progress(); p != want {
				t.Fatalf("progress %d, want %d", p, want)
			}
		}
		if revision, events, err := rare.Next(nil); revision != rarely || len(events) != 1 || err != nil {
			t.Fatalf("got %d with %d events, %v, want %d", revision, len(events), err, rarely)
		}
		for _, w := range []*router.Watch{w, rare} {
			if w.Joined() {
				t.Error("it reads the merged window before it has caught up")
			}
			if revision, _, err := w.Next(nil); revision != 0 || err != nil || !w.Joined() {
				t.Errorf("after the end: %d, %v; reads the merged window: %v", revision, err, w.Joined())
			}
		}
	})
}

// A watch that is slower than the windows of its shards fails with the floor.
func TestAWatchThatFallsBelowItsShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := cachetest.New()
		n := cachetest.NewNode("here", h, func(c *cache.Config) { c.WindowBytes = 16 << 10 })
		n.Use(cachetest.Map(1, []string{"h"}, "here"))
		<-n.Replica(1).Ready()
		<-n.Replica(2).Ready()
		r := start(t, h, n)
		w := watch(t, r, kv.Range{}, h.Now()+1, newBell())
		defer w.Close()
		for range 1000 {
			h.Commit(cachetest.Put("a", "1"), cachetest.Put("p", "1"))
			synctest.Wait()
		}
		if bytes := r.Merged().Bytes; bytes == 0 || bytes > 10<<10 {
			t.Errorf("the merged window has %d bytes, want about half as many as a shard's", bytes)
		}
		var compacted *kv.CompactedError
		if _, _, err := w.Next(nil); !errors.As(err, &compacted) || compacted.Floor != n.Replica(1).Floor() {
			t.Errorf("got %v, want the floor %d", err, n.Replica(1).Floor())
		}
	})
}

// If there are already as many merged windows as allowed, watches over another set of shards merge separately.
func TestFurtherSetsOfShardsMergeAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := cachetest.New()
		n := cachetest.NewNode("here", h, nil)
		var cuts []string
		for i := 1; i < len(letters); i++ {
			cuts = append(cuts, letters[i:i+1])
		}
		m := cachetest.Map(1, cuts, "here")
		n.Use(m)
		for i := range m.Shards {
			<-n.Replica(m.Shards[i].ID).Ready()
		}
		r := start(t, h, n)
		var readers []*reader
		alone := 0
		for i := range letters {
			for j := i + 2; j <= len(letters); j++ {
				x := open(t, r, kv.Range{Start: letters[i : i+1], End: letters[j-1:j] + "z"}, h.Now()+1)
				readers = append(readers, x)
				if x.read(t, h); !x.w.Joined() {
					alone++
				}
			}
		}
		if windows, _, _ := r.Shared(); windows != router.MaxMerged || alone != len(readers)-windows {
			t.Errorf("%d windows; %d of %d watches merge separately", windows, alone, len(readers))
		}
		h.Commit(cachetest.Put("h", "1"))
		h.Commit(cachetest.Put("a", "1"), cachetest.Put("p", "1"))
		h.Commit(cachetest.Put("g", "1"), cachetest.Put("h", "1"), cachetest.Put("i", "1"))
		for range 3 {
			synctest.Wait()
			for _, x := range readers {
				x.read(t, h)
			}
		}
		for _, x := range readers {
			if !x.done(h) {
				t.Errorf("%v is at %d of %d", x.rng, x.last, h.Now())
			}
			x.w.Close()
		}
		synctest.Wait()
		if windows, users, _ := r.Shared(); windows+users != 0 {
			t.Errorf("%d windows of %d watches are left", windows, users)
		}
		if err := n.Idle(); err != nil {
			t.Error(err)
		}
	})
}

// A watch over a retired shard is refused and uses no merged window.
func TestAWatchOverARetiredShard(t *testing.T) {
	merging(t, func(t *testing.T, n *cachetest.Node, r *router.Router, h *cachetest.Script) {
		n.Stop()
		if _, err := r.Watch(t.Context(), router.WatchRequest{From: h.Now() + 1}, newBell()); !isNotReady(err) {
			t.Errorf("got %v", err)
		}
		if windows, users, _ := r.Shared(); windows+users != 0 {
			t.Errorf("%d windows with %d watches, want none", windows, users)
		}
	})
}

// losing is a source that loses history on request.
type losing struct {
	source cache.Source
	gate   cachetest.Gate
	lose   chan struct{}
}

func (l *losing) Follow(ctx context.Context, req kv.FollowRequest) iter.Seq2[kv.Update, error] {
	return func(yield func(kv.Update, error) bool) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		if req.HeldAt > 0 {
			l.gate.Limit(0) // resumes with the current state
		} else {
			lost := &kv.CompactedError{Requested: 1, Floor: 2}
			go func() {
				select {
				case <-l.lose:
					cancel(lost)
				case <-ctx.Done():
				}
			}()
		}
		for u, err := range l.source.Follow(ctx, req) {
			if !yield(u, err) {
				return
			}
		}
		if why := context.Cause(ctx); errors.As(why, new(*kv.CompactedError)) {
			yield(kv.Update{}, why)
		}
	}
}

// When a shard of a merged window has lost history, the watches fail. The window continues
// after the gap, and a watch that starts there uses it.
func TestAShardOfAMergedWindowLosesHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := cachetest.New()
		source := &losing{lose: make(chan struct{})}
		n := cachetest.NewNode("here", h, func(c *cache.Config) {
			if c.Range.Start == "h" {
				source.source = h.Source(&source.gate)
				c.Source = source
			}
		})
		n.Use(cachetest.Map(1, []string{"h"}, "here"))
		<-n.Replica(1).Ready()
		<-n.Replica(2).Ready()
		r := start(t, h, n)
		w := watch(t, r, kv.Range{}, h.Now()+1, newBell())
		defer w.Close()
		h.Commit(cachetest.Put("a", "1"), cachetest.Put("p", "1"))
		synctest.Wait()
		if revision, _, err := w.Next(nil); revision != h.Now() || err != nil {
			t.Fatal(revision, err)
		}
		source.gate.Limit(h.Now())
		missed := h.Commit(cachetest.Put("p", "2"))
		h.Commit(cachetest.Put("p", "3"))
		h.Forget(h.Now() + 1)
		synctest.Wait()
		source.lose <- struct{}{}
		time.Sleep(time.Second)
		if got := n.Replica(2).Floor(); got != h.Now()+1 {
			t.Fatalf("the test needs history to be lost; floor %d", got)
		}
		var compacted *kv.CompactedError
		if revision, _, err := w.Next(nil); !errors.As(err, &compacted) || compacted.Requested != missed || compacted.Floor != h.Now()+1 {
			t.Errorf("got %d, %v, want %d to be missing below %d", revision, err, missed, h.Now()+1)
		}
		if progress, _ := w.Progress(); progress != missed-1 {
			t.Errorf("progress %d, though %d is missing", progress, missed)
		}
		next := watch(t, r, kv.Range{}, h.Now()+1, newBell())
		defer next.Close()
		if !next.Joined() {
			t.Error("the merged window did not continue")
		}
		at := h.Commit(cachetest.Put("a", "4"), cachetest.Put("p", "4"))
		synctest.Wait()
		if revision, events, err := next.Next(nil); revision != at || len(events) != 2 || err != nil {
			t.Errorf("got %d with %d events, %v, want %d", revision, len(events), err, at)
		}
		if windows, _, _ := r.Shared(); windows != 1 {
			t.Errorf("%d windows", windows)
		}
	})
}
