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
	"github.com/shardwatch/shardwatch/internal/testing/maptest"
)

func nodes(n int) (out []shard.Member) {
	for i := range n {
		out = append(out, shard.Member{Name: shard.NodeID(fmt.Sprintf("node-%02d", i)), State: shard.Alive})
	}
	return out
}

func withShards(t *testing.T, n, replicas int) *shard.Map {
	t.Helper()
	return maptest.Found(t, maptest.Spec(n, replicas), numbered("%06d", n)[1:]...)
}

// settle applies plans until a plan is empty, at most two.
func settle(t *testing.T, m *shard.Map, members []shard.Member) *shard.Map {
	t.Helper()
	for range 2 {
		moves := planner.Plan(m, members)
		if len(moves) == 0 {
			return m
		}
		m = change(t, m, shard.Assign{Moves: moves})
	}
	if moves := planner.Plan(m, members); len(moves) > 0 {
		t.Fatalf("moves are still planned after two plans: %+v", moves)
	}
	return m
}

func TestPlanStep(t *testing.T) {
	ms := nodes(4)
	m := settle(t, withShards(t, 1, 3), ms)
	r := m.Shards[0].Replicas // the order the hash gives
	rest := shard.NodeID("")
	for _, n := range ms {
		if !slices.Contains(r, n.Name) {
			rest = n.Name
		}
	}
	set := func(f func(*shard.Member), names ...shard.NodeID) []shard.Member {
		out := slices.Clone(ms)
		for i := range out {
			if slices.Contains(names, out[i].Name) {
				f(&out[i])
			}
		}
		return out
	}
	dead := func(m *shard.Member) { m.State = shard.Dead }
	drain := func(m *shard.Member) { m.Draining = true }
	for _, c := range []struct {
		name    string
		members []shard.Member
		now     []shard.NodeID
		want    []shard.NodeID // nil: no move
	}{
		{"at rest", ms, r, nil},
		{"suspect moves nothing", set(func(m *shard.Member) { m.State = shard.Suspect }, r...), r, nil},
		{"owner dies", set(dead, r[0]), r, []shard.NodeID{r[1], r[2], rest}},
		{"owner left", set(func(m *shard.Member) { m.State = shard.Left }, r[0]), r, []shard.NodeID{r[1], r[2], rest}},
		{"owner drains", set(drain, r[0]), r, []shard.NodeID{r[1], r[2], rest}},
		{"two die", set(dead, r[0], r[1]), r, []shard.NodeID{r[2], rest}},
		{"owner is back: after the others first", ms, []shard.NodeID{r[1], r[2], rest}, []shard.NodeID{r[1], r[2], r[0]}},
		{"then the owner stays: one shard is owned evenly by any node", ms, []shard.NodeID{r[1], r[2], r[0]}, nil},
		{"the only live replica stays one step longer", ms, []shard.NodeID{rest}, []shard.NodeID{rest, r[0], r[1], r[2]}},
		{"so does a draining one", set(drain, rest), []shard.NodeID{rest}, []shard.NodeID{rest, r[0], r[1], r[2]}},
		{"all drain: all stay", set(drain, "node-00", "node-01", "node-02", "node-03"), r, nil},
		{"no node left", set(dead, "node-00", "node-01", "node-02", "node-03"), r, nil},
		{"all replicas dead", set(dead, r...), r, []shard.NodeID{rest}},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := m.Clone()
			at.Shards[0].Replicas = c.now
			var want []shard.Move
			if c.want != nil {
				want = []shard.Move{{Shard: 1, Replicas: c.want}}
			}
			if got := planner.Plan(at, c.members); !reflect.DeepEqual(got, want) {
				t.Errorf("from %v: %+v, want %+v", c.now, got, want)
			}
		})
	}
}

func TestPlanKeepsZonesApart(t *testing.T) {
	ms := nodes(9)
	for i := range ms {
		ms[i].Zone = fmt.Sprint("zone-", i%3)
	}
	zone := map[shard.NodeID]string{}
	for _, n := range ms {
		zone[n.Name] = n.Zone
	}
	for _, replicas := range []int{3, 5} {
		for _, s := range settle(t, withShards(t, 200, replicas), ms).Shards {
			count := map[string]int{}
			for _, n := range s.Replicas {
				count[zone[n]]++
			}
			if len(s.Replicas) != replicas || len(count) != 3 {
				t.Errorf("shard %d on %v: zones %v", s.ID, s.Replicas, count)
			}
			for z, c := range count {
				if c > (replicas+2)/3 {
					t.Errorf("shard %d has %d replicas in %s", s.ID, c, z)
				}
			}
		}
	}
}

// Nodes join and leave at random. After each change, once settled, only shards
// on a node that left, or on one that joined, have changed; the same members
// give the same copies in any order of changes; and the load is even.
func TestPlanMovesLittle(t *testing.T) {
	rng := testseed.Rand(t)
	const shards, replicas = 256, 3
	ms := nodes(10)
	m := settle(t, withShards(t, shards, replicas), ms)
	for range 40 {
		i := rng.IntN(len(ms))
		next := slices.Clone(ms)
		if next[i].State == shard.Alive {
			next[i].State = shard.Dead
		} else {
			next[i].State = shard.Alive
		}
		var live []shard.Member
		for _, n := range next {
			if n.State == shard.Alive {
				live = append(live, n)
			}
		}
		if len(live) < 5 {
			continue
		}
		after := settle(t, m, shuffled(rng, next))
		fresh := settle(t, withShards(t, shards, replicas), live)
		load := map[shard.NodeID]int{}
		for j := range after.Shards {
			was, is := m.Shards[j].Replicas, after.Shards[j].Replicas
			if !sameSet(was, is) && !slices.Contains(was, ms[i].Name) && !slices.Contains(is, ms[i].Name) {
				t.Fatalf("%s changed, and shard %d moved between other nodes: from %v to %v", ms[i].Name, after.Shards[j].ID, was, is)
			}
			if !sameSet(is, fresh.Shards[j].Replicas) {
				t.Fatalf("shard %d is on %v, a new map has it on %v", after.Shards[j].ID, is, fresh.Shards[j].Replicas)
			}
			for _, n := range is {
				load[n]++
			}
		}
		mean := shards * replicas / len(live)
		for n, l := range load {
			if l > mean*8/5 || l < mean*2/5 {
				t.Errorf("%s has %d replicas, the mean is %d", n, l, mean)
			}
		}
		ms, m = next, after
	}
}

// A single step never removes all live replicas, and never makes a node without
// the shard its owner while another node has it.
func TestPlanStepKeepsWarmReplica(t *testing.T) {
	rng := testseed.Rand(t)
	ms := nodes(8)
	m := settle(t, withShards(t, 64, 3), ms)
	for range 200 {
		for i := range ms {
			ms[i].State = []shard.State{shard.Alive, shard.Alive, shard.Suspect, shard.Dead, shard.Left}[rng.IntN(5)]
			ms[i].Draining = rng.IntN(4) == 0
			ms[i].Zone = []string{"", "a", "b"}[rng.IntN(3)]
		}
		live := map[shard.NodeID]bool{}
		for _, n := range ms {
			live[n.Name] = n.State == shard.Alive || n.State == shard.Suspect
		}
		moves := planner.Plan(m, ms)
		for _, mv := range moves {
			s, _ := m.Shard(mv.Shard)
			had := slices.ContainsFunc(s.Replicas, func(n shard.NodeID) bool { return live[n] })
			if had && (!slices.Contains(s.Replicas, mv.Replicas[0]) || !live[mv.Replicas[0]]) {
				t.Fatalf("the new owner of shard %d has no copy or is dead: from %v to %v, live nodes %v", mv.Shard, s.Replicas, mv.Replicas, live)
			}
		}
		if len(moves) > 0 {
			m = change(t, m, shard.Assign{Moves: moves})
		}
	}
}

// After any changes of the map and the members, a planner returns the same plans
// as a new planner.
func TestAReusedPlannerPlansLikeANewOne(t *testing.T) {
	rng := testseed.Rand(t)
	ms := nodes(12)
	m := settle(t, withShards(t, 64, 3), ms)
	var p planner.Planner
	for step := range 150 {
		n := &ms[rng.IntN(len(ms))]
		if step == 40 { // weights count from here on
			m = change(t, m, shard.Finalize{Level: shard.Level})
		}
		switch rng.IntN(9) {
		case 8:
			n.Weight = rng.IntN(4)
		case 0:
			n.State = shard.Dead
		case 1:
			n.Draining = !n.Draining
		case 2:
			n.Zone = []string{"", "a", "b", "c"}[rng.IntN(4)]
		case 3:
			m = change(t, m, shard.Drain{Nodes: []shard.NodeID{n.Name}, Undo: rng.IntN(2) == 0})
		case 4:
			s := m.Shards[rng.IntN(len(m.Shards))]
			home := shard.Home{Seat: m.Shards[rng.IntN(len(m.Shards))].Seat(), Replicas: rng.IntN(5)}
			if rng.IntN(2) == 0 {
				home.Pins = []shard.NodeID{n.Name}
			}
			m = change(t, m, shard.Rehome{Homes: []shard.ShardHome{{Shard: s.ID, Home: home}}})
		case 5:
			n.Name += "'" // another node instead of it
		default:
			n.State = shard.Alive
		}
		got, want := p.Plan(m, shuffled(rng, ms)), planner.Plan(m, ms)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("step %d: %+v, want %+v", step, got, want)
		}
		if len(want) > 0 && rng.IntN(3) > 0 {
			m = change(t, m, shard.Assign{Moves: want})
		}
	}
}

func TestPlace(t *testing.T) {
	ms := nodes(5)
	f, err := planner.Place(shard.Found{ClusterID: "c", Spec: maptest.Spec(8, 3), Cuts: numbered("%d", 8)[1:]}, ms)
	if err != nil {
		t.Fatal(err)
	}
	m, err := shard.Apply(nil, shard.Command{Change: f})
	if err != nil {
		t.Fatal(err)
	}
	if moves := planner.Plan(m, ms); len(moves) > 0 {
		t.Errorf("moves are planned for a new map: %+v", moves)
	}
}

func sameSet(a, b []shard.NodeID) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

func shuffled(rng *rand.Rand, ms []shard.Member) []shard.Member {
	out := slices.Clone(ms)
	rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// The plan of a new leader, and its plan when one node leaves and returns.
func BenchmarkPlan(b *testing.B) {
	for _, c := range []struct{ shards, nodes, zones, owners int }{{10_000, 100, 0, 0}, {100_000, 1000, 0, 0}, {100_000, 1000, 3, 0}, {100_000, 1000, 0, 20}} {
		ms := nodes(c.nodes)
		for i := range ms {
			if c.zones > 0 {
				ms[i].Zone = fmt.Sprint("zone-", i%c.zones)
			}
		}
		spec := maptest.Spec(c.shards, 3)
		spec.Owners = c.owners
		f, err := planner.Place(shard.Found{ClusterID: "c", Spec: spec, Cuts: numbered("%06d", c.shards)[1:]}, ms)
		if err != nil {
			b.Fatal(err)
		}
		m, err := shard.Apply(nil, shard.Command{Change: f})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("shards=%d/nodes=%d/zones=%d/owners=%d/first", c.shards, c.nodes, c.zones, c.owners), func(b *testing.B) {
			for b.Loop() {
				planner.Plan(m, ms)
			}
		})
		b.Run(fmt.Sprintf("shards=%d/nodes=%d/zones=%d/owners=%d/change", c.shards, c.nodes, c.zones, c.owners), func(b *testing.B) {
			var p planner.Planner
			p.Plan(m, ms)
			for b.Loop() {
				ms[0].State = shard.Dead
				p.Plan(m, ms)
				ms[0].State = shard.Alive
				p.Plan(m, ms)
			}
		})
	}
}
