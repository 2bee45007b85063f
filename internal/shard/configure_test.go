package shard_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/maptest"
)

// singles returns n ranges that do not touch.
func singles(n int) []kv.Range {
	var out []kv.Range
	for i := range n {
		out = append(out, kv.Single(fmt.Sprintf("%06d", i)))
	}
	return out
}

func configured(t *testing.T, m *shard.Map, replicas int, ranges ...kv.Range) *shard.Map {
	t.Helper()
	before := m.Clone()
	next, err := shard.Apply(m, shard.Command{IfVersion: m.Version, Change: shard.Configure{Replicas: replicas, Ranges: ranges}})
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(m, before) {
		t.Error("the map was changed")
	}
	if next.Spec.Replicas != replicas || !slices.Equal(next.Spec.Ranges, ranges) || next.Version != m.Version+1 {
		t.Errorf("configured: %+v", next)
	}
	return next
}

// served is a map with shards [, d), [d, m), [m, ) on a, b and c.
func served(t *testing.T) *shard.Map {
	t.Helper()
	m := maptest.Found(t, maptest.Spec(3, 2), "d", "m")
	for i := range m.Shards {
		m.Shards[i].Replicas = []shard.NodeID{"a", "b"}
		m.Shards[i].Epoch = 7
	}
	return m
}

// Another number of replicas changes no shard: the planner moves the copies.
func TestConfigureReplicasKeepsTheShards(t *testing.T) {
	m := served(t)
	next := configured(t, m, 3, kv.Range{})
	if !reflect.DeepEqual(next.Shards, m.Shards) || next.NextID != m.NextID {
		t.Errorf("shards %+v, want %+v", next.Shards, m.Shards)
	}
	members := []shard.Member{{Name: "a", State: shard.Alive}, {Name: "b", State: shard.Alive}, {Name: "c", State: shard.Alive}}
	if moves := planner.Plan(next, members); len(moves) != 3 || len(moves[0].Replicas) != 3 || moves[0].Replicas[2] != "c" {
		t.Errorf("planned %+v", moves)
	}
}

// Replicas that many watches have added count up to the new number; pins stay.
func TestConfigureReplicasTakesExtraReplicasIn(t *testing.T) {
	m := served(t)
	m.Shards[0].Home.Replicas = 3
	m.Shards[1].Home.Replicas = 5
	m.Shards[2].Home = shard.Home{Pins: []shard.NodeID{"a"}, Replicas: 1}
	next := configured(t, m, 3, kv.Range{})
	for i, want := range []int{3, 5, 1} {
		if got := next.Shards[i].Wanted(next.Spec); got != want {
			t.Errorf("shard %d has %d replicas, want %d", next.Shards[i].ID, got, want)
		}
	}
	if next.Shards[0].Home.Replicas != 0 {
		t.Error("the shard keeps a separate number of replicas that equals the new default")
	}
}

// Narrower ranges cut the shards at their ends. The parts stay in place, with new IDs.
func TestConfigureNarrowerRangesCutsShards(t *testing.T) {
	m := served(t)
	next := configured(t, m, 2, kv.Range{Start: "b", End: "c"}, kv.Range{Start: "d", End: "p"})
	type part struct {
		id, seat shard.ID
		r        kv.Range
		epoch    uint64
	}
	var got []part
	for _, s := range next.Shards {
		got = append(got, part{s.ID, s.Seat(), s.Range, s.Epoch})
		if !slices.Equal(s.Replicas, []shard.NodeID{"a", "b"}) {
			t.Errorf("shard %d is on %v", s.ID, s.Replicas)
		}
	}
	want := []part{
		{4, 1, kv.Range{Start: "b", End: "c"}, 1},
		{2, 2, kv.Range{Start: "d", End: "m"}, 7},
		{5, 3, kv.Range{Start: "m", End: "p"}, 1},
	}
	if !slices.Equal(got, want) {
		t.Errorf("shards %+v, want %+v", got, want)
	}
}

// Wider ranges leave every shard unchanged. Keys without a shard become new
// shards without replicas.
func TestConfigureWiderRangesAddsShards(t *testing.T) {
	m := configured(t, served(t), 2, kv.Range{Start: "b", End: "c"}, kv.Range{Start: "d", End: "m"})
	for _, c := range []struct {
		ranges []kv.Range
		fresh  []kv.Range
	}{
		{[]kv.Range{{}}, []kv.Range{{End: "b"}, {Start: "c", End: "d"}, {Start: "m"}}},
		{[]kv.Range{{Start: "a", End: "m"}}, []kv.Range{{Start: "a", End: "b"}, {Start: "c", End: "d"}}},
		{[]kv.Range{{Start: "b", End: "c"}, {Start: "d", End: "m"}, {Start: "x"}}, []kv.Range{{Start: "x"}}},
	} {
		next := configured(t, m, 2, c.ranges...)
		var fresh []kv.Range
		kept := 0
		for i := range next.Shards {
			s := &next.Shards[i]
			if old, ok := m.Shard(s.ID); ok {
				if kept++; !reflect.DeepEqual(old, *s) {
					t.Errorf("%v: shard %+v was %+v", c.ranges, *s, old)
				}
				continue
			}
			if fresh = append(fresh, s.Range); s.Epoch != 1 || len(s.Replicas) > 0 || !s.Home.IsZero() {
				t.Errorf("%v: new shard %+v", c.ranges, *s)
			}
		}
		if kept != len(m.Shards) || !slices.Equal(fresh, c.fresh) {
			t.Errorf("%v: %d kept, new %v; want %v", c.ranges, kept, fresh, c.fresh)
		}
	}
}
