package admin_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/client/clienttest"
)

// A change returns with its plan once it is agreed on, and Wait reports its progress until it is done.
func TestChangePlacement(t *testing.T) {
	cluster := start(t, clienttest.Config{Cuts: []string{"/m"}, Replicas: 2})
	c := connect(t, cluster)
	run, err := c.ChangePlacement(t.Context(), admin.MoveShard{Shard: 1, To: []string{"n3", "n1"}}, admin.ChangeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if run.Plan.MapVersion != 2 || len(run.Plan.Steps) != 1 || run.Plan.Steps[0].Filling[0] != "n3" || run.Plan.Steps[0].To[0].Owner() != "n3" {
		t.Errorf("plan: %+v", run.Plan)
	}
	if err := run.Wait(nil); err != nil {
		t.Error(err)
	}
	m, err := c.ClusterStatus(t.Context(), 0)
	if err != nil || m.Map.Shards[0].Owner() != "n3" || m.Map.Shards[0].Pins[0] != "n3" || m.Map.Replicas != 2 {
		t.Errorf("map: %+v, %v", m.Map, err)
	}
	cluster.HoldFilling(true)
	var seen []admin.PlacementProgress
	run, err = c.ChangePlacement(t.Context(), admin.DrainNodes{Nodes: []string{"n1"}}, admin.ChangeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	err = run.Wait(func(p admin.PlacementProgress) {
		seen = append(seen, p)
		cluster.HoldFilling(false)
	})
	if err != nil || len(seen) < 2 || seen[0].ShardsLeft == 0 || seen[0].Filling[0].OfBytes != 1024 || seen[len(seen)-1].ShardsLeft != 0 {
		t.Errorf("%v, progress %+v", err, seen)
	}
	if _, err := c.ChangePlacement(t.Context(), admin.UndrainNodes{Nodes: []string{"n1"}}, admin.ChangeOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := c.ChangePlacement(t.Context(), admin.Rebalance{}, admin.ChangeOptions{}); err != nil {
		t.Error(err)
	}
}

func TestDryRunChangesNothing(t *testing.T) {
	cluster := start(t, clienttest.Config{})
	c := connect(t, cluster)
	run, err := c.ChangePlacement(t.Context(), admin.SplitShard{Shard: 1, At: []string{"/g", "/m"}}, admin.ChangeOptions{DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Wait(nil); err != nil || len(run.Plan.Steps) != 1 || len(run.Plan.Steps[0].To) != 3 {
		t.Errorf("%v, plan %+v", err, run.Plan)
	}
	if m, err := c.ClusterStatus(t.Context(), 0); err != nil || m.Map.Version != 1 {
		t.Errorf("%v, map %+v", err, m.Map)
	}
}

// A refusal names the field, and whether force overrides it.
func TestRefusedChange(t *testing.T) {
	cluster := start(t, clienttest.Config{Cuts: []string{"/m"}, Replicas: 2})
	c := connect(t, cluster)
	change := func(change admin.PlacementChange, o admin.ChangeOptions) error {
		run, err := c.ChangePlacement(t.Context(), change, o)
		if err == nil {
			run.Close()
		}
		return err
	}
	invalid, refused := new(client.InvalidError), new(admin.RefusedError)
	if err := change(admin.SplitShard{Shard: 1, At: []string{"/z"}}, admin.ChangeOptions{}); !errors.As(err, &invalid) || invalid.Field != "at" || !errors.Is(err, client.ErrInvalid) {
		t.Errorf("a split outside the shard: %v", err)
	}
	if err := change(admin.MergeShards{Shard: 1, With: 7}, admin.ChangeOptions{}); !errors.As(err, &invalid) || invalid.Field != "with" {
		t.Errorf("an unknown shard: %v", err)
	}
	if err := change(admin.Rebalance{}, admin.ChangeOptions{IfVersion: 9}); !errors.As(err, &refused) || refused.Field != "if_version" || refused.Force {
		t.Errorf("another version: %v", err)
	}
	drain := admin.DrainNodes{Nodes: []string{"n1", "n2"}}
	if err := change(drain, admin.ChangeOptions{}); !errors.As(err, &refused) || refused.Field != "nodes" || !refused.Force {
		t.Errorf("too few nodes: %v", err)
	}
	if err := change(drain, admin.ChangeOptions{Force: true}); err != nil {
		t.Errorf("with force: %v", err)
	}
}

// A change whose answer is lost is requested again with the same request ID, and is made once.
func TestChangeIsMadeOnce(t *testing.T) {
	cluster := start(t, clienttest.Config{})
	c := connect(t, cluster)
	cluster.LoseChanges(1)
	run, err := c.ChangePlacement(t.Context(), admin.SplitShard{Shard: 1, At: []string{"/m"}}, admin.ChangeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Wait(nil); err != nil || run.Plan.MapVersion != 2 {
		t.Errorf("%v, plan %+v", err, run.Plan)
	}
	// A change that another program repeats with this request ID is also made once.
	again, err := c.ChangePlacement(t.Context(), admin.SplitShard{Shard: 1, At: []string{"/m"}}, admin.ChangeOptions{RequestID: run.RequestID(), Repeated: true})
	if err != nil || again.Plan.MapVersion != 2 {
		t.Errorf("again: %v", err)
	}
}

// A client that follows a change continues at another node if its node is killed.
func TestFollowingAChange(t *testing.T) {
	cluster := start(t, clienttest.Config{Cuts: []string{"/m"}, Replicas: 1})
	c := connect(t, cluster)
	cluster.HoldFilling(true)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	run, err := c.ChangePlacement(ctx, admin.DrainNodes{Nodes: []string{"n1"}}, admin.ChangeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	first := true
	err = run.Wait(func(p admin.PlacementProgress) {
		if !first {
			return
		}
		first = false
		for _, n := range cluster.Nodes()[:2] { // one of them may be the followed node
			n.Kill()
		}
		cluster.HoldFilling(false)
	})
	if err != nil {
		t.Errorf("with two nodes killed: %v", err)
	}
}

// A client that follows a change continues at another node if its node falls silent on an open connection.
func TestFollowingAChangeAtASilentNode(t *testing.T) {
	t.Parallel() // it waits until the node counts as silent
	cluster := start(t, clienttest.Config{Cuts: []string{"/m"}, Replicas: 1, Zones: []string{"a", "b"}})
	c, followed := connectApart(t, cluster)
	cluster.HoldFilling(true)
	run, err := c.ChangePlacement(deadline(t), admin.DrainNodes{Nodes: []string{"n1"}}, admin.ChangeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stall := sync.OnceFunc(func() {
		followed().Stall()
		cluster.HoldFilling(false)
	})
	if err := run.Wait(func(admin.PlacementProgress) { stall() }); err != nil {
		t.Errorf("with a silent node: %v", err)
	}
}

func TestACanceledChange(t *testing.T) {
	cluster := start(t, clienttest.Config{Replicas: 1})
	c := connect(t, cluster)
	cluster.HoldFilling(true)
	ctx, stop := context.WithCancel(t.Context())
	run, err := c.ChangePlacement(ctx, admin.MoveShard{Shard: 1, Owner: "n2"}, admin.ChangeOptions{})
	stop()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Wait(nil); !errors.Is(err, context.Canceled) {
		t.Errorf("after giving up: %v", err)
	}
	if m, err := c.ClusterStatus(t.Context(), 0); err != nil || m.Map.Shards[0].Owner() != "n2" {
		t.Errorf("%v, map %+v", err, m.Map)
	}
}
