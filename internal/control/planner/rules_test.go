package planner

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/maptest"
)

func member(name shard.NodeID, state shard.State, since time.Time) shard.Member {
	return shard.Member{
		Name: name, UUID: "u-" + string(name), RaftAddress: string(name) + ":1", BootstrapExpect: 3,
		State: state, Since: since,
	}
}

func TestRules(t *testing.T) {
	r := Rules{Settle: 2 * time.Second, DeadGrace: 5 * time.Second, MoveInterval: 30 * time.Second, PromoteDelay: 5 * time.Second}
	start := time.Unix(1000, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	// Replicas of both shards: a and b, settled; c is a third node.
	base := []shard.Member{member("a", shard.Alive, at(-100)), member("b", shard.Alive, at(-100))}
	m := maptest.Pair(t, "a", "b")
	for _, mv := range Plan(m, base) { // the hash may want the other order
		for i := range m.Shards {
			if m.Shards[i].ID == mv.Shard {
				m.Shards[i].Replicas = mv.Replicas
			}
		}
	}
	with := func(ms ...shard.Member) []shard.Member {
		out := append([]shard.Member{}, base...)
		for _, n := range ms {
			found := false
			for i := range out {
				if out[i].Name == n.Name {
					out[i], found = n, true
				}
			}
			if !found {
				out = append(out, n)
			}
		}
		return out
	}
	drain := func(n shard.Member) shard.Member { n.Draining = true; return n }
	c := member("c", shard.Alive, at(-100))
	buried := Observations{buried: map[shard.ID]time.Time{1: at(0), 2: at(0)}, changed: map[shard.ID]time.Time{1: at(0), 2: at(0)}}
	for _, tc := range []struct {
		name    string
		members []shard.Member
		h       Observations
		now     int
		moves   int
		again   time.Time
	}{
		{"at rest", base, Observations{}, 0, 0, time.Time{}},
		{"suspect", with(member("a", shard.Suspect, at(-60))), Observations{}, 0, 0, time.Time{}},
		{"dead, in grace", with(member("a", shard.Dead, at(0))), Observations{}, 4, 0, at(5)},
		{"dead for long", with(member("a", shard.Dead, at(0))), Observations{}, 5, 2, time.Time{}},
		{"dead again", with(member("a", shard.Dead, at(5))), buried, 12, 0, at(30)},
		{"dead again, later", with(member("a", shard.Dead, at(5))), buried, 30, 2, time.Time{}},
		{"all dead, no interval", with(member("a", shard.Dead, at(5)), member("b", shard.Dead, at(5)), c), buried, 12, 2, time.Time{}},
		{"left", with(member("a", shard.Left, at(0))), buried, 1, 2, time.Time{}},
		{"not seen, in grace", base[1:], Observations{missing: map[shard.NodeID]time.Time{"a": at(0)}}, 4, 0, at(5)},
		{"not seen for long", base[1:], Observations{missing: map[shard.NodeID]time.Time{"a": at(0)}}, 5, 2, time.Time{}},
		{"drains, rested", with(drain(base[0])), Observations{}, 0, 2, time.Time{}},
		{"drains, just moved", with(drain(base[0])), buried, 1, 0, at(5)},
		{"drains, newcomer", with(drain(base[0]), c), buried, 1, 2, time.Time{}},
		{"newcomer settles", with(member("c", shard.Alive, at(0))), Observations{}, 1, 0, at(2)},
		{"suspect newcomer", with(member("c", shard.Suspect, at(0))), Observations{}, 60, 0, time.Time{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := r.Decide(m, tc.members, tc.h, at(tc.now))
			if len(d.Moves) != tc.moves || !d.Again.Equal(tc.again) {
				t.Errorf("%d moves %+v, again %v; want %d, %v", len(d.Moves), d.Moves, d.Again.Sub(start), tc.moves, tc.again.Sub(start))
			}
		})
	}

	h := Observations{}.Observe(m, base[1:], nil, at(0)).Observe(m, base[1:], nil, at(3))
	if !h.missing["a"].Equal(at(0)) || len(h.missing) != 1 {
		t.Errorf("missing: %v", h.missing)
	}
	dead := with(member("a", shard.Dead, at(0)))
	d := r.Decide(m, dead, h, at(9))
	h = h.Record(m, d, dead, at(9))
	if !h.buried[1].Equal(at(9)) || !h.changed[2].Equal(at(9)) {
		t.Errorf("recorded %+v", h)
	}
}

// Newcomers load a few at a time, newcomers of endangered shards first. The removal
// of replicas from lost or draining nodes does not wait for this.
func TestRulesBoundNewcomers(t *testing.T) {
	r := Rules{PromoteDelay: 5 * time.Second, FillTimeout: time.Minute, MaxFills: 8, MaxNodeFills: 4}
	start := time.Unix(1000, 0)
	var members []shard.Member
	for i := range 8 {
		members = append(members, member(shard.NodeID(fmt.Sprint("n", i)), shard.Alive, start.Add(-time.Hour)))
	}
	var cuts []string
	for i := range 63 {
		cuts = append(cuts, fmt.Sprintf("%02d", i))
	}
	f, err := Place(shard.Found{ClusterID: "c", Spec: shard.Spec{Ranges: []kv.Range{{}}, Shards: 64, Replicas: 2}, Cuts: cuts}, members[:7])
	if err != nil {
		t.Fatal(err)
	}
	m, err := shard.Apply(nil, shard.Command{Change: f})
	if err != nil {
		t.Fatal(err)
	}
	wanted := len(Plan(m, members))
	members[0].Draining = true

	var h Observations
	now, all, moves := start, 0, 0
	for m.Level() == 1 {
		d := r.Decide(m, members, h, now)
		if len(d.Moves) == 0 {
			if d.Again.IsZero() {
				break
			}
			now = d.Again
			continue
		}
		fills, of := 0, map[shard.NodeID]int{}
		for s, mv := range moved(m, d.Moves) {
			for _, n := range removed(mv.Replicas, s.Replicas) {
				fills++
				of[n]++
				of[mv.Replicas[0]]++
			}
		}
		for n, c := range of {
			if c > r.MaxNodeFills {
				t.Errorf("%d newcomers load from or to %s at a time", c, n)
			}
		}
		if fills > r.MaxFills {
			t.Errorf("%d newcomers load at a time", fills)
		}
		h = h.Record(m, d, members, now)
		all, moves = all+fills, moves+len(d.Moves)
		if m, err = shard.Apply(m, shard.Command{IfVersion: m.Version, Change: shard.Assign{Moves: d.Moves}}); err != nil {
			t.Fatal(err)
		}
		if now.Equal(start) {
			for _, s := range m.Shards {
				if slices.Contains(s.Replicas, "n0") {
					t.Errorf("shard %d stays on the draining node: %v", s.ID, s.Replicas)
				}
			}
		}
	}
	if left := Plan(m, members); len(left) > 0 || all < wanted {
		t.Errorf("%d newcomers in total, %d moves are left", all, len(left))
	}
	if took := now.Sub(start); took < time.Duration(all/r.MaxFills-1)*r.PromoteDelay {
		t.Errorf("%d newcomers in %v", all, took)
	}
}

// The cost of each decision of a leader: at rest, and after the death of a third of
// the nodes, which a few newcomers at a time replace.
func BenchmarkDecide(b *testing.B) {
	const shards, count = 100_000, 1000
	now := time.Unix(1000, 0)
	var members []shard.Member
	for i := range count {
		m := member(shard.NodeID(fmt.Sprintf("n%04d", i)), shard.Alive, now.Add(-time.Hour))
		m.Zone = fmt.Sprint("zone-", i%3)
		members = append(members, m)
	}
	var cuts []string
	for i := range shards - 1 {
		cuts = append(cuts, fmt.Sprintf("%06d", i))
	}
	f, err := Place(shard.Found{ClusterID: "c", Spec: shard.Spec{Ranges: []kv.Range{{}}, Shards: shards, Replicas: 3}, Cuts: cuts}, members)
	if err != nil {
		b.Fatal(err)
	}
	m, err := shard.Apply(nil, shard.Command{Change: f})
	if err != nil {
		b.Fatal(err)
	}
	r := Rules{PromoteDelay: 5 * time.Second, FillTimeout: time.Minute, MaxFills: 256, MaxNodeFills: 8, Planner: new(Planner)}
	for _, c := range []struct {
		name string
		dead int
	}{{"none", count + 1}, {"zone", 3}} {
		for i := range members {
			if members[i].State = shard.Alive; i%c.dead == 0 && c.dead < count {
				members[i].State = shard.Dead
			}
		}
		b.Run(fmt.Sprintf("shards=%d/nodes=%d/dead=%s", shards, count, c.name), func(b *testing.B) {
			h := Observations{}.Observe(m, members, nil, now)
			for b.Loop() {
				r.Decide(m, members, h, now)
			}
		})
	}
}

// Missing live replicas of a shard wait only while donor and newcomer are busy, until
// the newcomer reports that it has loaded.
func TestRulesRestoreAtOnce(t *testing.T) {
	r := Rules{PromoteDelay: 5 * time.Second, FillTimeout: time.Minute, MaxNodeFills: 1}
	start := time.Unix(1000, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	members := []shard.Member{member("a", shard.Alive, start), member("b", shard.Alive, start)}
	m := maptest.Pair(t, "a")
	h := Observations{changed: map[shard.ID]time.Time{1: start, 2: start}}

	d := r.Decide(m, members, h, at(1))
	if len(d.Moves) != 1 || !slices.Contains(d.Moves[0].Replicas, "b") {
		t.Fatalf("just moved: %+v", d)
	}
	first := d.Moves[0].Shard
	h = h.Record(m, d, members, at(1))
	var err error
	if m, err = shard.Apply(m, shard.Command{IfVersion: m.Version, Change: shard.Assign{Moves: d.Moves}}); err != nil {
		t.Fatal(err)
	}
	restores := func(d Decision) bool {
		return slices.ContainsFunc(d.Moves, func(mv shard.Move) bool { return mv.Shard != first && slices.Contains(mv.Replicas, "b") })
	}
	for _, tc := range []struct {
		name     string
		reported int // seconds; 0: never
		ready    bool
		now      int
		want     bool
	}{
		{"not known", 0, false, 3, false},
		{"not known for long", 0, false, 6, true},
		{"loads", 2, false, 3, false},
		{"reported before the move", 1, true, 3, false},
		{"has loaded", 2, true, 3, true},
	} {
		h.reports = nil
		if tc.reported > 0 {
			h.reports = h.reports.Add(at(tc.reported), 0, []Report{{Node: "b", Shards: []ShardReport{{Shard: first, Ready: tc.ready}}}})
		}
		if d := r.Decide(m, members, h, at(tc.now)); restores(d) != tc.want || (!tc.want && d.Again.IsZero()) {
			t.Errorf("%s: %+v", tc.name, d)
		}
	}
}

// A node dies and returns sixty times: its shards return at growing intervals, but
// at once if it lives long between two deaths, or leaves properly.
func TestFlappingNodeIsHeldDown(t *testing.T) {
	for _, tc := range []struct {
		name        string
		up, down    time.Duration
		leave       bool // it leaves properly
		least, most int  // moves to it
	}{
		{"a minute", 50 * time.Second, 10 * time.Second, false, 1, 4},
		{"ten seconds", 5 * time.Second, 10 * time.Second, false, 0, 4},
		{"an hour", time.Hour, time.Minute, false, 55, 60},
		{"restarts", 50 * time.Second, 10 * time.Second, true, 55, 60},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := maptest.Pair(t, "a", "b")
			r := Rules{Settle: 2 * time.Second, DeadGrace: 5 * time.Second, MoveInterval: time.Second, PromoteDelay: time.Second, FillTimeout: time.Minute}
			start := time.Unix(1000, 0)
			now, began := start, start
			others := []shard.Member{member("a", shard.Alive, start.Add(-time.Hour)), member("c", shard.Alive, start.Add(-time.Hour))}
			var h Observations
			given, cycles := 0, 60
			for cycle := range cycles {
				for _, phase := range []shard.State{shard.Alive, shard.Dead} {
					state, lasts := phase, tc.up
					if phase == shard.Dead {
						if lasts = tc.down; tc.leave {
							state = shard.Left
						}
					}
					since := now
					if cycle == 0 && phase == shard.Alive {
						since = began.Add(-time.Hour)
					}
					for until := now.Add(lasts); now.Before(until); now = now.Add(time.Second) {
						members := append(slices.Clone(others), member("b", state, since))
						h = h.Observe(m, members, h.reports, now)
						d := r.Decide(m, members, h, now)
						if len(d.Moves) == 0 {
							continue
						}
						for _, mv := range d.Moves {
							s, _ := m.Shard(mv.Shard)
							if slices.Contains(mv.Replicas, "b") && !slices.Contains(s.Replicas, "b") {
								given++
							}
						}
						h = h.Record(m, d, members, now)
						var err error
						if m, err = shard.Apply(m, shard.Command{IfVersion: m.Version, Change: shard.Assign{Moves: d.Moves}}); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			if given < tc.least || given > tc.most {
				t.Errorf("in %d returns the node was given a shard %d times, want %d to %d", cycles, given, tc.least, tc.most)
			}
		})
	}
}

func TestOwed(t *testing.T) {
	now := time.Unix(1000, 0)
	alive := func(names ...shard.NodeID) (out []shard.Member) {
		for _, n := range names {
			out = append(out, member(n, shard.Alive, now))
		}
		return out
	}
	left := append(alive("b", "c"), member("a", shard.Left, now))
	draining := alive("a", "b", "c")
	draining[0].Draining = true
	drained := func(m *shard.Map, n shard.NodeID) *shard.Map {
		m.Drained = []shard.NodeID{n}
		return m
	}
	for _, tc := range []struct {
		name    string
		m       *shard.Map
		members []shard.Member
		self    shard.NodeID
		want    int
	}{
		{"all live", maptest.Pair(t, "a", "b"), alive("a", "b", "c"), "c", 0},
		{"one is missing in the map", maptest.Pair(t, "a"), alive("a", "b"), "b", 2},
		{"it is there", maptest.Pair(t, "a", "b"), alive("a", "b"), "b", 0},
		{"one has left", maptest.Pair(t, "a", "b"), left, "c", 2},
		{"one drains", maptest.Pair(t, "a", "b"), draining, "c", 2},
		{"no other node is seen yet", maptest.Pair(t, "a", "b"), alive("c"), "c", 0},
		{"the others are not seen, and are too few", maptest.Pair(t, "a"), alive("b"), "b", 2},
		{"it is drained", drained(maptest.Pair(t, "a"), "b"), alive("a", "b"), "b", 0},
	} {
		if got := Owed(tc.m, tc.members, tc.self); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}

// A newcomer that reports that it is loading does not become owner, and delays
// other moves of its shard, but not forever.
func TestRulesWaitForLoadingCopies(t *testing.T) {
	r := Rules{PromoteDelay: 5 * time.Second, FillTimeout: time.Minute}
	start := time.Unix(1000, 0)
	members := []shard.Member{member("a", shard.Alive, start), member("b", shard.Alive, start)}
	m := maptest.Pair(t, "a")
	home := shard.Rehome{Homes: []shard.ShardHome{{Shard: 1, Home: shard.Home{Pins: []shard.NodeID{"b", "a"}}}, {Shard: 2, Home: shard.Home{Pins: []shard.NodeID{"a", "b"}}}}}
	apply := func(c shard.Change) {
		t.Helper()
		var err error
		if m, err = shard.Apply(m, shard.Command{IfVersion: m.Version, Change: c}); err != nil {
			t.Fatal(err)
		}
	}
	apply(home)
	var h Observations
	d := r.Decide(m, members, h, start)
	h = h.Record(m, d, members, start)
	apply(shard.Assign{Moves: d.Moves})
	report := func(at time.Time, ready bool) {
		h.reports = h.reports.Add(at, 0, []Report{{Node: "a", Shards: []ShardReport{{Shard: 1, Ready: true}, {Shard: 2, Ready: true}}}, {Node: "b", Shards: []ShardReport{{Shard: 1, Ready: ready}, {Shard: 2, Ready: ready}}}})
	}
	for _, tc := range []struct {
		name  string
		after time.Duration
		ready bool
		moves int
	}{
		{"it loads", 20 * time.Second, false, 0},
		{"it has loaded", 21 * time.Second, true, 1},
		{"it loads for too long", time.Minute, false, 1},
	} {
		now := start.Add(tc.after)
		report(now, tc.ready)
		if d := r.Decide(m, members, h, now); len(d.Moves) != tc.moves || (tc.moves == 0 && d.Again.IsZero()) {
			t.Errorf("%s: %+v", tc.name, d)
		}
	}

	// A draining node waits for its next owner, and for no other node.
	draining := []shard.Member{members[0], members[1], member("c", shard.Alive, start)}
	draining[0].Draining = true
	three := maptest.Pair(t, "a", "b", "c")
	three.Spec.Replicas = 3
	for _, loading := range []shard.NodeID{"b", "c"} {
		now := start.Add(20 * time.Second)
		g := Observations{changed: map[shard.ID]time.Time{1: start, 2: start}}
		reports := []Report{{Node: loading}}
		for _, n := range []shard.NodeID{"a", "b", "c"} {
			if n != loading {
				reports = append(reports, Report{Node: n, Shards: []ShardReport{{Shard: 1, Ready: true}, {Shard: 2, Ready: true}}})
			}
		}
		g.reports = g.reports.Add(now, 0, reports)
		d := r.Decide(three, draining, g, now)
		for _, mv := range d.Moves {
			if mv.Replicas[0] == loading {
				t.Errorf("%s is loading and becomes owner of shard %d", loading, mv.Shard)
			}
		}
		heirs := 0
		for _, mv := range Plan(three, draining) {
			if mv.Replicas[0] != loading {
				heirs++
			}
		}
		if len(d.Moves) != heirs {
			t.Errorf("while %s is loading: %d moves, want %d", loading, len(d.Moves), heirs)
		}
	}

	// A merge waits for loading copies, too.
	join, err := Together(m, 2, 1)
	if err != nil {
		t.Fatal(err)
	}
	apply(join)
	report(start.Add(20*time.Second), false)
	if ready, again := r.Merges(m, h, start.Add(20*time.Second)); len(ready) > 0 || again.IsZero() {
		t.Errorf("shards are merged while copies load: %+v, retry after %v", ready, again)
	}
	report(start.Add(21*time.Second), true)
	if ready, _ := r.Merges(m, h, start.Add(21*time.Second)); len(ready) != 1 {
		t.Errorf("loaded shards are not merged: %+v", ready)
	}
}

// The planner does not wait for a newcomer that no longer has its shard, or whose
// shard no longer exists.
func TestFormerNewcomersAreForgotten(t *testing.T) {
	r := Rules{PromoteDelay: 5 * time.Second, FillTimeout: 10 * time.Minute, MaxFills: 2, MaxNodeFills: 2}
	start := time.Unix(1000, 0)
	m := maptest.Pair(t, "a", "b")
	members := []shard.Member{member("a", shard.Alive, start), member("b", shard.Alive, start), member("c", shard.Alive, start)}
	apply := func(c shard.Change) {
		t.Helper()
		var err error
		if m, err = shard.Apply(m, shard.Command{IfVersion: m.Version, Change: c}); err != nil {
			t.Fatal(err)
		}
	}
	three := shard.Assign{Moves: []shard.Move{{Shard: 1, Replicas: []shard.NodeID{"a", "b", "c"}}, {Shard: 2, Replicas: []shard.NodeID{"a", "b", "c"}}}}
	h := Observations{}.Observe(m, members, nil, start).Record(m, Decision{Moves: three.Moves}, members, start)
	apply(three)
	now := start.Add(time.Minute)
	h = h.Observe(m, members, h.reports, now)
	h.reports = h.reports.Add(now, 0, []Report{{Node: "c"}})
	if got := r.Filling(h, now); !slices.Equal(got, []shard.NodeID{"c"}) {
		t.Errorf("nodes that load: %v", got)
	}
	apply(shard.Assign{Moves: []shard.Move{{Shard: 1, Replicas: []shard.NodeID{"a", "b"}}}})
	apply(shard.Split{Shard: 2, At: []string{"x"}})
	if got := r.Filling(h.Observe(m, members, h.reports, now), now); len(got) > 0 {
		t.Errorf("the planner waits for %v", got)
	}
}

// Whatever the reason of a move, the only node with a complete copy of a shard
// keeps it until another node has loaded.
func TestRulesKeepTheLastWarmCopy(t *testing.T) {
	r := Rules{DeadGrace: 5 * time.Second, MoveInterval: 30 * time.Second, PromoteDelay: 5 * time.Second, FillTimeout: time.Minute}
	start := time.Unix(1000, 0)
	now := start.Add(time.Hour)
	a, b, c, d := member("a", shard.Alive, start), member("b", shard.Alive, start), member("c", shard.Alive, start), member("d", shard.Alive, start)
	draining := a
	draining.Draining = true
	dead := member("d", shard.Dead, start)
	for _, tc := range []struct {
		name     string
		replicas []shard.NodeID
		pins     []shard.NodeID
		members  []shard.Member
	}{
		{"it drains, another one is to come", []shard.NodeID{"a", "b"}, []shard.NodeID{"b", "c"}, []shard.Member{draining, b, c}},
		{"it drains, and no other is to come", []shard.NodeID{"a", "b"}, []shard.NodeID{"b"}, []shard.Member{draining, b}},
		{"another one has died", []shard.NodeID{"a", "d", "b"}, []shard.NodeID{"b", "c"}, []shard.Member{a, b, c, dead}},
		{"another one has left", []shard.NodeID{"a", "d", "b"}, []shard.NodeID{"b", "c"}, []shard.Member{a, b, c, member("d", shard.Left, start)}},
		{"it is not wanted", []shard.NodeID{"a", "b"}, []shard.NodeID{"b", "c"}, []shard.Member{a, b, c, d}},
	} {
		m := maptest.Pair(t, tc.replicas...)
		for i := range m.Shards {
			m.Shards[i].Home = shard.Home{Pins: tc.pins, Replicas: len(tc.pins)}
		}
		var h Observations
		for _, ready := range []bool{false, true} {
			copies := []ShardReport{{Shard: 1, Ready: true}, {Shard: 2, Ready: true}}
			others := []ShardReport{{Shard: 1, Ready: ready}, {Shard: 2, Ready: ready}}
			h.reports = h.reports.Add(now, 0, []Report{{Node: "a", Shards: copies}, {Node: "b", Shards: others}, {Node: "c"}, {Node: "d"}})
			moves := r.Decide(m, tc.members, h, now).Moves
			taken := slices.ContainsFunc(moves, func(mv shard.Move) bool { return !slices.Contains(mv.Replicas, "a") })
			if taken != ready {
				t.Errorf("%s: the other copy is loaded: %v, moves: %+v", tc.name, ready, moves)
			}
		}
	}
}

// A node that gossips but does not answer the leader, because of an expired
// certificate or a firewall between them, gets nothing: neither a copy nor
// ownership, and no copy is removed from another node for it.
func TestNodesWithoutReportsGetNoShards(t *testing.T) {
	r := Rules{DeadGrace: 5 * time.Second, MoveInterval: 30 * time.Second, PromoteDelay: 5 * time.Second, FillTimeout: time.Minute}
	start := time.Unix(1000, 0)
	now := start.Add(time.Hour)
	loaded := []ShardReport{{Shard: 1, Ready: true}, {Shard: 2, Ready: true}}
	draining := member("a", shard.Alive, start)
	draining.Draining = true
	for _, tc := range []struct {
		name     string
		replicas []shard.NodeID
		pins     []shard.NodeID
		a        shard.Member
	}{
		{"a copy is missing", []shard.NodeID{"a"}, []shard.NodeID{"a", "x"}, member("a", shard.Alive, start)},
		{"it is to be the owner", []shard.NodeID{"a", "x"}, []shard.NodeID{"x", "a"}, member("a", shard.Alive, start)},
		{"it is to take the place of another", []shard.NodeID{"a", "b"}, []shard.NodeID{"x", "b"}, member("a", shard.Alive, start)},
		{"the other copy drains", []shard.NodeID{"a", "x"}, []shard.NodeID{"x"}, draining},
	} {
		m := maptest.Pair(t, tc.replicas...)
		for i := range m.Shards {
			m.Shards[i].Home = shard.Home{Pins: tc.pins, Replicas: len(tc.pins)}
		}
		members := []shard.Member{tc.a, member("b", shard.Alive, start), member("x", shard.Alive, start)}
		var h Observations
		h.reports = h.reports.Add(now, 0, []Report{{Node: "a", Shards: loaded}, {Node: "b", Shards: loaded}})
		for _, mv := range r.Decide(m, members, h, now).Moves {
			if mv.Replicas[0] == "x" || slices.Contains(removed(mv.Replicas, tc.replicas), "x") || !slices.Contains(mv.Replicas, "a") {
				t.Errorf("%s: %+v", tc.name, mv)
			}
		}
		h.reports = h.reports.Add(now, 0, []Report{{Node: "x", Shards: loaded}})
		if d := r.Decide(m, members, h, now); len(d.Moves) == 0 {
			t.Errorf("%s: no moves after the node has reported", tc.name)
		}
	}
}

// A node that has shards and does not answer the leader keeps them. Missing copies that would be placed on
// it are placed on a free node.
func TestASilentNodeDoesNotBlockTheRepairOfShards(t *testing.T) {
	start := time.Unix(1000, 0)
	now := start.Add(2 * time.Hour)
	var members []shard.Member
	for _, n := range []shard.NodeID{"a", "b", "d", "x"} {
		members = append(members, member(n, shard.Alive, start))
	}
	members = append(members, member("c", shard.Dead, now.Add(-time.Hour)))
	for name, test := range map[string]struct {
		zones map[shard.NodeID]string
		pins  []shard.NodeID
		want  []shard.NodeID
	}{
		"plain":  {want: []shard.NodeID{"a", "b", "d"}},
		"zones":  {zones: map[shard.NodeID]string{"a": "1", "b": "2", "d": "2", "x": "3"}, want: []shard.NodeID{"a", "b", "d"}},
		"pinned": {pins: []shard.NodeID{"a", "b", "x"}, want: []shard.NodeID{"a", "b", "d"}},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range members {
				members[i].Zone = test.zones[members[i].Name]
			}
			m := maptest.Pair(t, "a", "b", "c")
			m.Spec.Replicas = 3
			m.Shards[1].Replicas = []shard.NodeID{"a", "b", "x"}
			m.Shards[1].Home = shard.Home{Pins: m.Shards[1].Replicas, Replicas: 3}
			s := &m.Shards[0]
			s.Home = shard.Home{Pins: test.pins, Replicas: 3}
			belongs := func(n shard.NodeID) bool {
				return slices.ContainsFunc(Plan(m, members), func(mv shard.Move) bool { return mv.Shard == s.ID && slices.Contains(mv.Replicas, n) })
			}
			for !belongs("x") {
				s.Home.Seat++
			}
			var h Observations
			loaded := []ShardReport{{Shard: 1, Ready: true}, {Shard: 2, Ready: true}}
			for _, n := range []shard.NodeID{"a", "b", "d"} {
				h.reports = h.reports.Add(now, 0, []Report{{Node: n, Shards: loaded}})
			}
			var got []shard.NodeID
			for _, mv := range DefaultRules().Decide(m, members, h, now).Moves {
				if mv.Shard == s.ID {
					got = slices.Sorted(slices.Values(mv.Replicas))
				} else {
					t.Errorf("shard %d moves to %v, although its silent node may be healthy", mv.Shard, mv.Replicas)
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("the shard moves to %v, want %v", got, test.want)
			}
		})
	}
}

// A draining node keeps its copy until its replacement answers, if no other node is free.
func TestANodeThatDrainsWaitsForASilentOne(t *testing.T) {
	start := time.Unix(1000, 0)
	now := start.Add(time.Hour)
	members := []shard.Member{member("a", shard.Alive, start), member("b", shard.Alive, start), member("d", shard.Alive, start), member("x", shard.Alive, start)}
	members[2].Draining = true
	m := maptest.Pair(t, "a", "b", "d")
	m.Spec.Replicas = 3
	m.Shards[0].Home = shard.Home{Pins: []shard.NodeID{"a", "b", "x"}, Replicas: 3}
	m.Shards[1].Replicas = []shard.NodeID{"a", "b", "x"}
	m.Shards[1].Home = shard.Home{Pins: m.Shards[1].Replicas, Replicas: 3}
	var h Observations
	loaded := []ShardReport{{Shard: 1, Ready: true}, {Shard: 2, Ready: true}}
	for _, n := range []shard.NodeID{"a", "b", "d"} {
		h.reports = h.reports.Add(now, 0, []Report{{Node: n, Shards: loaded}})
	}
	if d := DefaultRules().Decide(m, members, h, now); len(d.Moves) > 0 {
		t.Errorf("d gives up its copy before x answers: %+v", d.Moves)
	}
	h.reports = h.reports.Add(now, 0, []Report{{Node: "x", Shards: loaded}})
	if d := DefaultRules().Decide(m, members, h, now); len(d.Moves) != 1 || !slices.Contains(d.Moves[0].Replicas, "x") {
		t.Errorf("x answers: moves %+v, want its copy of one shard", d.Moves)
	}
}

// A new leader has no record of the previous leader's moves, and waits for loading
// newcomers all the same.
func TestANewLeaderWaitsForLoadingCopies(t *testing.T) {
	r := Rules{PromoteDelay: 5 * time.Second, FillTimeout: time.Minute}
	start := time.Unix(1000, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	members := []shard.Member{member("a", shard.Alive, start), member("b", shard.Alive, start), member("c", shard.Alive, start)}
	m := maptest.Pair(t, "a", "b", "c")
	for i := range m.Shards { // a is to be replaced by the others, which are newer
		m.Shards[i].Home = shard.Home{Pins: []shard.NodeID{"b", "c"}, Replicas: 2}
	}
	loaded := func(b, c bool) []Report {
		return []Report{
			{Node: "a", Shards: []ShardReport{{Shard: 1, Ready: true}, {Shard: 2, Ready: true}}},
			{Node: "b", Shards: []ShardReport{{Shard: 1, Ready: b}, {Shard: 2, Ready: b}}},
			{Node: "c", Shards: []ShardReport{{Shard: 1, Ready: c}, {Shard: 2, Ready: c}}},
		}
	}
	h := Observations{}.Observe(m, members, nil, at(0))
	if d := r.Decide(m, members, h, at(0)); len(d.Moves) > 0 || !d.Again.Equal(at(5)) {
		t.Errorf("before any report: %+v", d)
	}
	h = h.Observe(m, members, h.reports, at(6))
	h.reports = h.reports.Add(at(6), 0, loaded(true, false))
	if d := r.Decide(m, members, h, at(6)); len(d.Moves) > 0 || d.Again.IsZero() {
		t.Errorf("while one newcomer loads: %+v", d)
	}
	h.reports = h.reports.Add(at(7), 0, loaded(true, true))
	if d := r.Decide(m, members, h, at(7)); len(d.Moves) != 2 {
		t.Errorf("after all newcomers have loaded: %+v", d)
	}
}

// A flapping node is given no shards for a time that grows with its returns.
func TestHoldTimeOfAFlappingNode(t *testing.T) {
	const settle = 2 * time.Second
	for returns, want := range map[int]time.Duration{
		0: settle, 1: settle, 2: holdFirst, 3: 2 * holdFirst, 4: 4 * holdFirst, 6: 16 * holdFirst, 7: holdMost, 100: holdMost,
	} {
		if got := (presence{returns: returns}).hold(settle); got != want {
			t.Errorf("after %d returns: %v, want %v", returns, got, want)
		}
	}
	for _, returns := range []int{2, 100} {
		if got := (presence{returns: returns}).hold(time.Hour); got != time.Hour {
			t.Errorf("after %d returns, with a longer settle time: %v", returns, got)
		}
	}
	start := time.Unix(1000, 0)
	for what, c := range map[string]struct {
		states  []shard.State
		lives   time.Duration // between them
		returns int
	}{
		"one that stays":           {[]shard.State{shard.Alive, shard.Alive}, time.Second, 0},
		"one return":               {[]shard.State{shard.Alive, shard.Dead, shard.Alive}, time.Second, 1},
		"two":                      {[]shard.State{shard.Alive, shard.Dead, shard.Alive, shard.Dead, shard.Alive}, time.Second, 2},
		"suspected between":        {[]shard.State{shard.Alive, shard.Suspect, shard.Dead, shard.Suspect, shard.Alive}, time.Second, 1},
		"suspected only":           {[]shard.State{shard.Alive, shard.Suspect, shard.Alive, shard.Suspect, shard.Alive}, time.Second, 0},
		"calm, but just not":       {[]shard.State{shard.Alive, shard.Dead, shard.Alive, shard.Dead, shard.Alive}, calmAfter - 1, 2},
		"calm":                     {[]shard.State{shard.Alive, shard.Dead, shard.Alive, shard.Dead, shard.Alive}, calmAfter, 1},
		"one that leaves":          {[]shard.State{shard.Alive, shard.Dead, shard.Alive, shard.Left, shard.Alive}, time.Second, 0},
		"dead for long in between": {[]shard.State{shard.Dead, shard.Alive, shard.Dead, shard.Alive}, time.Second, 2},
	} {
		var h Observations
		for i, s := range c.states {
			h.presence = h.presences([]shard.Member{member("a", s, start.Add(time.Duration(i)*c.lives))})
		}
		if got := h.presence["a"].returns; got != c.returns {
			t.Errorf("%s: %d returns, want %d", what, got, c.returns)
		}
	}
	// A node's time alive counts from its last state change in gossip.
	p := presence{state: shard.Alive, since: start}.observe(member("a", shard.Alive, start.Add(calmAfter)))
	p.returns = 1
	if p = p.observe(member("a", shard.Dead, start.Add(calmAfter+time.Second))); p.returns != 1 {
		t.Error("a node that has just returned counts as calm")
	}
	if got := new(Observations).presences(nil); len(got) != 0 {
		t.Errorf("presence without members: %v", got)
	}
}

// The last copy that is known to be loaded is not removed. The copy of a node that has
// not reported yet, or is dead, is not known to be loaded.
func TestTheLastLoadedCopyIsKnownByReports(t *testing.T) {
	now := time.Unix(1000, 0)
	copies := func(ready bool) []ShardReport { return []ShardReport{{Shard: 7, Ready: ready}} }
	for name, test := range map[string]struct {
		goes, stays Report // without a node: it has not reported
		dead        shard.NodeID
		want        bool
	}{
		"both have loaded":              {goes: Report{Node: "goes", Shards: copies(true)}, stays: Report{Node: "stays", Shards: copies(true)}},
		"the one that stays loads":      {goes: Report{Node: "goes", Shards: copies(true)}, stays: Report{Node: "stays", Shards: copies(false)}, want: true},
		"the one that stays is unheard": {goes: Report{Node: "goes", Shards: copies(true)}, stays: Report{Node: "other"}, want: true},
		"the one that stays is dead":    {goes: Report{Node: "goes", Shards: copies(true)}, stays: Report{Node: "stays", Shards: copies(true)}, dead: "stays", want: true},
		"the one that goes loads":       {goes: Report{Node: "goes", Shards: copies(false)}, stays: Report{Node: "stays", Shards: copies(false)}},
		"the one that goes is unheard":  {goes: Report{Node: "other"}, stays: Report{Node: "stays", Shards: copies(false)}},
		"the one that goes is dead":     {goes: Report{Node: "goes", Shards: copies(true)}, stays: Report{Node: "stays", Shards: copies(false)}, dead: "goes"},
		"neither has reported":          {goes: Report{Node: "other"}, stays: Report{Node: "another"}},
	} {
		states := stateOf([]shard.Member{member("goes", shard.Alive, now), member("stays", shard.Alive, now)})
		if m, ok := states[test.dead]; ok {
			m.State = shard.Dead
			states[test.dead] = m
		}
		reports := (*Reports)(nil).Add(now, 0, []Report{test.goes, test.stays})
		s := &shard.Shard{ID: 7, Replicas: []shard.NodeID{"goes", "stays"}}
		if got := takesLastWarm(s, []shard.NodeID{"goes"}, states, reports); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// The leader's records: a fill ends in time even if its newcomer never reports that it has
// loaded; a shard of a split rests; a node that left is not recorded as buried.
func TestRecordsOfALeader(t *testing.T) {
	now := time.Unix(1000, 0)
	r := Rules{PromoteDelay: 5 * time.Second, FillTimeout: time.Minute}
	loads := Observations{reports: (*Reports)(nil).Add(now, 0, []Report{{Node: "b", Shards: []ShardReport{{Shard: 1}}}})}
	f := fill{donor: "a", newcomers: []shard.NodeID{"b"}, since: now}
	for after, want := range map[time.Duration]time.Duration{
		time.Second: r.PromoteDelay, r.PromoteDelay: r.PromoteDelay + coldCheck, r.FillTimeout - 1: r.FillTimeout - 1 + coldCheck, r.FillTimeout: r.PromoteDelay,
	} {
		if got := r.filledBy(1, f, loads, now.Add(after)).Sub(now); got != want {
			t.Errorf("after %v: filled after %v, want %v", after, got, want)
		}
	}

	m := maptest.Pair(t, "a", "b")
	before, split := m.Shards[0].ID, m.Shards[1].ID
	seen := Observations{nextID: split, changed: map[shard.ID]time.Time{}}.Observe(m, nil, nil, now)
	if _, rests := seen.changed[before]; rests || !seen.changed[split].Equal(now) {
		t.Errorf("shard %d is old, shard %d is new; recorded changes: %v", before, split, seen.changed)
	}

	for state, want := range map[shard.State]bool{shard.Left: false, shard.Dead: true, shard.Alive: false} {
		members := []shard.Member{member("a", shard.Alive, now), member("b", state, now)}
		next := Observations{}.Record(m, Decision{Moves: []shard.Move{{Shard: before, Replicas: []shard.NodeID{"a"}}}}, members, now)
		if _, buried := next.buried[before]; buried != want {
			t.Errorf("a shard is removed from a node in state %v: buried %v", state, buried)
		}
	}

	members := []shard.Member{member("a", shard.Alive, now), member("b", shard.Dead, now), member("c", shard.Alive, now)}
	if mine, others := Owed(m, members, "a"), Owed(m, members, "c"); mine != 0 || others != len(m.Shards) {
		t.Errorf("%d shards are owed to the node that has all, and %d to another node", mine, others)
	}
}

// A node that is drained in the map, by an operator, hands over its shards at once,
// like a node that drains by gossip.
func TestANodeDrainedInTheMapGivesItsShardsAway(t *testing.T) {
	r := Rules{Settle: 2 * time.Second, DeadGrace: 5 * time.Second, MoveInterval: 30 * time.Second, PromoteDelay: 5 * time.Second}
	now := time.Unix(1000, 0)
	m := maptest.Pair(t, "a", "b")
	members := []shard.Member{member("a", shard.Alive, now.Add(-time.Hour)), member("b", shard.Alive, now.Add(-time.Hour)), member("c", shard.Alive, now.Add(-time.Hour))}
	rested := Observations{changed: map[shard.ID]time.Time{1: now.Add(-time.Second), 2: now.Add(-time.Second)}}
	drained := *m
	drained.Drained = []shard.NodeID{"a"}
	byGossip := slices.Clone(members)
	byGossip[0].Draining = true
	want := r.Decide(m, byGossip, rested, now)
	got := r.Decide(&drained, members, rested, now)
	if len(want.Moves) == 0 || !slices.EqualFunc(got.Moves, want.Moves, func(a, b shard.Move) bool {
		return a.Shard == b.Shard && slices.Equal(a.Replicas, b.Replicas)
	}) {
		t.Errorf("got %v, want %v", got.Moves, want.Moves)
	}
}

// An owner of all shards that is drained or dies passes them to an eligible node with a
// copy, if there is one: not to a node that does not answer the leader, is suspect, or is
// held down. A suspect owner keeps them.
func TestFewOwnersAreNodesThatMayBeGivenShards(t *testing.T) {
	r := Rules{DeadGrace: 5 * time.Second, FillTimeout: time.Minute}
	start := time.Unix(1000, 0)
	now := start.Add(time.Hour)
	names := []shard.NodeID{"a", "b", "c"}
	for _, x := range []struct {
		name         string
		owner, other func(*shard.Member)
		unheard      bool
		stays        bool
	}{
		{name: "drained, another is not heard of", owner: func(n *shard.Member) { n.Draining = true }, unheard: true},
		{name: "dead, another is suspect", owner: func(n *shard.Member) { n.State, n.Since = shard.Dead, start }, other: func(n *shard.Member) { n.State = shard.Suspect }},
		{name: "suspect", owner: func(n *shard.Member) { n.State = shard.Suspect }, stays: true},
	} {
		for _, owner := range names {
			for _, other := range names {
				if owner == other {
					continue
				}
				var members []shard.Member
				var reports []Report
				f := shard.Found{ClusterID: "c", Spec: maptest.Spec(6, 3), Cuts: []string{"1", "2", "3", "4", "5"}, Finalized: shard.Level}
				f.Spec.Owners = 1
				loaded := make([]ShardReport, 6)
				for i := range loaded {
					loaded[i] = ShardReport{Shard: shard.ID(i + 1), Ready: true}
					f.Replicas = append(f.Replicas, append([]shard.NodeID{owner}, removed(names, []shard.NodeID{owner})...)) // the owner first
				}
				for _, n := range names {
					x := member(n, shard.Alive, start)
					members = append(members, x)
				}
				for i := range members {
					switch n := &members[i]; {
					case n.Name == owner:
						x.owner(n)
					case n.Name == other && x.other != nil:
						x.other(n)
					}
					if members[i].Name != other || !x.unheard {
						reports = append(reports, Report{Node: members[i].Name, Shards: loaded})
					}
				}
				m, err := shard.Apply(nil, shard.Command{Change: f})
				if err != nil {
					t.Fatal(err)
				}
				var h Observations
				h.reports = h.reports.Add(now, 0, reports)
				moves := r.Decide(m, members, h, now).Moves
				if want := removed(names, []shard.NodeID{owner, other})[0]; x.stays {
					if len(moves) > 0 {
						t.Errorf("%s: %s should keep all shards: %+v", x.name, owner, moves)
					}
				} else if len(moves) != 6 || slices.ContainsFunc(moves, func(mv shard.Move) bool { return mv.Replicas[0] != want }) {
					t.Errorf("%s: shards of %s should move to the node other than %s: %+v", x.name, owner, other, moves)
				}
			}
		}
	}
}
