package planner_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// owned returns how many shards each member that can have shards owns.
func owned(m *shard.Map, ms []shard.Member) map[shard.NodeID]int {
	counts := make(map[shard.NodeID]int)
	for _, n := range ms {
		if (n.State == shard.Alive || n.State == shard.Suspect) && !n.Draining && !m.IsDrained(n.Name) {
			counts[n.Name] = 0
		}
	}
	for i := range m.Shards {
		counts[m.Shards[i].Owner()]++
	}
	return counts
}

func sorted(counts map[shard.NodeID]int) (out []int) {
	for _, c := range counts {
		out = append(out, c)
	}
	slices.Sort(out)
	slices.Reverse(out)
	return out
}

// required returns how many owners must change from before to after: one for each
// shard whose owner has no copy any more, and one for each that a node owns beyond
// its number after.
func required(before, after *shard.Map) (n int) {
	kept, counts := make(map[shard.NodeID]int), owned(after, nil)
	for i := range after.Shards {
		if owner := before.Shards[i].Owner(); slices.Contains(after.Shards[i].Replicas, owner) {
			kept[owner]++
		} else {
			n++
		}
	}
	for name, c := range kept {
		n += max(0, c-counts[name])
	}
	return n
}

// leastBound returns the smallest number of shards that a node with most owns when
// each shard is owned by one of its replicas: the even share, if the copies allow it.
func leastBound(m *shard.Map, shards, nodes int) int {
	for bound := (shards + nodes - 1) / nodes; ; bound++ {
		owner := make(map[shard.NodeID][]int) // a matching, by augmenting paths
		var match func(i int, seen map[shard.NodeID]bool) bool
		match = func(i int, seen map[shard.NodeID]bool) bool {
			for _, n := range m.Shards[i].Replicas {
				if seen[n] {
					continue
				}
				seen[n] = true
				if len(owner[n]) < bound {
					owner[n] = append(owner[n], i)
					return true
				}
				for at, j := range owner[n] {
					if match(j, seen) {
						owner[n][at] = i
						return true
					}
				}
			}
			return false
		}
		all := true
		for i := range m.Shards {
			all = all && match(i, make(map[shard.NodeID]bool))
		}
		if all {
			return bound
		}
	}
}

func changedOwners(before, after *shard.Map) (n int) {
	for i := range after.Shards {
		if after.Shards[i].Owner() != before.Shards[i].Owner() {
			n++
		}
	}
	return n
}

func TestNodesOwnEqualNumbersOfShards(t *testing.T) {
	for _, c := range []struct {
		shards, nodes int
		want          []int
	}{
		{16, 5, []int{4, 3, 3, 3, 3}},
		{16, 3, []int{6, 5, 5}},
		{3, 3, []int{1, 1, 1}}, // the founding of three nodes
		{16, 4, []int{4, 4, 4, 4}},
		{2, 5, []int{1, 1, 0, 0, 0}},
		{1, 1, []int{1}},
	} {
		t.Run(fmt.Sprintf("%d shards on %d nodes", c.shards, c.nodes), func(t *testing.T) {
			ms := nodes(c.nodes)
			m := settle(t, withShards(t, c.shards, 3), ms)
			if got := sorted(owned(m, ms)); !slices.Equal(got, c.want) {
				t.Errorf("nodes own %v shards, want %v", got, c.want)
			}
		})
	}
}

// A node joins, is drained, or dies: owners change about as often as even numbers
// require. Two more may change, where a node that loses a shard's copy owned it, and
// has to be given another.
func TestFewOwnersChange(t *testing.T) {
	ms := nodes(4)
	m := settle(t, withShards(t, 16, 3), ms)
	changes := func(what string, ms []shard.Member, counts []int) {
		t.Helper()
		after := settle(t, m, ms)
		if got, least := changedOwners(m, after), required(m, after); got > least+2 {
			t.Errorf("%s: %d owners changed, %d are required", what, got, least)
		}
		if got := sorted(owned(after, ms)); !slices.Equal(got, counts) {
			t.Errorf("%s: nodes own %v, want %v", what, got, counts)
		}
		m = after
	}
	ms = nodes(5)
	changes("a fifth node joins", ms, []int{4, 3, 3, 3, 3})
	ms[0].Draining = true
	changes("a node is drained", ms, []int{4, 4, 4, 4})
	ms[0].Draining = false
	changes("it takes part again", ms, []int{4, 3, 3, 3, 3})
	ms[1].State = shard.Dead
	changes("a node dies", ms, []int{4, 4, 4, 4})
	ms[1].State = shard.Alive
	changes("it is back", ms, []int{4, 3, 3, 3, 3})
}

// Members join, die and drain at random. Once settled, no node owns more than the
// even share, or than the copies allow, and few more owners have changed than that requires.
func TestOwnersStayEven(t *testing.T) {
	rng := testkit.Rand(t)
	extra, total := 0, 0
	for _, size := range []int{4, 5, 9} {
		shards := 16 + rng.IntN(80)
		ms := nodes(size)
		m := settle(t, withShards(t, shards, 3), ms)
		for range 60 {
			n := &ms[rng.IntN(len(ms))]
			switch rng.IntN(4) {
			case 0:
				n.State = shard.Dead
			case 1:
				n.Draining = !n.Draining
			default:
				n.State, n.Draining = shard.Alive, false
			}
			live := len(owned(&shard.Map{}, ms))
			if live < 3 {
				n.State, n.Draining = shard.Alive, false
				continue
			}
			before := m
			m = settle(t, before, shuffled(rng, ms))
			if got, least := sorted(owned(m, ms)), leastBound(m, shards, live); len(got) != live || got[0] != least {
				t.Fatalf("%d shards on %d nodes: they own %v, and no more than %d is possible", shards, live, got, least)
			}
			extra += changedOwners(before, m) - required(before, m)
			total += required(before, m)
		}
	}
	if extra > total/5 {
		t.Errorf("%d changes of owners required, %d more made", total, extra)
	}
}

// The leader makes only some of the planned moves at a time. Whatever the homes of
// shards and the zones are, the plans come to an end, and all parts of a merge have
// one owner then.
func TestOwnersComeToRest(t *testing.T) {
	rng := testkit.Rand(t)
	ms := nodes(7)
	m := withShards(t, 40, 3)
	for range 40 {
		for i := range ms {
			ms[i].Draining = rng.IntN(5) == 0
			ms[i].Zone = []string{"", "a", "b"}[rng.IntN(3)]
		}
		s := m.Shards[rng.IntN(len(m.Shards))]
		home := shard.Home{Seat: m.Shards[rng.IntN(len(m.Shards))].Seat()}
		if rng.IntN(4) == 0 {
			home.Pins = []shard.NodeID{ms[rng.IntN(len(ms))].Name}
		}
		m = change(t, m, shard.Rehome{Homes: []shard.ShardHome{{Shard: s.ID, Home: home}}})
		made := 0
		for moves := planner.Plan(m, ms); len(moves) > 0; moves = planner.Plan(m, ms) {
			one := rng.IntN(len(moves))
			if m, made = change(t, m, shard.Assign{Moves: moves[one : one+1]}), made+1; made > 6*len(m.Shards) {
				t.Fatalf("%d moves, and %d are planned still", made, len(moves))
			}
		}
		for i := range m.Shards {
			if i > 0 && m.Shards[i].Seat() == m.Shards[i-1].Seat() && slices.Equal(m.Shards[i].Home.Pins, m.Shards[i-1].Home.Pins) &&
				m.Shards[i].Owner() != m.Shards[i-1].Owner() {
				t.Fatalf("shards %d and %d are about to become one, with owners %s and %s",
					m.Shards[i-1].ID, m.Shards[i].ID, m.Shards[i-1].Owner(), m.Shards[i].Owner())
			}
		}
	}
}

// An operator's pins stay; the other shards make up for them.
func TestOwnersAreEvenAroundPins(t *testing.T) {
	ms := nodes(4)
	m := settle(t, withShards(t, 16, 3), ms)
	var r shard.Rehome
	for i := range 4 {
		r.Homes = append(r.Homes, shard.ShardHome{Shard: m.Shards[i].ID, Home: shard.Home{Pins: []shard.NodeID{"node-00"}}})
	}
	m = settle(t, change(t, m, r), ms)
	for i := range 4 {
		if m.Shards[i].Owner() != "node-00" {
			t.Errorf("shard %d is owned by %s", m.Shards[i].ID, m.Shards[i].Owner())
		}
	}
	if got := sorted(owned(m, ms)); !slices.Equal(got, []int{4, 4, 4, 4}) {
		t.Errorf("nodes own %v", got)
	}
}

// Where too few replicas can own shards, the numbers are as even as those allow: here
// every shard has one copy, where hashing puts it.
func TestOwnersOfSingleCopiesStay(t *testing.T) {
	ms := nodes(5)
	m := settle(t, withShards(t, 16, 1), ms)
	if moves := planner.Plan(m, ms); len(moves) > 0 {
		t.Errorf("copies move for an even number of owners: %+v", moves)
	}
}

// runs returns how many groups of adjacent shards with one owner a map has.
func runs(m *shard.Map) (n int) {
	for i := range m.Shards {
		if i == 0 || m.Shards[i].Owner() != m.Shards[i-1].Owner() {
			n++
		}
	}
	return n
}

// Where the even numbers leave a choice, adjacent shards have one owner: each of three nodes with
// all copies owns one run, and members that die and return make few more.
func TestOwnersOwnAdjacentShards(t *testing.T) {
	ms := nodes(3)
	for _, shards := range []int{3, 6, 16, 64} {
		if m := settle(t, withShards(t, shards, 3), ms); runs(m) != 3 {
			t.Errorf("%d shards are owned in %d runs, want 3", shards, runs(m))
		}
	}
	m := settle(t, withShards(t, 16, 3), ms)
	for _, x := range []struct {
		state shard.State
		most  int
	}{{shard.Dead, 4}, {shard.Alive, 5}, {shard.Dead, 4}, {shard.Alive, 5}} {
		ms[1].State = x.state
		if m = settle(t, m, ms); runs(m) > x.most {
			t.Errorf("node 1 is %v: %d runs, want %d at most", x.state, runs(m), x.most)
		}
	}
}
