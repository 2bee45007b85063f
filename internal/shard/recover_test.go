package shard_test

import (
	"reflect"
	"testing"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// A recovered map serves the same shards from the same nodes in the same lineage, and
// changes that only the lost voters agreed on never match it.
func TestRecoveredMapKeepsPlacementAndReusesNoNumber(t *testing.T) {
	m := &shard.Map{
		ClusterID: "c", EtcdClusterID: 1, Lineage: 3, Version: 7, NextID: 3,
		Spec: shard.Spec{Ranges: []kv.Range{{}}, Shards: 2, Replicas: 2},
		Shards: []shard.Shard{
			{ID: 1, Range: kv.Range{End: "m"}, Epoch: 2, Replicas: []shard.NodeID{"a", "b"}, Home: shard.Home{Pins: []shard.NodeID{"b"}}},
			{ID: 2, Range: kv.Range{Start: "m"}, Epoch: 1},
		},
	}
	lost, err := shard.Apply(m, shard.Command{IfVersion: 7, Change: shard.Split{Shard: 1, At: []string{"c"}}})
	if err != nil {
		t.Fatal(err)
	}
	lost, err = shard.Apply(lost, shard.Command{IfVersion: 8, Change: shard.Assign{Moves: []shard.Move{{Shard: 2, Replicas: []shard.NodeID{"c"}}}}})
	if err != nil {
		t.Fatal(err)
	}
	got := m.Recover(1000)
	if err := got.Validate(); err != nil {
		t.Fatal(err)
	}
	if got.Generation != 1000 || got.Version != 1000 || got.ClusterID != m.ClusterID || got.Lineage != m.Lineage || got.NextID <= lost.NextID {
		t.Errorf("the recovered map: %+v", got)
	}
	for i, s := range got.Shards {
		was := m.Shards[i]
		if s.Epoch <= lost.Shards[len(lost.Shards)-1].Epoch {
			t.Errorf("shard %d has epoch %d, which the lost voters may have used", s.ID, s.Epoch)
		}
		if s.Epoch = was.Epoch; !reflect.DeepEqual(s, was) {
			t.Errorf("shard %+v was %+v", s, was)
		}
	}
	if m.Shards[0].Epoch != 2 || m.Version != 7 {
		t.Error("Recover changed its receiver")
	}
	next, err := shard.Apply(got, shard.Command{IfVersion: 1000, Change: shard.Drain{Nodes: []shard.NodeID{"a"}}})
	if err != nil || next.Generation != 1000 || next.Version != 1001 {
		t.Errorf("after the first change: %+v, %v", next, err)
	}
	got.Version = 999
	if got.Validate() == nil {
		t.Error("a map that is older than its generation is valid")
	}
}
