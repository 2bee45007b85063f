package peerapi

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
)

// atOnce is a stream that never holds events back.
func atOnce(bool) {}

// A ping makes the listed streams send the events that they hold back, and hold back later events. A request for
// progress, a ping that does not list a stream, and the end of the pings make it send at once from then on.
func TestPingsNameTheStreamsThatHoldBack(t *testing.T) {
	h := cachetest.New()
	n := cachetest.NewNode("here", h, nil)
	defer n.Stop()
	n.Use(cachetest.Map(1, nil, "here"))
	p := newPair()
	var got []string
	for id := range uint64(3) {
		defer p.follow(id, n.Replica(1), func(back bool) { got = append(got, fmt.Sprint(id, back)) })()
	}
	ping := func(ids ...uint64) func() {
		return func() { p.hear(&peerv1.BeatRequest{PingNanos: 1, IdleFollowIds: ids}) }
	}
	for i, x := range []struct {
		hear func()
		want []string
	}{
		{ping(), nil},
		{ping(1, 7), []string{"1 true"}},
		{ping(1), []string{"1 true"}},
		{ping(1, 2), []string{"1 true", "2 true"}},
		{ping(2), []string{"1 false", "2 true"}},
		{ping(2, 1), []string{"1 true", "2 true"}},
		{func() { p.hear(&peerv1.BeatRequest{WantProgress: 9}) }, []string{"1 false", "2 false"}},
		{func() { p.hear(&peerv1.BeatRequest{WantProgress: 10}) }, nil},
		{ping(0), []string{"0 true"}},
		{func() { p.holdBack(nil) }, []string{"0 false"}},
	} {
		got = nil
		x.hear()
		if slices.Sort(got); !slices.Equal(got, x.want) {
			t.Errorf("step %d: %q, want %q", i, got, x.want)
		}
	}
}

// A cache that has ended never reaches a revision. The answer does not wait for it, and no repeated request goes
// to it.
func TestACacheThatHasEndedIsNotAsked(t *testing.T) {
	h := cachetest.New()
	n := cachetest.NewNode("here", h, nil)
	defer n.Stop()
	n.Use(cachetest.Map(1, nil, "here"))
	home := n.Replica(1)
	if err := home.WaitProgress(context.Background(), cachetest.Start); err != nil {
		t.Fatal(err)
	}
	n.Gate(1).Limit(h.Now())
	at := h.Commit(cachetest.Put("a", "1"))
	p := newPair()
	end := p.follow(1, home, atOnce)
	<-p.bell
	p.hear(&peerv1.BeatRequest{WantProgress: int64(at)})
	<-p.bell
	if !p.demand() || len(p.bell) > 0 {
		t.Error("the answer does not wait for a shard below the revision")
	}
	n.Use(cachetest.Map(2, []string{"h"}, "here"))
	if <-p.bell; p.demand() || len(p.bell) > 0 {
		t.Error("progress is requested from a cache that has ended")
	}
	end()
	if p.missing != 0 || len(p.follows) != 0 {
		t.Errorf("the pair still waits for %d streams and follows %d", p.missing, len(p.follows))
	}
}

// A cache that has ended no longer advances. The report of the other caches does not wait for it, and it does not
// wake the heartbeat repeatedly.
func TestACacheThatHasEndedIsNotAwaited(t *testing.T) {
	h := cachetest.New()
	n := cachetest.NewNode("here", h, nil)
	defer n.Stop()
	n.Use(cachetest.Map(1, []string{"b"}, "here"))
	p := newPair()
	for id := range shard.ID(2) {
		home := n.Replica(id + 1)
		<-home.Ready()
		defer p.follow(uint64(id), home, atOnce)()
	}
	p.hear(&peerv1.BeatRequest{PingNanos: 1, Push: true})
	p.report()
	p.await()
	n.Use(cachetest.Map(2, []string{"b", "c"}, "here")) // the second shard is split
	for len(p.bell) > 0 {
		<-p.bell
	}
	if p.arrive(); p.due {
		t.Error("a report is due, although one shard has not advanced")
	}
	at := h.Commit(cachetest.Put("z", "1"))
	if err := n.Replica(1).WaitProgress(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	<-p.bell
	if p.arrive(); !p.due {
		t.Error("no report is due, although all remaining shards have advanced")
	}
	if m, _ := p.report(); m.GetProgress() != int64(at) || len(m.GetFollowIds()) != 1 {
		t.Errorf("reported %v", m)
	}
	if p.await(); len(p.bell) > 0 {
		t.Error("a cache that has ended wakes the heartbeat")
	}
	if p.hear(&peerv1.BeatRequest{PingNanos: 2}); p.next == nil {
		t.Error("the pair waits for no revision")
	}
	if p.await(); p.next != nil {
		t.Error("the pair waits for a revision that the follower did not request")
	}
}

// A stream that ends while the pair waits for its shard leaves no trace: the other streams are reported, and the
// cache has no waiter.
func TestAStreamThatEndsIsNotWaitedFor(t *testing.T) {
	h := cachetest.New()
	n := cachetest.NewNode("here", h, nil)
	defer n.Stop()
	n.Use(cachetest.Map(1, []string{"b", "c"}, "here"))
	p := newPair()
	var ends []func()
	for id := range shard.ID(2) {
		home := n.Replica(id + 1)
		<-home.Ready()
		ends = append(ends, p.follow(uint64(id), home, atOnce))
	}
	n.Gate(1).Limit(h.Now())
	p.demand()
	p.report()
	at := h.Commit(cachetest.Put("c", "1"))
	p.hear(&peerv1.BeatRequest{WantProgress: int64(at)})
	if !p.demand() {
		t.Fatal("the pair waits for no shard")
	}
	if err := n.Replica(2).WaitProgress(context.Background(), at); err != nil {
		t.Fatal(err)
	}
	for len(p.bell) > 0 {
		<-p.bell
	}
	if m, _ := p.report(); m != nil {
		t.Errorf("a report precedes the last shard: %v", m)
	}
	ends[0]()
	<-p.bell
	if m, _ := p.report(); m.GetProgress() != int64(at) || len(m.GetFollowIds()) != 1 || m.GetFollowIds()[0] != 1 {
		t.Errorf("reported %v", m)
	}
	ends[1]()
	if p.missing != 0 || len(p.follows) != 0 {
		t.Errorf("the pair still waits for %d streams and follows %d", p.missing, len(p.follows))
	}
}

// Shards that reach a revision after the answer was sent are reported together: a slow etcd does not cost a
// message for each shard.
func TestLateShardsAreReportedTogether(t *testing.T) {
	h := cachetest.New()
	n := cachetest.NewNode("here", h, nil)
	defer n.Stop()
	n.Use(cachetest.Map(1, []string{"b", "c"}, "here"))
	p := newPair()
	for id := range shard.ID(2) {
		home := n.Replica(id + 1)
		<-home.Ready()
		defer p.follow(uint64(id), home, atOnce)()
		n.Gate(id + 1).Limit(h.Now())
	}
	at := h.Commit(cachetest.Put("c", "1"))
	p.hear(&peerv1.BeatRequest{WantProgress: int64(at)})
	p.demand()
	p.giveUp()
	if m, _ := p.report(); len(m.GetFollowIds()) != 2 || m.GetProgress() >= int64(at) {
		t.Errorf("reported %v", m)
	}
	for len(p.bell) > 0 {
		<-p.bell
	}
	for id := range shard.ID(2) {
		if m, _ := p.report(); m != nil {
			t.Errorf("a report precedes the last shard: %v", m)
		}
		n.Gate(id + 1).Limit(0)
		if err := n.Replica(id+1).WaitProgress(t.Context(), at); err != nil {
			t.Fatal(err)
		}
	}
	<-p.bell
	if m, _ := p.report(); len(m.GetFollowIds()) != 2 || m.GetProgress() != int64(at) {
		t.Errorf("reported %v", m)
	}
}

// Progress can be requested from single streams, each with its own revision, even before they have begun.
func TestProgressIsAskedOfOneStream(t *testing.T) {
	h := cachetest.New()
	n := cachetest.NewNode("here", h, nil)
	defer n.Stop()
	n.Use(cachetest.Map(1, nil, "here"))
	<-n.Replica(1).Ready()
	p := newPair()
	ahead := int64(h.Now()) + 5
	p.hear(&peerv1.BeatRequest{WantProgress: ahead, WantFollowId: 2})
	for id := range uint64(3) {
		defer p.follow(id+1, n.Replica(1), atOnce)()
	}
	p.hear(&peerv1.BeatRequest{WantProgress: ahead + 1, WantFollowId: 3})
	p.hear(&peerv1.BeatRequest{WantProgress: ahead - 1, WantFollowId: 3})
	if !p.demand() {
		t.Error("progress is requested from no stream")
	}
	p.mu.Lock()
	follows, wanted, early := maps.Clone(p.follows), p.wanted, len(p.early)
	p.mu.Unlock()
	for id, want := range map[uint64]int64{1: 0, 2: ahead, 3: ahead + 1} {
		if f := follows[id]; int64(f.wanted) != want || f.waits != (want > 0) {
			t.Errorf("stream %d has the requested revision %d, want %d", id, f.wanted, want)
		}
	}
	if wanted != 0 || early != 0 {
		t.Errorf("all streams have the requested revision %d, and %d early requests are left; want 0 of both", wanted, early)
	}
}

func TestQuestionsToMissingStreamsAreBounded(t *testing.T) {
	p := newPair()
	for id := range uint64(2 * maxEarly) {
		p.hear(&peerv1.BeatRequest{WantProgress: 1, WantFollowId: id + 1})
	}
	if len(p.early) != maxEarly {
		t.Errorf("%d early requests are kept, want the bound", len(p.early))
	}
}
