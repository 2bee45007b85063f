package etcdapi_test

import (
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/edge/etcdapi"
	"github.com/shardwatch/shardwatch/internal/edge/etcdwatch"
	"github.com/shardwatch/shardwatch/internal/fair"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// oneAtATime limits the API to opening one watch at a time.
func oneAtATime(c *etcdapi.Config) { c.OpenQueue = fair.NewGate(1, etcdwatch.MaxOpensWaiting) }

// Streams that open watches at the same time queue. None is refused, and a stream
// that ends while it waits does not block the queue.
func TestNewWatchesQueue(t *testing.T) {
	r := startWatches(t, rigOptions{api: oneAtATime})
	r.etcd.mu.Lock() // blocks reads of etcd
	var streams []*watchStream
	for range 4 {
		s := r.watch()
		for range 3 {
			s.create(&etcdserverpb.WatchCreateRequest{Key: []byte("a"), StartRevision: first})
		}
		streams = append(streams, s)
	}
	streams[3].end()
	r.etcd.mu.Unlock()
	for _, s := range streams[:3] {
		for id := range int64(3) {
			s.created(id)
		}
	}
	last := r.watch()
	last.create(&etcdserverpb.WatchCreateRequest{Key: []byte("a"), StartRevision: first})
	last.created(0)
}

// Watches of a shard that no node serves wait for it without occupying a slot, because watches of
// other shards need the slots.
func TestAHomelessShardBlocksNoOtherWatch(t *testing.T) {
	m := cachetest.Map(1, []string{"h"}, "here")
	m.Shards[1].Replicas = []shard.NodeID{"there"} // an unavailable node
	r := startWatches(t, rigOptions{shards: m, api: func(c *etcdapi.Config) {
		oneAtATime(c)
		c.HomeTimeout = time.Hour
	}})
	r.node.RefuseRelays(&kv.UnavailableError{Why: kv.NotReady, Detail: "there is away"})
	homeless := r.watch()
	for range 3 {
		homeless.create(&etcdserverpb.WatchCreateRequest{Key: []byte("z"), StartRevision: first})
	}
	testkit.Eventually(t, "three watches wait for the shard", func() bool { return r.api.Watches() == 3 })
	s := r.watch()
	for id := range int64(3) {
		s.create(&etcdserverpb.WatchCreateRequest{Key: []byte("a"), StartRevision: first})
		s.created(id)
	}
	r.node.RefuseRelays(nil)
	for id := range int64(3) {
		homeless.created(id)
	}
}

// A client has one turn, regardless of the number of its connections.
func TestAClientsConnectionsShareItsTurn(t *testing.T) {
	openQueue := fair.NewGate(1, etcdwatch.MaxOpensWaiting)
	r := startWatches(t, rigOptions{api: func(c *etcdapi.Config) { c.OpenQueue = openQueue }})
	r.etcd.allow = make(chan struct{})
	open := func(from string, waiting int) *watchStream {
		s := r.watchBy(r.dial(from))
		s.create(&etcdserverpb.WatchCreateRequest{Key: []byte("a"), StartRevision: first})
		testkit.Eventually(t, "the watch waits for its turn", func() bool {
			in, out := openQueue.Figures()
			return in == 1 && out == waiting
		})
		return s
	}
	for n := range 4 {
		open("127.0.0.1", n) // the first watch gets the slot
	}
	other := open("127.0.0.2", 4)
	for range 3 { // the first watch, a waiting watch of the same client, and the other client's watch
		r.etcd.allow <- struct{}{}
	}
	other.created(0)
	if _, waiting := openQueue.Figures(); waiting == 0 { // the last watch of the first client still waits
		t.Error("the other client had to wait for all of the first one's connections")
	}
	close(r.etcd.allow)
}

// Unread answers are bounded over all streams, and released when the client reads them or
// disconnects.
func TestUnreadRepliesAreBounded(t *testing.T) {
	b := budget.New(1 << 20) // 64 KiB of it for replies, half of that for one client
	r := startWatches(t, rigOptions{api: func(c *etcdapi.Config) { c.Budget = b }})
	r.etcd.mu.Lock() // the first watch of each stream waits for etcd, and so do all later answers
	const streams, creates = 4, 300
	var open []*watchStream
	for range streams {
		s := r.watch()
		for range creates {
			s.create(&etcdserverpb.WatchCreateRequest{Key: []byte("a"), StartRevision: first})
		}
		open = append(open, s)
	}
	const most = 32 << 10
	testkit.Eventually(t, "the client's part of the budget is used up", func() bool { return b.Held(budget.Replies) == most })
	r.etcd.mu.Unlock()
	for _, s := range open {
		for id := range int64(creates) {
			s.created(id)
		}
	}
	testkit.Eventually(t, "the budget for read answers is released", func() bool { return b.Held(budget.Replies) == 0 })
}
