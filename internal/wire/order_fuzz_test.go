package wire_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/control/mapchange"
	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// Any requested change is rejected with a reason, or yields a valid map.
func FuzzOrder(f *testing.F) {
	c := &mapchange.Cluster{Voters: []shard.NodeID{"a", "b", "c"}, Copies: make(map[shard.NodeID]map[shard.ID]mapchange.Copy)}
	for _, name := range []shard.NodeID{"a", "b", "c", "d"} {
		c.Members = append(c.Members, shard.Member{Name: name, Level: shard.Level, State: shard.Alive, BootstrapExpect: 3})
	}
	found, err := planner.Place(shard.Found{
		ClusterID: "test", EtcdClusterID: 1, Cuts: []string{"/g", "/m"},
		Spec: shard.Spec{Ranges: []kv.Range{{End: "/t"}, {Start: "/t"}}, Shards: 4, Replicas: 2},
	}, c.Members)
	if err != nil {
		f.Fatal(err)
	}
	if c.Map, err = shard.Apply(nil, shard.Command{Change: found}); err != nil {
		f.Fatal(err)
	}
	for _, m := range []*shardwatchv1.ChangePlacementRequest{
		{Change: &shardwatchv1.ChangePlacementRequest_Split{Split: &shardwatchv1.SplitShard{Shard: 1, At: [][]byte{[]byte("/b"), []byte("/c")}}}},
		{Change: &shardwatchv1.ChangePlacementRequest_Merge{Merge: &shardwatchv1.MergeShards{Shard: 1, With: 2}}, Force: true},
		{Change: &shardwatchv1.ChangePlacementRequest_Move{Move: &shardwatchv1.MoveShard{Shard: 2, To: []string{"a", "d"}, Owner: "d"}}, Force: true},
		{Change: &shardwatchv1.ChangePlacementRequest_Drain{Drain: &shardwatchv1.DrainNodes{Nodes: []string{"a"}}}},
		{Change: &shardwatchv1.ChangePlacementRequest_Undrain{Undrain: &shardwatchv1.UndrainNodes{Nodes: []string{"a"}}}},
		{Change: &shardwatchv1.ChangePlacementRequest_Rebalance{Rebalance: &shardwatchv1.Rebalance{}}},
		{Change: &shardwatchv1.ChangePlacementRequest_Settings{Settings: &shardwatchv1.ChangeSettings{Replicas: 3, Served: []*shardwatchv1.KeyRange{{Key: []byte("/a"), RangeEnd: []byte("/b")}}}}, Force: true},
		{RequestId: "x", IfVersion: 9},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var m shardwatchv1.ChangePlacementRequest
		if proto.Unmarshal(b, &m) != nil {
			return
		}
		order, err := wire.Order(&m)
		if err != nil {
			return
		}
		_ = order.Request.String()
		plan, err := mapchange.NewPlan(c, order)
		if err != nil || plan.Change == nil {
			return
		}
		next, err := shard.Apply(c.Map, shard.Command{IfVersion: plan.Version, Change: plan.Change})
		if err != nil {
			t.Fatalf("%v was planned, but its change is refused: %v", &m, err)
		}
		if err := next.Validate(); err != nil {
			t.Fatalf("%v yields an invalid map: %v", &m, err)
		}
		_ = wire.PlanMessages(plan)
	})
}
