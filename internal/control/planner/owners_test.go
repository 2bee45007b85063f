package planner_test

import (
	"fmt"
	"math/bits"
	"slices"
	"testing"

	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/shard"
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
// shard whose owner has lost its copy, and one for each that a node owns beyond its
// number in after.
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

// leastBound returns the smallest possible maximum of shards that a node owns, if one
// of its replicas owns each shard: the even share, if the copies allow it.
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
// require. Two more may change, if a node that loses a shard's copy owned it, and
// gets another shard instead.
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
	rng := testseed.Rand(t)
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
				t.Fatalf("%d shards on %d nodes: nodes own %v, the smallest possible maximum is %d", shards, live, got, least)
			}
			extra += changedOwners(before, m) - required(before, m)
			total += required(before, m)
		}
	}
	if extra > total/5 {
		t.Errorf("%d changes of owners are required, %d more were made", total, extra)
	}
}

// The leader makes only some of the planned moves at a time. For any homes of shards, settings, and
// states, weights and zones of members, planning ends, and all parts of a merge then have one owner.
func TestOwnersConverge(t *testing.T) {
	rng := testseed.Rand(t)
	ms := nodes(7)
	m := change(t, withShards(t, 40, 3), shard.Finalize{Level: shard.Level})
	for range 40 {
		m = change(t, m, shard.Configure{Replicas: 1 + rng.IntN(4), Owners: rng.IntN(9), Ranges: m.Spec.Ranges})
		for i := range ms {
			ms[i].Draining, ms[i].Weight = rng.IntN(5) == 0, 1+rng.IntN(3)
			if i > 0 { // one is left
				ms[i].State = []shard.State{shard.Alive, shard.Alive, shard.Suspect, shard.Dead}[rng.IntN(4)]
			}
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
				t.Fatalf("after %d moves, %d are still planned", made, len(moves))
			}
		}
		for i := range m.Shards {
			if i > 0 && m.Shards[i].Seat() == m.Shards[i-1].Seat() && slices.Equal(m.Shards[i].Home.Pins, m.Shards[i-1].Home.Pins) &&
				m.Shards[i].Owner() != m.Shards[i-1].Owner() {
				t.Fatalf("shards %d and %d wait for a merge and have different owners %s and %s",
					m.Shards[i-1].ID, m.Shards[i].ID, m.Shards[i-1].Owner(), m.Shards[i].Owner())
			}
		}
	}
}

// An operator's pins stay; the other shards compensate.
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
			t.Errorf("pinned shard %d is owned by %s", m.Shards[i].ID, m.Shards[i].Owner())
		}
	}
	if got := sorted(owned(m, ms)); !slices.Equal(got, []int{4, 4, 4, 4}) {
		t.Errorf("nodes own %v", got)
	}
}

// If too few replicas can own shards, the numbers are as even as those allow: here
// every shard has one copy, placed by hashing.
func TestOwnersOfSingleCopiesStay(t *testing.T) {
	ms := nodes(5)
	m := settle(t, withShards(t, 16, 1), ms)
	if moves := planner.Plan(m, ms); len(moves) > 0 {
		t.Errorf("copies move to even out the owners: %+v", moves)
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
			t.Errorf("node 1 in state %v: %d runs, want at most %d", x.state, runs(m), x.most)
		}
	}
}

// withOwners returns the map with another number of owners.
func withOwners(t *testing.T, m *shard.Map, owners int) *shard.Map {
	t.Helper()
	return change(t, m, shard.Configure{Replicas: m.Spec.Replicas, Owners: owners, Ranges: m.Spec.Ranges})
}

// As few nodes own shards as the specification says, evenly; more only if no such
// set has a copy of each shard.
func TestFewNodesOwnAllShards(t *testing.T) {
	for _, c := range []struct {
		shards, replicas, nodes, owners int
		want                            []int
	}{
		{16, 3, 3, 1, []int{16, 0, 0}},
		{16, 3, 3, 2, []int{8, 8, 0}},
		{16, 3, 3, 3, []int{6, 5, 5}},
		{16, 3, 3, 9, []int{6, 5, 5}},
		{16, 3, 3, 0, []int{6, 5, 5}},
		{2, 3, 3, 2, []int{1, 1, 0}},
		{1, 3, 3, 2, []int{1, 0, 0}},
		{5, 3, 5, 1, []int{5, 0, 0, 0, 0}},
		{16, 3, 5, 1, []int{8, 8, 0, 0, 0}},

		{4, 5, 5, 2, []int{2, 2, 0, 0, 0}},
	} {
		t.Run(fmt.Sprintf("%d owners of %d nodes, %d shards", c.owners, c.nodes, c.shards), func(t *testing.T) {
			ms := nodes(c.nodes)
			even := settle(t, withShards(t, c.shards, c.replicas), ms)
			for from, m := range map[string]*shard.Map{"a new map": withShards(t, c.shards, c.replicas), "even owners": even} {
				m = settle(t, withOwners(t, m, c.owners), ms)
				if got := sorted(owned(m, ms)); !slices.Equal(got, c.want) {
					t.Errorf("from %s: nodes own %v shards, want %v", from, got, c.want)
				}
				if from != "a new map" && copiesMoved(even, m) {
					t.Error("a copy moved because of another number of owners")
				}
			}
		})
	}
}

// copiesMoved reports whether a shard is on other nodes after than before.
func copiesMoved(before, after *shard.Map) bool {
	for i := range after.Shards {
		if !sameSet(before.Shards[i].Replicas, after.Shards[i].Replicas) {
			return true
		}
	}
	return false
}

// fewest returns the smallest number of members such that one of them has a copy of each shard.
func fewest(m *shard.Map, ms []shard.Member) int {
	least := len(ms)
	for set := range 1 << len(ms) {
		has := func(n shard.NodeID) bool {
			return slices.ContainsFunc(ms, func(x shard.Member) bool {
				return x.Name == n && set>>slices.IndexFunc(ms, func(y shard.Member) bool { return y.Name == n })&1 == 1
			})
		}
		if !slices.ContainsFunc(m.Shards, func(s shard.Shard) bool { return !slices.ContainsFunc(s.Replicas, has) }) {
			least = min(least, bits.OnesCount(uint(set)))
		}
	}
	return least
}

// Nodes die, drain and return: at most one more node owns shards than the copies
// require, a new node takes no shard from an owner, and a node that owns nothing may
// leave without a change of owners.
func TestFewOwnersStay(t *testing.T) {
	rng := testseed.Rand(t)
	for _, size := range []int{3, 5, 7} {
		ms := nodes(size)
		for range 20 {
			owners, shards := 1+rng.IntN(2), 1+rng.IntN(24)
			m := settle(t, withOwners(t, withShards(t, shards, 3), owners), ms)
			gone := &ms[rng.IntN(size)]
			wasOwner := owned(m, nil)[gone.Name] > 0
			gone.State = shard.Dead
			without := settle(t, m, ms)
			gone.State = shard.Alive
			with := settle(t, without, ms)
			for _, at := range []*shard.Map{m, without, with} {
				if n, least := len(owned(at, nil)), max(min(owners, shards), fewest(at, ms)); n > least+1 {
					t.Errorf("%d nodes, %d shards: %d owners, %d suffice", size, shards, n, least)
				}
			}
			if size == 3 && !wasOwner && changedOwners(m, without) > 0 {
				t.Errorf("%s owned nothing, and its death changed %d owners", gone.Name, changedOwners(m, without))
			}
			if size == 3 && changedOwners(without, with) > 0 {
				t.Errorf("the return of %s changed %d owners", gone.Name, changedOwners(without, with))
			}
		}
	}
}

// One node more than replicas: without it fewer nodes could own all shards. With as many owners as it takes to have a
// copy of each shard, as Balance sets, neither the death nor the return of a node that owns nothing changes an owner.
func TestOwnersDoNotFollowOthers(t *testing.T) {
	rng := testseed.Rand(t)
	idle := 0
	for _, replicas := range []int{2, 3, 4} {
		ms := nodes(replicas + 1)
		for range 20 {
			m := settle(t, withOwners(t, withShards(t, 4+rng.IntN(20), replicas), 1), ms)
			m = settle(t, withOwners(t, m, fewest(m, ms)), ms)
			for i := range ms {
				if owned(m, nil)[ms[i].Name] > 0 {
					continue
				}
				idle++
				ms[i].State = shard.Dead
				without := settle(t, m, ms)
				ms[i].State = shard.Alive
				with := settle(t, without, ms)
				if gone, back := changedOwners(m, without), changedOwners(without, with); gone+back > 0 {
					t.Errorf("%d replicas, %d shards: the death of %s, which owned nothing, changed %d owners, its return %d", replicas, len(m.Shards), ms[i].Name, gone, back)
				}
			}
		}
	}
	if idle < 20 {
		t.Errorf("only %d nodes without shards were tested", idle)
	}
}

// When the owner dies, a node with a copy becomes owner at once, instead of a node that must load first.
func TestAnOwnerWithACopyFollows(t *testing.T) {
	for size := 3; size < 9; size++ {
		ms := nodes(size)
		m := settle(t, withOwners(t, withShards(t, 12, 3), 1), ms)
		for i := range ms {
			if owned(m, nil)[ms[i].Name] > 0 {
				ms[i].State = shard.Dead
				break
			}
		}
		after := change(t, m, shard.Assign{Moves: planner.Plan(m, ms)})
		for i := range m.Shards {
			if owner := after.Shards[i].Owner(); !slices.Contains(m.Shards[i].Replicas, owner) {
				t.Errorf("%d nodes: shard %d passes from %v to %s", size, m.Shards[i].ID, m.Shards[i].Replicas, owner)
			}
		}
	}
}

// The owners of pinned shards own the others, too.
func TestPinsChooseTheFewOwners(t *testing.T) {
	ms := nodes(4)
	m := settle(t, withOwners(t, withShards(t, 16, 4), 1), ms)
	other := ms[slices.IndexFunc(ms, func(n shard.Member) bool { return n.Name != m.Shards[0].Owner() })].Name
	m = settle(t, change(t, m, shard.Rehome{Homes: []shard.ShardHome{{Shard: m.Shards[3].ID, Home: shard.Home{Pins: []shard.NodeID{other}}}}}), ms)
	if got := owned(m, nil); got[other] != 16 {
		t.Errorf("%s should own all shards; nodes own %v", other, got)
	}
}
