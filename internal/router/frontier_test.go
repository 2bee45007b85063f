package router_test

import (
	"sync/atomic"
	"testing"

	"github.com/shardwatch/shardwatch/internal/cachetest"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
)

// counter is a waker that counts.
type counter struct{ n atomic.Int64 }

func (c *counter) Wake() { c.n.Add(1) }

// Watches over the same shards are woken by an event, and once more when all
// shards have come to it, however many shards they wait for.
func TestWatchesOfTheSameShardsAreWokenTogether(t *testing.T) {
	h := cachetest.New()
	n := cachetest.NewNode("here", h, nil)
	r := start(t, h, n)
	m := cachetest.Map(1, []string{"d", "g", "k"}, "here")
	n.Use(m)
	for i := range m.Shards {
		<-n.Replica(m.Shards[i].ID).Ready()
	}
	const watches = 100
	from := h.Now() + 1
	var opened []*router.Watch
	wakers := make([]counter, watches+1)
	for i := range wakers {
		rng := kv.Range{Start: "a"} // all four shards
		if i == watches {
			rng = kv.Range{Start: "a", End: "k"} // three of them
		}
		w, err := r.Watch(t.Context(), router.WatchRequest{Range: rng, From: from, Lineage: 1}, &wakers[i])
		if err != nil {
			t.Fatal(err)
		}
		if revision, _, err := w.Next(nil); revision != 0 || err != nil {
			t.Fatal(revision, err)
		}
		opened = append(opened, w)
	}
	for i := range m.Shards[1:] {
		n.Gate(m.Shards[1+i].ID).Limit(h.Now())
	}
	at := h.Commit(cachetest.Put("a", "1"))
	eventually(t, "all are woken by the event", func() bool {
		for i := range wakers {
			if wakers[i].n.Load() == 0 {
				return false
			}
		}
		return true
	})
	for _, w := range opened {
		if revision, _, err := w.Next(nil); revision != 0 || err != nil {
			t.Fatalf("got %d, %v, though three shards may have something before it", revision, err)
		}
		w.WakeAt(at) // the same revision, by another way
	}
	if revisions, waiting, frontiers := r.Waits(); revisions != 2 || waiting != 2*len(opened) || frontiers != 2 {
		t.Errorf("%d watches wait %d times for %d revisions, at %d frontiers", len(opened), waiting, revisions, frontiers)
	}
	held := r.HoldingBack()
	for i := range m.Shards {
		if age, holds := held[n.Replica(m.Shards[i].ID)]; holds != (i > 0) || (holds && age <= 0) {
			t.Errorf("shard %d: holds back %v, for %v", m.Shards[i].ID, holds, age)
		}
	}
	for i := range m.Shards[1:] {
		n.Gate(m.Shards[1+i].ID).Limit(at)
	}
	for i, w := range opened {
		eventually(t, "a watch is woken when all shards are there", func() bool { return wakers[i].n.Load() == 3 })
		if revision, events, err := w.Next(nil); revision != at || len(events) != 1 || err != nil {
			t.Fatalf("got %d, %d events, %v", revision, len(events), err)
		}
	}
	if revisions, waiting, _ := r.Waits(); revisions+waiting != 0 {
		t.Errorf("%d still wait for %d revisions", waiting, revisions)
	}
	if held := r.HoldingBack(); len(held) > 0 {
		t.Errorf("held back: %v", held)
	}
	opened[watches].Close()
	if _, _, frontiers := r.Waits(); frontiers != 1 {
		t.Errorf("%d frontiers when the only watch of one has left, want 1", frontiers)
	}
	for _, w := range opened {
		w.Close()
	}
	if _, _, frontiers := r.Waits(); frontiers != 0 {
		t.Errorf("%d frontiers are left when no watch is", frontiers)
	}
}

// What waits for a shard that never comes goes with its watch: nothing is left
// at the router.
func TestClosedWatchWaitsForNothing(t *testing.T) {
	h := cachetest.New()
	n := cachetest.NewNode("here", h, nil)
	r := start(t, h, n)
	m := cachetest.Map(1, []string{"g"}, "here")
	n.Use(m)
	for i := range m.Shards {
		<-n.Replica(m.Shards[i].ID).Ready()
	}
	n.Gate(m.Shards[1].ID).Limit(h.Now())
	for range 10 {
		var c counter
		w, err := r.Watch(t.Context(), router.WatchRequest{From: h.Now() + 1, Lineage: 1}, &c)
		if err != nil {
			t.Fatal(err)
		}
		h.Commit(cachetest.Put("a", "1"))
		eventually(t, "the watch waits for the other shard", func() bool {
			if revision, _, err := w.Next(nil); revision != 0 || err != nil {
				t.Fatal(revision, err)
			}
			_, waiting, _ := r.Waits()
			return waiting > 0
		})
		w.WakeAt(h.Now() + 10)
		w.Close()
		if revisions, waiting, frontiers := r.Waits(); revisions+waiting+frontiers != 0 {
			t.Fatalf("%d wait for %d revisions at %d frontiers", waiting, revisions, frontiers)
		}
	}
}
