package node_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// operator requests changes of the shard map from one node.
type operator struct {
	t *testing.T
	c *client.Client
}

func (o operator) wants(change admin.PlacementChange, opts admin.ChangeOptions) (admin.PlacementPlan, error) {
	o.t.Helper()
	run, err := admin.New(o.c).ChangePlacement(within(o.t), change, opts)
	if err != nil {
		return admin.PlacementPlan{}, err
	}
	return run.Plan, run.Wait(nil)
}

// does makes a request that must succeed.
func (o operator) does(change admin.PlacementChange) admin.PlacementPlan {
	o.t.Helper()
	plan, err := o.wants(change, admin.ChangeOptions{})
	if err != nil {
		o.t.Fatalf("%+v: %v", change, err)
	}
	return plan
}

func (o operator) status() admin.ClusterStatus {
	o.t.Helper()
	s, err := admin.New(o.c).ClusterStatus(within(o.t), 0)
	if err != nil {
		o.t.Fatal(err)
	}
	return s
}

// An operator can change the map through any node, even if it does not vote; a watch
// of all keys misses no event.
func TestOperatorChangesTheMap(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 4, 3, shards(2, 2))
	c.put(keys(16)...)
	c.ready()
	m := c.settled(2, 2)
	o := operator{t, c.client(c.nodes[3])}
	watch := c.client().Watch(within(t), client.Prefix("/"))
	defer watch.Close()
	<-watch.Started()

	split := admin.SplitShard{Shard: uint64(m.Shards[0].ID)}
	dry, err := o.wants(split, admin.ChangeOptions{DryRun: true})
	if err != nil || len(dry.Steps) != 1 || len(dry.Steps[0].To) != 2 || o.status().Map.Version != m.Version {
		t.Fatalf("dry run: %v, %+v", err, dry)
	}
	plan := o.does(split)
	parts := plan.Steps[0].To
	if got := o.status().Map.Shards; len(got) != 3 || got[0].ID != parts[0].ID || got[1].Range != parts[1].Range || plan.Steps[0].Filling == nil && got[1].Replicas[0] == "" {
		t.Errorf("split %+v, got %+v", plan, got)
	}

	fresh := o.stranger(parts[0].ID)
	o.does(admin.MoveShard{Shard: parts[0].ID, Owner: fresh})
	moved := o.shard(parts[0].ID)
	if moved.Owner() != fresh || !slices.Equal(moved.Pins, []string{fresh}) {
		t.Errorf("moved to %s: %+v", fresh, moved)
	}

	o.does(admin.DrainNodes{Nodes: []string{fresh}})
	status := o.status()
	for _, s := range status.Map.Shards {
		if slices.Contains(s.Replicas, fresh) {
			t.Errorf("%s is drained and still has %+v", fresh, s)
		}
	}
	for _, m := range status.Members {
		if m.Member.Draining != (m.Member.Name == fresh) {
			t.Errorf("member %+v", m.Member)
		}
	}
	if again := o.does(admin.DrainNodes{Nodes: []string{fresh}}); len(again.Steps) > 0 {
		t.Errorf("drained again: %+v", again)
	}

	o.does(admin.UndrainNodes{Nodes: []string{fresh}})
	testkit.Succeeds(t, "the pin outlives the drain and makes the node the owner", func() error {
		if moved = o.shard(parts[0].ID); moved.Owner() != fresh {
			return fmt.Errorf("undrained: %+v", moved)
		}
		return nil
	})
	testkit.Succeeds(t, "there are three voters and a leader", func() error { // an election may be under way
		if voters, leaders := o.voters(); voters != 3 || leaders != 1 {
			return fmt.Errorf("%d voters, %d leaders", voters, leaders)
		}
		return nil
	})

	merged := o.does(admin.MergeShards{Shard: parts[1].ID, With: parts[0].ID})
	if got := o.status().Map.Shards; len(got) != 2 || got[0].Range != merged.Steps[0].To[0].Range || got[0].Owner() != fresh {
		t.Errorf("merged %+v: %+v", merged, got)
	}
	o.does(admin.Rebalance{})
	for i, s := range o.status().Map.Shards {
		if len(s.Pins) > 0 || s.Joins {
			t.Errorf("rebalanced: %d %+v", i, s)
		}
	}

	want := c.put("/a/last", "/z/last")
	for got := want - 2; got < want; { // batches only, no unit
		u, err := watch.Next(within(t))
		if err != nil || u.Kind != client.KindBatch || u.Revision != got+1 {
			t.Fatalf("after revision %d: %v, %+v", got, err, u)
		}
		got = u.Revision
	}
	if n := c.log.count("shard map change begun by an operator", "split shard"); n != 1 {
		t.Errorf("%d log lines for the split, want 1", n)
	}
}

func (o operator) voters() (voters, leaders int) {
	o.t.Helper()
	for _, m := range o.status().Members {
		if m.Member.Voter {
			voters++
		}
		if m.Member.Leader {
			leaders++
		}
	}
	return voters, leaders
}

func (o operator) shard(id uint64) admin.Shard {
	o.t.Helper()
	for _, s := range o.status().Map.Shards {
		if s.ID == id {
			return s
		}
	}
	o.t.Fatalf("no shard %d", id)
	return admin.Shard{}
}

// stranger returns a node without the shard.
func (o operator) stranger(id uint64) string {
	o.t.Helper()
	s := o.shard(id)
	for _, m := range o.status().Members {
		if !slices.Contains(s.Replicas, m.Member.Name) {
			return m.Member.Name
		}
	}
	o.t.Fatalf("all nodes have shard %d", id)
	return ""
}

// Every node refuses invalid requests, a request is carried out once, and a
// request that was made for another map is refused.
func TestOperatorIsRefused(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 3, shards(2, 2))
	c.put(keys(16)...)
	c.ready()
	m := c.settled(2, 2)
	o := operator{t, c.client()}
	refused := new(admin.RefusedError)
	all := admin.DrainNodes{Nodes: []string{"node-1", "node-2", "node-3"}}
	if _, err := o.wants(all, admin.ChangeOptions{Force: true}); !errors.As(err, &refused) || refused.Force || !strings.Contains(refused.Reason, "no node would be left") {
		t.Errorf("all drained: %v", err)
	}
	two := admin.DrainNodes{Nodes: []string{"node-1", "node-2"}}
	if _, err := o.wants(two, admin.ChangeOptions{}); !errors.As(err, &refused) || !refused.Force || !strings.Contains(refused.Reason, "1 node would be left for 2 replicas") {
		t.Errorf("two drained: %v", err)
	}
	split := admin.SplitShard{Shard: uint64(m.Shards[0].ID), At: []string{m.Shards[0].Range.Start + "/a/01"}}
	if _, err := o.wants(split, admin.ChangeOptions{IfVersion: m.Version + 7}); !errors.As(err, &refused) || refused.Field != "if_version" {
		t.Errorf("another version: %v", err)
	}
	if got := c.nodes[0].node.Map().Version; got != m.Version {
		t.Errorf("after refused requests the map has version %d, want %d", got, m.Version)
	}
	first, err := o.wants(split, admin.ChangeOptions{RequestID: "once"})
	if err != nil {
		t.Fatal(err)
	}
	again, err := o.wants(split, admin.ChangeOptions{RequestID: "once", Repeated: true})
	if err != nil || again.MapVersion != first.MapVersion || len(again.Steps) > 0 {
		t.Errorf("repeated request: %v, %+v", err, again)
	}
	if _, err := o.wants(split, admin.ChangeOptions{RequestID: "twice", Repeated: true}); !errors.Is(err, client.ErrInvalid) || !strings.Contains(err.Error(), "any more") {
		t.Errorf("another request: %v", err)
	}
	// A client that abandons its request does not stop the change.
	drain := admin.DrainNodes{Nodes: []string{"node-3"}}
	run, err := admin.New(o.c).ChangePlacement(within(t), drain, admin.ChangeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	run.Close()
	if again := o.does(drain); again.MapVersion < run.Plan.MapVersion || !slices.Contains(o.status().Map.Drained, "node-3") {
		t.Errorf("abandoned request: %+v", again)
	}
}
