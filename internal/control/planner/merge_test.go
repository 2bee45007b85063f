package planner_test

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// Shards that were split with Stay, brought together and merged end in their
// original place, and only parts that belonged elsewhere have moved.
func TestSplitAndMerge(t *testing.T) {
	ms := nodes(20)
	m := settle(t, withShards(t, 1, 3), ms)
	home := m.Shards[0].Replicas
	m = settle(t, change(t, m, shard.Split{Shard: 1, At: []string{"m", "t"}, Stay: true}), ms)
	if !slices.Equal(m.Shards[0].Replicas, home) || slices.Equal(m.Shards[1].Replicas, home) || slices.Equal(m.Shards[2].Replicas, m.Shards[1].Replicas) {
		t.Fatalf("parts of the split on %v are placed at %+v", home, m.Shards)
	}
	if got := planner.Merges(m); len(got) > 0 {
		t.Fatalf("merges without a request: %+v", got)
	}
	r, err := planner.Together(m, 2, 2, 3, 4)
	if err != nil || len(r.Homes) != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	m = change(t, m, r)
	if got := planner.Merges(m); len(got) > 0 {
		t.Fatalf("merged before the shards have the same replicas: %+v", got)
	}
	if !m.Joins(0) || !m.Joins(2) || m.Joins(3) {
		t.Error("Joins returns the wrong shards")
	}
	m = settle(t, m, ms)
	merges := planner.Merges(m)
	if want := []shard.Merge{{Shards: []shard.ID{2, 3, 4}, Replicas: home}}; !reflect.DeepEqual(merges, want) {
		t.Fatalf("%+v, want %+v", merges, want)
	}
	m = change(t, m, merges[0])
	if s := m.Shards[0]; len(m.Shards) != 1 || s.ID != 5 || s.Epoch != 1 || s.Range.Start != "" || s.Range.End != "" || !slices.Equal(s.Replicas, home) {
		t.Errorf("merged to %+v", m.Shards)
	}
	if moves := planner.Plan(m, ms); len(moves) > 0 {
		t.Errorf("the merged shard moves: %+v", moves)
	}
	if _, err := planner.Together(m, 9, 5); !errors.Is(err, shard.ErrUnknownShard) {
		t.Error(err)
	}
	if _, err := planner.Together(m, 5, 9); !errors.Is(err, shard.ErrUnknownShard) {
		t.Error(err)
	}
}

// A part that is split while it waits for a merge, and a merge that is
// abandoned, leave nothing behind after Loosen.
func TestLoosen(t *testing.T) {
	ms := nodes(9)
	m := settle(t, withShards(t, 4, 3), ms)
	want := m
	if r := planner.Loosen(m); len(r.Homes) > 0 {
		t.Errorf("Loosen without anything to undo: %+v", r)
	}
	together, err := planner.Together(m, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	m = change(t, m, together)
	m = change(t, m, shard.Rehome{Homes: []shard.ShardHome{{Shard: 3, Home: shard.Home{Pins: []shard.NodeID{"node-00"}, Replicas: 5}}}})
	m = settle(t, change(t, settle(t, m, ms), planner.Loosen(m)), ms)
	for i := range m.Shards {
		if !sameSet(m.Shards[i].Replicas, want.Shards[i].Replicas) || !m.Shards[i].Home.IsZero() {
			t.Errorf("%+v, want %+v", m.Shards[i], want.Shards[i])
		}
	}
}

// After Loosen, a shard that was moved to fewer or to more nodes has as many replicas as the
// others, and so does a shard that an older version left with fewer. Extra replicas of a shard
// without pins are for its load, and stay.
func TestLoosenedShardsHaveAsManyReplicasAsOthers(t *testing.T) {
	ms := nodes(6)
	m := change(t, withShards(t, 4, 3), shard.Rehome{Homes: []shard.ShardHome{
		{Shard: 1, Home: shard.Home{Pins: []shard.NodeID{"node-00"}, Replicas: 1}},
		{Shard: 2, Home: shard.Home{Pins: []shard.NodeID{"node-00", "node-01", "node-02", "node-03", "node-04"}, Replicas: 5}},
		{Shard: 3, Home: shard.Home{Replicas: 1}},
		{Shard: 4, Home: shard.Home{Replicas: 4}},
	}})
	counts := func(m *shard.Map) (out []int) {
		for i := range m.Shards {
			out = append(out, len(m.Shards[i].Replicas))
		}
		return out
	}
	m = settle(t, m, ms)
	if got, want := counts(m), []int{1, 5, 1, 4}; !slices.Equal(got, want) {
		t.Fatalf("before Loosen: %v replicas, want %v", got, want)
	}
	m = settle(t, change(t, m, planner.Loosen(m)), ms)
	if got, want := counts(m), []int{3, 3, 3, 4}; !slices.Equal(got, want) {
		t.Errorf("after Loosen: %v replicas, want %v", got, want)
	}
	if r := planner.Loosen(m); len(r.Homes) > 0 {
		t.Errorf("a second Loosen changes: %+v", r)
	}
}

// An operator's pins outlive any number of plans, and other nodes replace
// unavailable pins.
func TestPlanHomes(t *testing.T) {
	ms := nodes(6)
	m := settle(t, withShards(t, 1, 3), ms)
	rest := slices.DeleteFunc([]shard.NodeID{"node-00", "node-01", "node-02", "node-03", "node-04", "node-05"}, func(n shard.NodeID) bool {
		return slices.Contains(m.Shards[0].Replicas, n)
	})
	home := func(h shard.Home) *shard.Map {
		return change(t, m, shard.Rehome{Homes: []shard.ShardHome{{Shard: 1, Home: h}}})
	}
	pinned := home(shard.Home{Pins: rest[:2]})
	if step := planner.Plan(pinned, ms); len(step) != 1 || step[0].Replicas[0] != m.Shards[0].Replicas[0] {
		t.Errorf("the first step gives the shard to a newcomer: %+v", step)
	}
	pinned = settle(t, pinned, ms)
	if want := []shard.NodeID{rest[0], rest[1], m.Shards[0].Replicas[0]}; !slices.Equal(pinned.Shards[0].Replicas, want) {
		t.Errorf("pinned to %v: %v, want %v", rest[:2], pinned.Shards[0].Replicas, want)
	}
	dead := slices.Clone(ms)
	for i := range dead {
		if dead[i].Name == rest[0] {
			dead[i].State = shard.Dead
		}
	}
	if got := settle(t, pinned, dead).Shards[0].Replicas; len(got) != 3 || got[0] != rest[1] {
		t.Errorf("with a pin that is dead: %v", got)
	}
	if got := settle(t, home(shard.Home{Pins: rest}), ms).Shards[0].Replicas; !slices.Equal(got, rest) {
		t.Errorf("more pins than replicas: %v, want %v", got, rest)
	}
	if got := settle(t, home(shard.Home{Replicas: 5}), ms).Shards[0].Replicas; len(got) != 5 || !slices.Equal(got[:3], m.Shards[0].Replicas) {
		t.Errorf("with five replicas: %v, before %v", got, m.Shards[0].Replicas)
	}

	drained := change(t, m, shard.Drain{Nodes: []shard.NodeID{m.Shards[0].Replicas[1], "unknown", m.Shards[0].Replicas[0]}})
	if !drained.IsDrained("unknown") || drained.IsDrained(rest[0]) || len(drained.Drained) != 3 {
		t.Errorf("drained: %v", drained.Drained)
	}
	drained = settle(t, drained, ms)
	if got := drained.Shards[0].Replicas; slices.ContainsFunc(got, drained.IsDrained) || len(got) != 3 {
		t.Errorf("drained nodes have shards: %v", got)
	}
	back := settle(t, change(t, drained, shard.Drain{Nodes: drained.Drained, Undo: true}), ms)
	if !sameSet(back.Shards[0].Replicas, m.Shards[0].Replicas) || back.Drained != nil {
		t.Errorf("after the undrain: replicas %v, drained %v", back.Shards[0].Replicas, back.Drained)
	}
}
