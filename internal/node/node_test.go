package node_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/internal/node"
)

func shards(n, replicas int) func(*node.Config) {
	return func(c *node.Config) { c.Spec.Shards, c.Spec.Replicas = n, replicas }
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// An empty etcd is one shard. When keys are added it is cut, under watches of all
// shapes, and every node serves every key, although it has copies of few.
func TestFoundedEmptySplitUnderWatches(t *testing.T) {
	t.Parallel()
	for _, replicas := range []int{1, 3} {
		t.Run(fmt.Sprintf("replicas=%d", replicas), func(t *testing.T) {
			c := startCluster(t, 3, 3, shards(4, replicas))
			c.ready()
			w := newCrowd(c)
			for _, m := range c.nodes {
				cl := c.client(m)
				w.shapes(cl, 2)
				w.shapes(cl, 0)
			}
			all := keys(32)
			stop := w.load(t, all)
			sm := c.settled(4, replicas)
			for _, m := range c.nodes {
				w.shapes(c.client(m), 0)
			}
			w.reach(stop())
			if len(sm.Shards) != 4 {
				t.Errorf("%d shards", len(sm.Shards))
			}
			c.put(all...)
			for _, m := range c.nodes {
				cl := c.client(m)
				for _, key := range all {
					if r, err := cl.Get(within(t), key); err != nil || r.KV == nil {
						t.Fatalf("%s at %s: %+v, %v", key, m.name, r, err)
					}
				}
				n := 0
				for _, err := range cl.List(within(t), client.Range{}).All() {
					if err != nil {
						t.Fatal(err)
					}
					n++
				}
				if n != len(all) {
					t.Errorf("%d keys at %s, want %d", n, m.name, len(all))
				}
			}
		})
	}
}

// A node that stops properly first moves its shards and watches: the watches receive
// the nodes to resume at, and lose no event, although most shards have only one copy.
func TestDrainUnderLoad(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes long")
	}
	for _, replicas := range []int{1, 2} {
		t.Run(fmt.Sprintf("replicas=%d", replicas), func(t *testing.T) {
			c := startCluster(t, 3, 3, shards(4, replicas))
			all := keys(32)
			from := c.put(all...) + 1
			c.ready()
			c.settled(4, replicas)
			w := newCrowd(c)
			for _, m := range c.nodes {
				w.shapes(c.client(m, c.nodes[1], c.nodes[2]), from)
			}
			w.shapes(c.client(), 0)
			stop := w.load(t, all)
			w.reach(c.put(all[0]))
			goes := c.busiest()
			goes.drain()
			w.reach(c.put(all[0]))
			c.settled(4, replicas)
			w.reach(stop())
			moved, told := 0, 0
			for _, one := range w.all() {
				times, to, reason := one.moved()
				if times > 0 && to == goes.name {
					t.Errorf("a watch moved to the stopping node")
				}
				if reason != nil {
					moved++
					if strings.Contains(reason.Error(), "shutting down") {
						told++
					}
				}
			}
			if moved == 0 || told == 0 {
				t.Errorf("%d watches moved, %d received the reason", moved, told)
			}
			if n := c.resets(); n > 0 {
				t.Errorf("history was lost %d times", n)
			}
		})
	}
}

// When an owner dies, the watches on other nodes stay in place. etcd sees no
// list, and no more watches than there are copies. When the node returns, it
// loads its state from the others.
func TestOwnerDies(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 3, shards(4, 3))
	all := keys(32)
	from := c.put(all...) + 1
	c.ready()
	c.settled(4, 3)
	w := newCrowd(c)
	owner := c.owner(all[0])
	var stayed []*watcher
	for _, m := range c.nodes {
		w.shapes(c.client(m), from)
		if m != owner {
			stayed = append(stayed, w.watch(c.patient(m), "stays on "+m.name, client.Range{}, from))
		}
	}
	w.watch(c.client(owner, c.other(owner)), "moves", client.Range{}, from)
	w.reach(c.put(all[0]))
	lists := c.lists()
	stop := w.load(t, all)
	owner.crash()
	for _, m := range c.nodes {
		if m != owner {
			cl := c.client(m)
			for _, key := range all[:8] {
				revision := c.put(key)
				if r, err := cl.Get(within(t), key); err != nil || r.Revision < revision {
					t.Fatalf("%s at %s: %+v, %v; want it at %d", key, m.name, r, err, revision)
				}
			}
		}
	}
	for _, one := range stayed {
		for _, r := range one.allMoves() {
			if r.From != owner.name {
				t.Errorf("a watch moved from the live node %s to %s: %v", r.From, r.To, r.Reason)
			}
		}
	}
	owner.start()
	c.ready()
	c.settled(4, 3)
	w.reach(stop())
	if n := c.lists() - lists; n > 0 {
		t.Errorf("%d lists at etcd", n)
	}
	if n := c.resets(); n > 0 {
		t.Errorf("history was lost %d times", n)
	}
}
