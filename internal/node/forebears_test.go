package node_test

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"testing"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/node"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
)

// hasty compacts etcd just before a node begins a watch from a revision, the next
// left times.
type hasty struct {
	node.Etcd
	c *cluster

	mu   sync.Mutex
	left int     // guarded by mu
	puts []int64 // guarded by mu; revisions that etcd compacts before the node's request
}

func (h *hasty) Follow(ctx context.Context, req kv.FollowRequest) iter.Seq2[kv.Update, error] {
	h.mu.Lock()
	defer h.mu.Unlock()
	if req.From > 0 && h.left > 0 {
		h.left--
		h.puts = append(h.puts, h.c.put("/a/meanwhile"), h.c.put("/a/meanwhile"))
		if _, err := h.c.etcd.Client().Compact(ctx, h.puts[len(h.puts)-1]); err != nil {
			h.c.t.Errorf("compact: %v", err)
		}
	}
	return h.Etcd.Follow(ctx, req)
}

// etcd is compacted just when shards that result from a split or a merge begin
// their watches. They take the missing events from their predecessors: no node
// lists, and a watch receives every change.
func TestMapChangesWhileEtcdIsCompacted(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 1, func(c *node.Config) {
		shards(1, 1)(c)
		c.HandOver = patience // etcd is slow on a busy machine, and compacted twice
	})
	c.etcd = etcdtest.Start(t)
	h := &hasty{c: c}
	c.nodes[0].wrap = func(e node.Etcd) node.Etcd { h.Etcd = e; return h }
	from := c.put(keys(16)...) + 1
	c.nodes[0].start()
	c.ready()
	m := c.settled(1, 1)
	w := c.client().Watch(within(t), client.Key("/a/meanwhile"), client.FromRevision(from))
	defer w.Close()
	// A shard settles before its watch at etcd begins. Once the watch has sent an event,
	// compaction cannot remove events that it needs.
	first := c.put("/a/meanwhile")
	if u, err := w.Next(within(t)); err != nil || u.Revision != first {
		t.Fatalf("%v at %d, %v; want revision %d", u.Kind, u.Revision, err, first)
	}
	before := c.stats()
	change := func(what shard.Change, strikes, shards int) {
		t.Helper()
		h.mu.Lock()
		h.left = strikes
		h.mu.Unlock()
		b, err := shard.EncodeCommand(shard.Command{RequestID: fmt.Sprint("test", m.Version), IfVersion: m.Version, Change: what})
		if err == nil {
			_, err = c.nodes[0].node.Propose(within(t), b)
		}
		if err != nil {
			t.Fatal(err)
		}
		m = c.settled(shards, 1)
	}
	change(shard.Split{Shard: m.Shards[0].ID, At: []string{"/d/"}}, 2, 2)
	change(shard.Merge{Shards: []shard.ID{m.Shards[0].ID, m.Shards[1].ID}, Replicas: m.Shards[0].Replicas}, 1, 1)

	h.mu.Lock()
	defer h.mu.Unlock()
	if h.left > 0 || len(h.puts) != 6 {
		t.Fatalf("the test needs more compactions: %d left, changes at %v", h.left, h.puts)
	}
	for _, at := range h.puts {
		u, err := w.Next(within(t))
		if err != nil || u.Kind != client.KindBatch || u.Revision != at {
			t.Fatalf("%v at %d, %v; want revision %d", u.Kind, u.Revision, err, at)
		}
	}
	if after := c.stats(); after.Lists != before.Lists || after.Leaps != before.Leaps {
		t.Errorf("%d lists of all keys, %d of differences", after.Lists-before.Lists, after.Leaps-before.Leaps)
	}
	if n := c.resets(); n > 0 {
		t.Errorf("history was lost %d times", n)
	}
}
