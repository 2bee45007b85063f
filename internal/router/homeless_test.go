package router_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
)

// relaying is a node whose relays are scripted by a test.
type relaying struct {
	*cachetest.Node
	relay func(ctx context.Context, id shard.ID) (*cache.Cache, func(), error)
}

func (r *relaying) Relay(ctx context.Context, id shard.ID) (*cache.Cache, func(), error) {
	return r.relay(ctx, id)
}

// A watch waits for a relay until the time that its caller sets, but no longer than its context.
func TestAWatchWaitsForItsRelayUntilTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := cachetest.New()
		n := cachetest.NewNode("here", h, nil)
		defer n.Stop()
		var relay context.Context
		r := router.New(router.Config{Shards: &relaying{Node: n, relay: func(ctx context.Context, _ shard.ID) (*cache.Cache, func(), error) {
			relay = ctx
			<-ctx.Done()
			return nil, nil, &kv.UnavailableError{Why: kv.NotReady, Detail: "there does not answer"}
		}}, Clock: h, Self: "here"})
		n.Use(cachetest.Map(1, nil, "there"))
		for _, c := range []struct {
			until, ctx, want time.Duration
		}{{time.Second, time.Minute, time.Second}, {0, time.Minute, time.Minute}, {time.Hour, time.Minute, time.Minute}} {
			began := time.Now()
			req := router.WatchRequest{From: h.Now() + 1}
			if c.until > 0 {
				req.Until = began.Add(c.until)
			}
			ctx, cancel := context.WithTimeout(t.Context(), c.ctx)
			if _, err := r.Watch(ctx, req, newBell()); !isNotReady(err) || time.Since(began) != c.want || relay.Err() == nil {
				t.Errorf("until %v, context %v: %v after %v", c.until, c.ctx, err, time.Since(began))
			}
			cancel()
		}
	})
}

// A relay of another lineage, or of only a part of the shard, is not watched, and is released.
func TestARelayThatDoesNotFitIsNotWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := cachetest.New()
		n := cachetest.NewNode("here", h, nil)
		defer n.Stop()
		other := cachetest.NewNode("there", h, nil)
		defer other.Stop()
		var back atomic.Int64
		r := router.New(router.Config{Shards: &relaying{Node: n, relay: func(_ context.Context, id shard.ID) (*cache.Cache, func(), error) {
			return other.Replica(id), func() { back.Add(1) }, nil
		}}, Clock: h, Self: "here"})
		n.Use(cachetest.Map(1, nil, "there"))
		for what, change := range map[string]func(m *shard.Map){
			"another lineage": func(m *shard.Map) { m.Lineage = 2 },
			"another range":   func(m *shard.Map) { m.Shards[0].Range.End = "m" },
		} {
			m := cachetest.Map(1, nil, "there")
			change(m)
			other.Use(m)
			<-other.Replica(1).Ready()
			back.Store(0)
			if _, err := r.Watch(t.Context(), router.WatchRequest{From: h.Now() + 1}, newBell()); !isNotReady(err) {
				t.Errorf("a relay of %s: %v", what, err)
			}
			if back.Load() != 1 {
				t.Errorf("a relay of %s was released %d times, want once", what, back.Load())
			}
		}
		// The valid relay is released once, even if the watch is closed twice.
		other.Use(cachetest.Map(2, nil, "there"))
		<-other.Replica(1).Ready()
		back.Store(0)
		w, err := r.Watch(t.Context(), router.WatchRequest{From: h.Now() + 1}, newBell())
		if err != nil || w.Lineage() != 1 {
			t.Fatal(err)
		}
		if back.Load() != 0 {
			t.Error("the relay was released while it is watched")
		}
		w.Close()
		w.Close()
		if back.Load() != 1 {
			t.Errorf("the relay was released %d times, want once", back.Load())
		}
		back.Store(0)
		var compacted *kv.CompactedError
		if _, err := r.Watch(t.Context(), router.WatchRequest{From: 1}, newBell()); !errors.As(err, &compacted) || back.Load() != 1 {
			t.Errorf("below the floor of a relay: %v, released %d times", err, back.Load())
		}
	})
}

// A local shard is watched locally if the client names no lineage.
func TestALocalShardIsWatchedLocally(t *testing.T) {
	merging(t, func(t *testing.T, n *cachetest.Node, r *router.Router, h *cachetest.Script) {
		n.RefuseRelays(errors.New("no relay"))
		w, err := r.Watch(t.Context(), router.WatchRequest{From: h.Now() + 1}, newBell())
		if err != nil || w.Lineage() != 1 {
			t.Fatal(err)
		}
		w.Close()
	})
}

// If more watches lose their source than may wait for a relay at the same time, the others
// get their turn without any other change.
func TestEveryHomelessWatchGetsItsTurn(t *testing.T) {
	const watches, looking = 300, 256
	synctest.Test(t, func(t *testing.T) {
		h := cachetest.New()
		n := cachetest.NewNode("here", h, nil)
		open := make(chan struct{})
		var busy, most atomic.Int64
		shards := &relaying{Node: n, relay: func(ctx context.Context, id shard.ID) (*cache.Cache, func(), error) {
			most.Store(max(most.Load(), busy.Add(1)))
			defer busy.Add(-1)
			select {
			case <-open:
				return n.Relay(ctx, id)
			case <-ctx.Done():
				return nil, nil, ctx.Err()
			}
		}}
		r := router.New(router.Config{Shards: shards, Clock: h, Self: "here"})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		defer func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			n.Stop()
		}()
		n.Use(cachetest.Map(1, nil, "here"))
		<-n.Replica(1).Ready()
		type moving struct {
			w *router.Watch
			b *bell
		}
		var all []moving
		for i := range watches {
			b := &bell{}
			w, err := r.Watch(t.Context(), router.WatchRequest{Range: kv.Single(fmt.Sprint(i)), From: h.Now() + 1}, b)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			if _, _, err := w.Next(nil); err != nil { // the watch waits from here on
				t.Fatal(err)
			}
			all = append(all, moving{w, b})
		}
		n.Use(cachetest.Map(2, nil, "there"))
		synctest.Wait()
		for i, m := range all {
			if !m.b.heard() {
				t.Fatalf("watch %d was not woken when its shard left", i)
			}
			if _, _, err := m.w.Next(nil); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if busy.Load() != looking {
			t.Errorf("%d watches wait for a relay, want %d", busy.Load(), looking)
		}
		close(open)
		time.Sleep(time.Second)
		for i, m := range all {
			if !m.b.heard() {
				t.Errorf("watch %d has found no source", i)
			}
		}
	})
}

// A watch over two shards that waits for one of them is woken when the cache of that shard
// retires, and moves.
func TestAWatchThatWaitsForARetiredShardIsWoken(t *testing.T) {
	mergingEachWay(t, func(t *testing.T, n *cachetest.Node, r *router.Router, h *cachetest.Script) {
		b := newBell()
		w := watch(t, r, kv.Range{}, h.Now()+1, b)
		defer w.Close()
		n.Gate(2).Limit(h.Now())
		at := h.Commit(cachetest.Put("a", "1"))
		synctest.Wait()
		b.heard()
		if revision, _, err := w.Next(nil); revision != 0 || err != nil {
			t.Fatal(revision, err)
		}
		m := cachetest.Map(2, []string{"h"}, "here")
		m.Shards[1].ID = 3
		n.Use(m)
		synctest.Wait()
		if !b.heard() {
			t.Fatal("not woken when the cache of the awaited shard retired")
		}
		for range 3 {
			if revision, _, err := w.Next(nil); err != nil {
				t.Fatal(err)
			} else if revision == at {
				return
			}
			time.Sleep(time.Second)
		}
		t.Error("the event was not delivered")
	})
}

// A watch whose two shards are merged then waits only for the merged shard.
func TestAWatchWhoseShardsAreMergedIsWokenAtARevision(t *testing.T) {
	merging(t, func(t *testing.T, n *cachetest.Node, r *router.Router, h *cachetest.Script) {
		b := newBell()
		w := watch(t, r, kv.Range{Start: "a", End: "c"}, h.Now()+1, b)
		w.Close()
		w = watch(t, r, kv.Range{}, h.Now()+1, b)
		defer w.Close()
		n.Gate(2).Limit(h.Now())
		held := h.Commit(cachetest.Put("a", "0"))
		synctest.Wait()
		if revision, _, err := w.Next(nil); revision != 0 || err != nil {
			t.Fatal(revision, err)
		}
		n.Use(cachetest.Map(2, nil, "here"))
		<-n.Replica(1).Ready()
		synctest.Wait()
		if _, _, err := w.Next(nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if revision, _, err := w.Next(nil); revision != held || err != nil {
			t.Fatalf("got %d, %v, want %d", revision, err, held)
		}
		if p, _ := w.Position(); p.Revision != held || p.Newest != held || !p.Since.IsZero() {
			t.Errorf("position after all events: %+v", p)
		}
		if windows, users, _ := r.Shared(); windows+users != 0 {
			t.Errorf("%d windows of %d watches are left", windows, users)
		}
		n.Gate(1).Limit(h.Now())
		at := h.Commit(cachetest.Put("a", "1"))
		for range 2 {
			if revision, _, err := w.Next(nil); revision != 0 || err != nil {
				t.Fatal(revision, err)
			}
		}
		b.heard()
		w.WakeAt(at)
		n.Gate(1).Limit(0)
		synctest.Wait()
		if revision, _, err := w.Next(nil); !b.heard() || revision != at || err != nil {
			t.Errorf("got %d, %v, want %d", revision, err, at)
		}
	})
}

// A watch with a WakeAt for a revision still waits for it after a WakeAt for a later revision.
func TestALaterWakeAtDoesNotReplaceAnEarlierOne(t *testing.T) {
	merging(t, func(t *testing.T, n *cachetest.Node, r *router.Router, h *cachetest.Script) {
		b := newBell()
		w := watch(t, r, kv.Range{Start: "x"}, h.Now()+1, b)
		w.Close()
		w = watch(t, r, kv.Range{}, h.Now()+1, b)
		defer w.Close()
		n.Gate(1).Limit(h.Now())
		n.Gate(2).Limit(h.Now())
		first := h.Commit()
		second := h.Commit()
		if _, _, err := w.Next(nil); err != nil {
			t.Fatal(err)
		}
		w.WakeAt(first)
		w.WakeAt(second)
		synctest.Wait()
		b.heard()
		n.Gate(1).Limit(first)
		synctest.Wait()
		if b.heard() {
			t.Error("woken by the first of two shards")
		}
		n.Gate(2).Limit(first)
		synctest.Wait()
		if !b.heard() {
			t.Error("not woken at the first revision")
		}
		w.WakeAt(second)
		w.WakeAt(second + 5)
		w.WakeAt(second)
		n.Gate(1).Limit(0)
		n.Gate(2).Limit(0)
		synctest.Wait()
		if !b.heard() {
			t.Error("not woken at the second revision")
		}
	})
}

// A watch below the window fails with the floor, and reports its position after it is
// closed.
func TestAWatchThatFallsBelowTheWindowGetsTheFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := cachetest.New()
		n := cachetest.NewNode("here", h, func(c *cache.Config) { c.WindowBytes = 1 })
		r := start(t, h, n)
		n.Use(cachetest.Map(1, nil, "here"))
		<-n.Replica(1).Ready()
		w := watch(t, r, kv.Range{}, h.Now()+1, newBell())
		at := h.Commit(cachetest.Put("a", "1"))
		synctest.Wait()
		if revision, _, err := w.Next(nil); revision != at || err != nil {
			t.Fatal(revision, err)
		}
		for range 5 {
			h.Commit(cachetest.Put("a", "2"))
			synctest.Wait()
		}
		var compacted *kv.CompactedError
		if _, _, err := w.Next(nil); !errors.As(err, &compacted) || compacted.Floor <= at+1 || compacted.Requested != at+1 {
			t.Errorf("got %v", err)
		}
		w.Close()
		if progress, _ := w.Progress(); progress != at {
			t.Errorf("after Close: progress %d, want %d", progress, at)
		}
	})
}

// HoldingBack reports, for each shard, the longest time that it has held back a watch.
func TestHoldingBackReportsTheLongestWait(t *testing.T) {
	merging(t, func(t *testing.T, n *cachetest.Node, r *router.Router, h *cachetest.Script) {
		n.Gate(2).Limit(h.Now())
		const waits = 8
		for range waits {
			w := watch(t, r, kv.Range{}, h.Now()+1, newBell())
			defer w.Close()
			h.Commit(cachetest.Put("a", "1"))
			synctest.Wait()
			if revision, _, err := w.Next(nil); revision != 0 || err != nil {
				t.Fatal(revision, err)
			}
			time.Sleep(time.Second)
		}
		held := r.HoldingBack()
		if len(held) != 1 || held[n.Replica(2)] != waits*time.Second {
			t.Errorf("held back: %v", held)
		}
	})
}

// Position counts the oldest deliverable batch, not a batch that a merge has taken and that
// still waits for another shard.
func TestPositionOfTheOldestBatchThatCanBeDelivered(t *testing.T) {
	merging(t, func(t *testing.T, n *cachetest.Node, r *router.Router, h *cachetest.Script) {
		w := watch(t, r, kv.Range{}, h.Now()+1, newBell())
		defer w.Close()
		n.Gate(2).Limit(h.Now())
		since := time.Now()
		first := h.Commit(cachetest.Put("p", "1"))
		time.Sleep(time.Second)
		second := h.Commit(cachetest.Put("a", "1"))
		synctest.Wait()
		if revision, _, err := w.Next(nil); revision != 0 || err != nil {
			t.Fatal(revision, err)
		}
		if progress, behind := w.Progress(); progress != first-1 || behind != 2 {
			t.Errorf("progress %d, shard %d is late", progress, behind)
		}
		n.Gate(2).Limit(first)
		synctest.Wait()
		if p, _ := w.Position(); p.Revision != first-1 || p.Newest != first || !p.Since.Equal(since) {
			t.Errorf("with %d taken and %d pending: %+v", second, first, p)
		}
		n.Gate(2).Limit(0)
		n.Replica(2).Demand(second)
		synctest.Wait()
		if p, _ := w.Position(); p.Revision != first-1 || p.Newest != second || !p.Since.Equal(since) {
			t.Errorf("with both deliverable: %+v", p)
		}
		for _, want := range []kv.Revision{first, second} {
			if revision, _, err := w.Next(nil); revision != want || err != nil {
				t.Errorf("%d, %v, want %d", revision, err, want)
			}
		}
	})
}
