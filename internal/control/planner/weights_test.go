package planner_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// weighed returns members with the weights.
func weighed(weights ...int) []shard.Member {
	ms := nodes(len(weights))
	for i, w := range weights {
		ms[i].Weight = w
	}
	return ms
}

// finalMap is withShards with the newest feature level.
func finalMap(t *testing.T, n, replicas int) *shard.Map {
	t.Helper()
	return change(t, withShards(t, n, replicas), shard.Finalize{Level: shard.Level})
}

// copies returns how many copies of shards the node has.
func copies(m *shard.Map, n shard.NodeID) (c int) {
	for i := range m.Shards {
		if slices.Contains(m.Shards[i].Replicas, n) {
			c++
		}
	}
	return c
}

func TestANodeOfWeightTwoGetsTwiceTheShards(t *testing.T) {
	for _, c := range []struct {
		shards, replicas int
		weights          []int
		want             []int // owned by each
	}{
		{18, 5, []int{2, 1, 1, 1, 1}, []int{6, 3, 3, 3, 3}},
		{60, 3, []int{2, 1, 1, 1, 1}, []int{20, 10, 10, 10, 10}},
		{120, 2, []int{1, 3, 1, 1}, []int{20, 60, 20, 20}},
		{30, 2, []int{0, 0, 1, 2}, []int{6, 6, 6, 12}},
		{303, 3, []int{100, 100, 100, 1, 1, 1}, []int{100, 100, 100, 1, 1, 1}},
		{20, 2, []int{1000, 100}, []int{10, 10}}, // weights above the bound count as the bound
	} {
		t.Run(fmt.Sprint(c.shards, c.weights), func(t *testing.T) {
			ms := weighed(c.weights...)
			m := settle(t, finalMap(t, c.shards, c.replicas), ms)
			counts := owned(m, ms)
			var got []int
			for _, n := range ms {
				got = append(got, counts[n.Name])
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("nodes with weights %v own %v shards, want %v", c.weights, got, c.want)
			}
		})
	}
	ms := weighed(2, 1, 1, 1, 1, 1, 1, 1, 1, 1)
	m := settle(t, finalMap(t, 1100, 1), ms) // one copy: only hashing chooses its node
	if c := copies(m, ms[0].Name); c < 160 || c > 240 {
		t.Errorf("the node with weight 2 of 11 has %d of 1,100 copies", c)
	}
}

// Equal weights, and weights before their level is finalized, have no effect.
func TestEqualWeightsChangeNothing(t *testing.T) {
	for _, replicas := range []int{1, 3} {
		want := settle(t, finalMap(t, 64, replicas), nodes(5))
		for _, w := range []int{1, 2, 7, shard.MaxWeight} {
			if got := settle(t, finalMap(t, 64, replicas), weighed(w, w, w, w, w)); !reflect.DeepEqual(got, want) {
				t.Errorf("equal weights of %d change the placement", w)
			}
		}
		dead := append(weighed(1, 1, 1, 1, 1), shard.Member{Name: "gone", State: shard.Dead, Weight: 9})
		if got := settle(t, finalMap(t, 64, replicas), dead); !reflect.DeepEqual(got, want) {
			t.Error("the weight of a dead node changes the placement")
		}
		before := settle(t, withShards(t, 64, replicas), nodes(5))
		if got := settle(t, withShards(t, 64, replicas), weighed(9, 1, 1, 1, 1)); !reflect.DeepEqual(got, before) {
			t.Error("weights are used before their level is finalized")
		}
	}
}

// anyWeights returns members with random weights, in zones if there are any.
func anyWeights(rng *rand.Rand, n, zones int) []shard.Member {
	ms := nodes(n)
	for i := range ms {
		ms[i].Weight = 1 + rng.IntN(6)
		if zones > 0 {
			ms[i].Zone = fmt.Sprint("zone-", i%zones)
		}
	}
	return ms
}

// No transfer of ownership along any chain of copies can bring the shares of the
// nodes, owned shards by weight, closer to each other.
func TestOwnersFollowWeights(t *testing.T) {
	rng := testseed.Rand(t)
	for range 60 {
		n := 3 + rng.IntN(7)
		ms := anyWeights(rng, n, rng.IntN(4))
		m := settle(t, finalMap(t, 10+rng.IntN(90), 1+rng.IntN(n)), shuffled(rng, ms))
		counts, reach := owned(m, ms), make(map[[2]shard.NodeID]bool)
		for i := range m.Shards {
			for _, r := range m.Shards[i].Replicas {
				reach[[2]shard.NodeID{m.Shards[i].Owner(), r}] = true
			}
		}
		for _, via := range ms {
			for _, a := range ms {
				for _, b := range ms {
					if reach[[2]shard.NodeID{a.Name, via.Name}] && reach[[2]shard.NodeID{via.Name, b.Name}] {
						reach[[2]shard.NodeID{a.Name, b.Name}] = true
					}
				}
			}
		}
		for _, a := range ms {
			for _, b := range ms {
				if la, lb := counts[a.Name], counts[b.Name]; reach[[2]shard.NodeID{a.Name, b.Name}] && (2*la-1)*b.Weight > (2*lb+1)*a.Weight {
					t.Fatalf("%s with weight %d owns %d, %s with weight %d owns %d and could own one more", a.Name, a.Weight, la, b.Name, b.Weight, lb)
				}
			}
		}
	}
}

// If every node has every shard, each node owns its share, rounded.
func TestOwnersAreProportionalToWeights(t *testing.T) {
	rng := testseed.Rand(t)
	for range 40 {
		n := 2 + rng.IntN(6)
		ms, shards := anyWeights(rng, n, 0), 20+rng.IntN(80)
		total := 0
		for _, n := range ms {
			total += n.Weight
		}
		counts := owned(settle(t, finalMap(t, shards, n), ms), ms)
		for _, n := range ms {
			share := float64(shards*n.Weight) / float64(total)
			if c := float64(counts[n.Name]); c < share-1.5 || c > share+1.5 {
				t.Errorf("%s owns %v of %d shards, its share is %.2f", n.Name, c, shards, share)
			}
		}
	}
}

// A change of a weight moves copies only to or from that node, at most one of each
// shard. Zones stay apart.
func TestFewCopiesMoveWhenAWeightChanges(t *testing.T) {
	rng := testseed.Rand(t)
	moved, all, must, changed := 0, 0, 0, 0
	for range 40 {
		zones := []int{0, 0, 2, 3}[rng.IntN(4)]
		ms := anyWeights(rng, 4+rng.IntN(8), zones)
		replicas := 1 + rng.IntN(3)
		m := settle(t, finalMap(t, 100, replicas), ms)
		n := &ms[rng.IntN(len(ms))]
		for range 4 {
			was, before := n.Weight, m
			n.Weight = 1 + rng.IntN(6)
			m = settle(t, before, shuffled(rng, ms))
			gone := 0
			for i := range m.Shards {
				out := without(before.Shards[i].Replicas, m.Shards[i].Replicas)
				in := without(m.Shards[i].Replicas, before.Shards[i].Replicas)
				gone += len(out)
				switch {
				case len(out) > 1,
					n.Weight > was && slices.ContainsFunc(in, func(x shard.NodeID) bool { return x != n.Name }),
					n.Weight < was && slices.ContainsFunc(out, func(x shard.NodeID) bool { return x != n.Name }):
					t.Fatalf("weight of %s from %d to %d: shard %d moves from %v to %v", n.Name, was, n.Weight, i+1, before.Shards[i].Replicas, m.Shards[i].Replicas)
				}
				apart(t, ms, m.Shards[i].Replicas, zones)
			}
			must, changed = must+required(before, m), changed+changedOwners(before, m)
			moved, all = moved+gone, all+100*replicas
		}
	}
	if moved == 0 || moved > all/4 {
		t.Errorf("%d of %d copies moved", moved, all)
	}
	if changed > must*3/2 {
		t.Errorf("%d owners changed, %d changes are required", changed, must)
	}
}

func without(a, b []shard.NodeID) (out []shard.NodeID) {
	for _, n := range a {
		if !slices.Contains(b, n) {
			out = append(out, n)
		}
	}
	return out
}

// apart checks that no zone has two more copies than another zone with room for one.
func apart(t *testing.T, ms []shard.Member, replicas []shard.NodeID, zones int) {
	t.Helper()
	if zones == 0 {
		return
	}
	count, size := map[string]int{}, map[string]int{}
	for _, m := range ms {
		size[m.Zone]++
		if slices.Contains(replicas, m.Name) {
			count[m.Zone]++
		}
	}
	for a := range size {
		for b := range size {
			if count[a] > count[b]+1 && count[b] < size[b] {
				t.Fatalf("%v: %d in %s and %d in %s", replicas, count[a], a, count[b], b)
			}
		}
	}
}

func TestThePlannerSeesAWeightChange(t *testing.T) {
	var p planner.Planner
	m := settle(t, finalMap(t, 64, 2), weighed(2, 1, 1, 1, 1))
	if moves := p.Plan(m, weighed(2, 1, 1, 1, 1)); len(moves) > 0 {
		t.Fatalf("moves are still planned: %+v", moves)
	}
	got, want := p.Plan(m, weighed(2, 5, 1, 1, 1)), planner.Plan(m, weighed(2, 5, 1, 1, 1))
	if len(want) == 0 || !reflect.DeepEqual(got, want) {
		t.Errorf("planned %d moves, want %d", len(got), len(want))
	}
}
