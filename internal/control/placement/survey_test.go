package placement_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/control/placement"
	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// copiesOn returns how many shards of m have a replica on the node.
func copiesOn(m *shard.Map, n shard.NodeID) (count int) {
	for _, s := range m.Shards {
		if slices.Contains(s.Replicas, n) {
			count++
		}
	}
	return count
}

// The leader shuts down with the only complete copies: the other nodes have just restarted, and
// load. The next leader, which has asked no node when it begins, keeps these copies until others
// have loaded theirs.
func TestANewLeaderKeepsTheLastWholeCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, true)
		c.reports = true
		var whole atomic.Pointer[node] // the only node that has loaded its copies; nil: all have
		c.edit = func(cfg *placement.Config) {
			cfg.Spec.Replicas = 3
			ask := cfg.Reports
			cfg.Reports = func(ctx context.Context, nodes []shard.NodeID) []planner.Report {
				time.Sleep(time.Second) // nodes that load take their time to answer
				reports := ask(ctx, nodes)
				for _, r := range reports {
					if only := whole.Load(); only != nil && r.Node != only.name {
						for i := range r.Shards {
							r.Shards[i].Ready = false
						}
					}
				}
				return reports
			}
		}
		nodes := []*node{c.add("n1", 3), c.add("n2", 3), c.add("n3", 3)}
		time.Sleep(20 * time.Second)
		c.founded(nodes...)
		nodes = append(nodes, c.add("n4", 3))
		if err := nodes[3].p.Observe(nodes[0].p.Map()); err != nil { // as if its node had received it
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		lead := leader(t, nodes[:3]...)
		had := copiesOn(lead.p.Map(), lead.name)
		if had == 0 {
			t.Fatal("the test needs a leader with shards")
		}
		whole.Store(lead)
		time.Sleep(20 * time.Second)
		lead.set(func(m *shard.Member) { m.Draining = true }) // SIGTERM
		time.Sleep(time.Minute)
		next := leader(t, without(nodes, lead)...)
		if got := copiesOn(next.p.Map(), lead.name); got != had {
			t.Errorf("%d of %d complete copies are left, but all other copies still load", got, had)
		}
		whole.Store(nil)
		time.Sleep(time.Minute)
		if got := copiesOn(next.p.Map(), lead.name); got != 0 {
			t.Errorf("%s drains and keeps %d shards, but other nodes have loaded them", lead.name, got)
		}
		for _, n := range nodes {
			n.stop()
		}
	})
}

// If no node answers the leader, it decides by gossip alone.
func TestALeaderWithoutReportsDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, true)
		c.edit = func(cfg *placement.Config) {
			cfg.Spec.Replicas = 3
			cfg.Reports = func(context.Context, []shard.NodeID) []planner.Report { return nil }
		}
		nodes := []*node{c.add("n1", 1), c.add("n2", 0), c.add("n3", 0)}
		time.Sleep(20 * time.Second)
		had := copiesOn(c.founded(nodes[0]), "n3")
		nodes[2].set(func(m *shard.Member) { m.State, m.Since = shard.Left, time.Now() })
		time.Sleep(20 * time.Second)
		if got := copiesOn(nodes[0].p.Map(), "n3"); had == 0 || got >= had {
			t.Errorf("n3 has left and still has %d of its %d shards", got, had)
		}
		for _, n := range nodes {
			n.stop()
		}
	})
}
