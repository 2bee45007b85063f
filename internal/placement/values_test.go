package placement

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/bits"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

func testMap(t testing.TB, replicas ...shard.NodeID) *shard.Map {
	t.Helper()
	m, err := shard.Apply(nil, shard.Command{Change: shard.Found{
		ClusterID: "c", EtcdClusterID: 1, Spec: shard.Spec{Ranges: []kv.Range{{}}, Shards: 2, Replicas: 2},
		Cuts: []string{"m"}, Replicas: [][]shard.NodeID{replicas, replicas},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

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
	m := testMap(t, "a", "b")
	for _, mv := range planner.Plan(m, base) { // the hash may want the other order
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
	buried := History{buried: map[shard.ID]time.Time{1: at(0), 2: at(0)}, changed: map[shard.ID]time.Time{1: at(0), 2: at(0)}}
	for _, tc := range []struct {
		name    string
		members []shard.Member
		h       History
		now     int
		moves   int
		again   time.Time
	}{
		{"at rest", base, History{}, 0, 0, time.Time{}},
		{"suspect", with(member("a", shard.Suspect, at(-60))), History{}, 0, 0, time.Time{}},
		{"dead, in grace", with(member("a", shard.Dead, at(0))), History{}, 4, 0, at(5)},
		{"dead for long", with(member("a", shard.Dead, at(0))), History{}, 5, 2, time.Time{}},
		{"dead again", with(member("a", shard.Dead, at(5))), buried, 12, 0, at(30)},
		{"dead again, later", with(member("a", shard.Dead, at(5))), buried, 30, 2, time.Time{}},
		{"all dead, no interval", with(member("a", shard.Dead, at(5)), member("b", shard.Dead, at(5)), c), buried, 12, 2, time.Time{}},
		{"left", with(member("a", shard.Left, at(0))), buried, 1, 2, time.Time{}},
		{"not seen, in grace", base[1:], History{missing: map[shard.NodeID]time.Time{"a": at(0)}}, 4, 0, at(5)},
		{"not seen for long", base[1:], History{missing: map[shard.NodeID]time.Time{"a": at(0)}}, 5, 2, time.Time{}},
		{"drains, rested", with(drain(base[0])), History{}, 0, 2, time.Time{}},
		{"drains, just moved", with(drain(base[0])), buried, 1, 0, at(5)},
		{"drains, newcomer", with(drain(base[0]), c), buried, 1, 2, time.Time{}},
		{"newcomer settles", with(member("c", shard.Alive, at(0))), History{}, 1, 0, at(2)},
		{"suspect newcomer", with(member("c", shard.Suspect, at(0))), History{}, 60, 0, time.Time{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := r.Decide(m, tc.members, tc.h, at(tc.now))
			if len(d.Moves) != tc.moves || !d.Again.Equal(tc.again) {
				t.Errorf("%d moves %+v, again %v; want %d, %v", len(d.Moves), d.Moves, d.Again.Sub(start), tc.moves, tc.again.Sub(start))
			}
		})
	}

	h := History{}.Notice(m, base[1:], at(0)).Notice(m, base[1:], at(3))
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

// Newcomers load a few at a time, those of shards in danger first; what is taken
// from nodes that are gone or drain does not wait for that.
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
	f, err := planner.Place(shard.Found{ClusterID: "c", Spec: shard.Spec{Ranges: []kv.Range{{}}, Shards: 64, Replicas: 2}, Cuts: cuts}, members[:7])
	if err != nil {
		t.Fatal(err)
	}
	m, err := shard.Apply(nil, shard.Command{Change: f})
	if err != nil {
		t.Fatal(err)
	}
	wanted := len(planner.Plan(m, members))
	members[0].Draining = true

	var h History
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
				t.Errorf("%d newcomers from or to %s at a time", c, n)
			}
		}
		if fills > r.MaxFills {
			t.Errorf("%d newcomers at a time", fills)
		}
		h = h.Record(m, d, members, now)
		all, moves = all+fills, moves+len(d.Moves)
		if m, err = shard.Apply(m, shard.Command{IfVersion: m.Version, Change: shard.Assign{Moves: d.Moves}}); err != nil {
			t.Fatal(err)
		}
		if now.Equal(start) {
			for _, s := range m.Shards {
				if slices.Contains(s.Replicas, "n0") {
					t.Errorf("shard %d waits on the draining node: %v", s.ID, s.Replicas)
				}
			}
		}
	}
	if left := planner.Plan(m, members); len(left) > 0 || all < wanted {
		t.Errorf("%d newcomers in all, and %d moves are left", all, len(left))
	}
	if took := now.Sub(start); took < time.Duration(all/r.MaxFills-1)*r.PromoteDelay {
		t.Errorf("%d newcomers in %v", all, took)
	}
}

// What a leader does each time it looks: at rest, and after a third of the nodes has
// died, of which a few newcomers at a time take the place.
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
	f, err := planner.Place(shard.Found{ClusterID: "c", Spec: shard.Spec{Ranges: []kv.Range{{}}, Shards: shards, Replicas: 3}, Cuts: cuts}, members)
	if err != nil {
		b.Fatal(err)
	}
	m, err := shard.Apply(nil, shard.Command{Change: f})
	if err != nil {
		b.Fatal(err)
	}
	r := Rules{PromoteDelay: 5 * time.Second, FillTimeout: time.Minute, MaxFills: 256, MaxNodeFills: 8, Planner: new(planner.Planner)}
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
			h := History{}.Notice(m, members, now)
			for b.Loop() {
				r.Decide(m, members, h, now)
			}
		})
	}
}

// What a shard lacks of living replicas waits for nothing but the load on donor and
// newcomer, and that is over as soon as the newcomer says so.
func TestRulesRestoreAtOnce(t *testing.T) {
	r := Rules{PromoteDelay: 5 * time.Second, FillTimeout: time.Minute, MaxNodeFills: 1}
	start := time.Unix(1000, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	members := []shard.Member{member("a", shard.Alive, start), member("b", shard.Alive, start)}
	m := testMap(t, "a")
	h := History{changed: map[shard.ID]time.Time{1: start, 2: start}}

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
		{"told before it was given", 1, true, 3, false},
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

// A node dies and returns sixty times: it gets its shards back ever more seldom, and
// each time when it lives for long between two deaths, or says goodbye.
func TestFlappingNodeIsHeldDown(t *testing.T) {
	for _, tc := range []struct {
		name        string
		up, down    time.Duration
		leave       bool // it says goodbye
		least, most int  // moves to it
	}{
		{"a minute", 50 * time.Second, 10 * time.Second, false, 1, 4},
		{"ten seconds", 5 * time.Second, 10 * time.Second, false, 0, 4},
		{"an hour", time.Hour, time.Minute, false, 55, 60},
		{"restarts", 50 * time.Second, 10 * time.Second, true, 55, 60},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := testMap(t, "a", "b")
			r := Rules{Settle: 2 * time.Second, DeadGrace: 5 * time.Second, MoveInterval: time.Second, PromoteDelay: time.Second, FillTimeout: time.Minute}
			start := time.Unix(1000, 0)
			now, began := start, start
			others := []shard.Member{member("a", shard.Alive, start.Add(-time.Hour)), member("c", shard.Alive, start.Add(-time.Hour))}
			var h History
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
						h = h.Notice(m, members, now)
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
				t.Errorf("in %d returns it was given a shard %d times, want %d to %d", cycles, given, tc.least, tc.most)
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
		{"all live", testMap(t, "a", "b"), alive("a", "b", "c"), "c", 0},
		{"one is missing in the map", testMap(t, "a"), alive("a", "b"), "b", 2},
		{"it is there", testMap(t, "a", "b"), alive("a", "b"), "b", 0},
		{"one has left", testMap(t, "a", "b"), left, "c", 2},
		{"one drains", testMap(t, "a", "b"), draining, "c", 2},
		{"nobody else is seen yet", testMap(t, "a", "b"), alive("c"), "c", 0},
		{"the others are not seen, and are too few", testMap(t, "a"), alive("b"), "b", 2},
		{"it is drained", drained(testMap(t, "a"), "b"), alive("a", "b"), "b", 0},
	} {
		if got := Owed(tc.m, tc.members, tc.self); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}

// A newcomer that says it is loading does not become owner, and nothing else of its
// shard moves, but not for ever.
func TestRulesWaitForWhatLoads(t *testing.T) {
	r := Rules{PromoteDelay: 5 * time.Second, FillTimeout: time.Minute}
	start := time.Unix(1000, 0)
	members := []shard.Member{member("a", shard.Alive, start), member("b", shard.Alive, start)}
	m := testMap(t, "a")
	home := shard.Rehome{Homes: []shard.ShardHome{{Shard: 1, Home: shard.Home{Pins: []shard.NodeID{"b", "a"}}}, {Shard: 2, Home: shard.Home{Pins: []shard.NodeID{"a", "b"}}}}}
	apply := func(c shard.Change) {
		t.Helper()
		var err error
		if m, err = shard.Apply(m, shard.Command{IfVersion: m.Version, Change: c}); err != nil {
			t.Fatal(err)
		}
	}
	apply(home)
	var h History
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

	// A node that drains waits for its heir, and for nobody else.
	draining := []shard.Member{members[0], members[1], member("c", shard.Alive, start)}
	draining[0].Draining = true
	three := testMap(t, "a", "b", "c")
	three.Spec.Replicas = 3
	for _, loading := range []shard.NodeID{"b", "c"} {
		now := start.Add(20 * time.Second)
		g := History{changed: map[shard.ID]time.Time{1: start, 2: start}}
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
				t.Errorf("%s loads, and inherits shard %d", loading, mv.Shard)
			}
		}
		heirs := 0
		for _, mv := range planner.Plan(three, draining) {
			if mv.Replicas[0] != loading {
				heirs++
			}
		}
		if len(d.Moves) != heirs {
			t.Errorf("%s loads: %d moves, want %d", loading, len(d.Moves), heirs)
		}
	}

	// Two that are to be one wait for the same.
	join, err := planner.Together(m, 2, 1)
	if err != nil {
		t.Fatal(err)
	}
	apply(join)
	report(start.Add(20*time.Second), false)
	if ready, again := r.Merges(m, h, start.Add(20*time.Second)); len(ready) > 0 || again.IsZero() {
		t.Errorf("merges what loads: %+v, again %v", ready, again)
	}
	report(start.Add(21*time.Second), true)
	if ready, _ := r.Merges(m, h, start.Add(21*time.Second)); len(ready) != 1 {
		t.Errorf("does not merge: %+v", ready)
	}
}

// A newcomer from which its shard was taken again, or whose shard is gone, is no
// longer waited for.
func TestNewcomersThatAreNoneAreForgotten(t *testing.T) {
	r := Rules{PromoteDelay: 5 * time.Second, FillTimeout: 10 * time.Minute, MaxFills: 2, MaxNodeFills: 2}
	start := time.Unix(1000, 0)
	m := testMap(t, "a", "b")
	members := []shard.Member{member("a", shard.Alive, start), member("b", shard.Alive, start), member("c", shard.Alive, start)}
	apply := func(c shard.Change) {
		t.Helper()
		var err error
		if m, err = shard.Apply(m, shard.Command{IfVersion: m.Version, Change: c}); err != nil {
			t.Fatal(err)
		}
	}
	three := shard.Assign{Moves: []shard.Move{{Shard: 1, Replicas: []shard.NodeID{"a", "b", "c"}}, {Shard: 2, Replicas: []shard.NodeID{"a", "b", "c"}}}}
	h := History{}.Notice(m, members, start).Record(m, Decision{Moves: three.Moves}, members, start)
	apply(three)
	now := start.Add(time.Minute)
	h = h.Notice(m, members, now)
	h.reports = h.reports.Add(now, 0, []Report{{Node: "c"}})
	if got := r.filling(h, now); !slices.Equal(got, []shard.NodeID{"c"}) {
		t.Errorf("loads: %v", got)
	}
	apply(shard.Assign{Moves: []shard.Move{{Shard: 1, Replicas: []shard.NodeID{"a", "b"}}}})
	apply(shard.Split{Shard: 2, At: []string{"x"}})
	if got := r.filling(h.Notice(m, members, now), now); len(got) > 0 {
		t.Errorf("waits for %v", got)
	}
}

// Whatever the reason of a move is, the only node that has all of a shard keeps it
// until another one has loaded.
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
		{"it drains, nobody is to come", []shard.NodeID{"a", "b"}, []shard.NodeID{"b"}, []shard.Member{draining, b}},
		{"another one has died", []shard.NodeID{"a", "d", "b"}, []shard.NodeID{"b", "c"}, []shard.Member{a, b, c, dead}},
		{"another one has left", []shard.NodeID{"a", "d", "b"}, []shard.NodeID{"b", "c"}, []shard.Member{a, b, c, member("d", shard.Left, start)}},
		{"it is not wanted", []shard.NodeID{"a", "b"}, []shard.NodeID{"b", "c"}, []shard.Member{a, b, c, d}},
	} {
		m := testMap(t, tc.replicas...)
		for i := range m.Shards {
			m.Shards[i].Home = shard.Home{Pins: tc.pins, Replicas: len(tc.pins)}
		}
		var h History
		for _, ready := range []bool{false, true} {
			copies := []ShardReport{{Shard: 1, Ready: true}, {Shard: 2, Ready: true}}
			others := []ShardReport{{Shard: 1, Ready: ready}, {Shard: 2, Ready: ready}}
			h.reports = h.reports.Add(now, 0, []Report{{Node: "a", Shards: copies}, {Node: "b", Shards: others}, {Node: "c"}, {Node: "d"}})
			moves := r.Decide(m, tc.members, h, now).Moves
			taken := slices.ContainsFunc(moves, func(mv shard.Move) bool { return !slices.Contains(mv.Replicas, "a") })
			if taken != ready {
				t.Errorf("%s: the other copy is loaded: %v, and the moves are %+v", tc.name, ready, moves)
			}
		}
	}
}

// A node that gossips and does not answer the leader, because its certificate has
// run out or a firewall is between them, is given nothing: neither a copy nor what
// it is to own, and no copy is taken from another node for its sake.
func TestNodesThatAreNotHeardOfGetNothing(t *testing.T) {
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
		m := testMap(t, tc.replicas...)
		for i := range m.Shards {
			m.Shards[i].Home = shard.Home{Pins: tc.pins, Replicas: len(tc.pins)}
		}
		members := []shard.Member{tc.a, member("b", shard.Alive, start), member("x", shard.Alive, start)}
		var h History
		h.reports = h.reports.Add(now, 0, []Report{{Node: "a", Shards: loaded}, {Node: "b", Shards: loaded}})
		for _, mv := range r.Decide(m, members, h, now).Moves {
			if mv.Replicas[0] == "x" || slices.Contains(removed(mv.Replicas, tc.replicas), "x") || !slices.Contains(mv.Replicas, "a") {
				t.Errorf("%s: %+v", tc.name, mv)
			}
		}
		h.reports = h.reports.Add(now, 0, []Report{{Node: "x", Shards: loaded}})
		if d := r.Decide(m, members, h, now); len(d.Moves) == 0 {
			t.Errorf("%s: nothing is done when it is heard of", tc.name)
		}
	}
}

// A leader that is new does not know what the one before has moved, and waits as
// that one would.
func TestANewLeaderWaitsForWhatLoads(t *testing.T) {
	r := Rules{PromoteDelay: 5 * time.Second, FillTimeout: time.Minute}
	start := time.Unix(1000, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	members := []shard.Member{member("a", shard.Alive, start), member("b", shard.Alive, start), member("c", shard.Alive, start)}
	m := testMap(t, "a", "b", "c")
	for i := range m.Shards { // a is about to go, and the others have come before
		m.Shards[i].Home = shard.Home{Pins: []shard.NodeID{"b", "c"}, Replicas: 2}
	}
	loaded := func(b, c bool) []Report {
		return []Report{
			{Node: "a", Shards: []ShardReport{{Shard: 1, Ready: true}, {Shard: 2, Ready: true}}},
			{Node: "b", Shards: []ShardReport{{Shard: 1, Ready: b}, {Shard: 2, Ready: b}}},
			{Node: "c", Shards: []ShardReport{{Shard: 1, Ready: c}, {Shard: 2, Ready: c}}},
		}
	}
	h := History{}.Notice(m, members, at(0))
	if d := r.Decide(m, members, h, at(0)); len(d.Moves) > 0 || !d.Again.Equal(at(5)) {
		t.Errorf("before anybody has told: %+v", d)
	}
	h = h.Notice(m, members, at(6))
	h.reports = h.reports.Add(at(6), 0, loaded(true, false))
	if d := r.Decide(m, members, h, at(6)); len(d.Moves) > 0 || d.Again.IsZero() {
		t.Errorf("while one loads: %+v", d)
	}
	h.reports = h.reports.Add(at(7), 0, loaded(true, true))
	if d := r.Decide(m, members, h, at(7)); len(d.Moves) != 2 {
		t.Errorf("when all have loaded: %+v", d)
	}
}

func TestReports(t *testing.T) {
	start := time.Unix(1000, 0)
	var r *Reports
	if len(r.Loads()) > 0 || r.loading(1, []shard.NodeID{"a"}) {
		t.Error("no reports say something")
	}
	r = r.Add(start, 0, []Report{
		{Node: "a", Shards: []ShardReport{{Shard: 1, Ready: true, Bytes: 10, Events: 100, Watches: 3}}},
		{Node: "b", Shards: []ShardReport{{Shard: 1, Bytes: 20, Events: 7, Watches: 4}, {Shard: 1, Watches: 2}}},
	})
	before := r
	r = r.Add(start.Add(10*time.Second), 0, []Report{{Node: "a", Shards: []ShardReport{{Shard: 1, Ready: true, Bytes: 11, Events: 150, Watches: 3}}}})
	if got, want := r.Loads()[1], (Load{Bytes: 20, Events: 5, Watches: 9}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if before.Loads()[1].Events != 0 {
		t.Error("Add changed what it was given")
	}
	if r.loading(1, []shard.NodeID{"a", "unknown"}) || !r.loading(1, []shard.NodeID{"b"}) || !r.loading(2, []shard.NodeID{"a"}) {
		t.Error("who loads is not known")
	}
	r = r.Add(start.Add(20*time.Second), 0, []Report{{Node: "a", Shards: []ShardReport{{Shard: 1, Ready: true, Events: 5}}}})
	if got := r.Loads()[1].Events; got != 0 {
		t.Errorf("a copy that began anew has %v events per second", got)
	}
	if r = r.Add(start.Add(2*reportLife), 0, nil); len(r.Loads()) > 0 {
		t.Errorf("reports live for ever: %+v", r.Loads())
	}
}

// A node on which something loads is asked once a second. What comes to it in bursts
// is no more for that.
func TestBurstsAreNotTakenForTheRate(t *testing.T) {
	var r *Reports
	events := int64(0)
	for second := range 120 {
		if second%5 == 0 {
			events += 50
		}
		r = r.Add(time.Unix(1000+int64(second), 0), 0, []Report{{Node: "a", Shards: []ShardReport{{Shard: 1, Ready: true, Events: events}}}})
		if rate := r.Loads()[1].Events; second > 10 && (rate < 5 || rate > 15) {
			t.Fatalf("after %d seconds: %v events per second of 10", second, rate)
		}
	}
}

// A load goes up, and down again: what is split, what gets replicas, and when it is
// undone.
func TestBalance(t *testing.T) {
	b := Balance{
		Split: true, SplitBytes: 1000, SplitEvents: 100, SplitWatches: 1000, MaxShards: 4, Merge: true, ReplicaWatches: 100, MaxExtraReplicas: 3,
		Patience: time.Minute, MergePatience: 5 * time.Minute, MinAge: 10 * time.Minute,
	}
	m := testMap(t, "a", "b") // 2 shards, 2 replicas, 2 wanted of each
	start := time.Unix(1000, 0)
	var tr Trend
	look := func(after time.Duration, loads map[shard.ID]Load) Action {
		t.Helper()
		var a Action
		a, tr = b.Decide(m, loads, tr, start.Add(after))
		return a
	}
	apply := func(c shard.Change) {
		t.Helper()
		var err error
		if m, err = shard.Apply(m, shard.Command{IfVersion: m.Version, Change: c}); err != nil {
			t.Fatal(err)
		}
	}
	nothing := func(name string, a Action) {
		t.Helper()
		if len(a.Splits)+len(a.Homes) > 0 {
			t.Errorf("%s: %+v", name, a)
		}
	}
	var did figures
	waits := func(want Waiting) {
		t.Helper()
		if got := tr.waiting(m); got != want {
			t.Errorf("waiting: %+v, want %+v", got, want)
		}
	}
	hot := map[shard.ID]Load{1: {Events: 150}, 2: {Bytes: 10}}
	nothing("a peak", look(0, hot))
	waits(Waiting{Split: 1})
	nothing("it is over", look(30*time.Second, map[shard.ID]Load{1: {Events: 50}, 2: {}}))
	nothing("another", look(40*time.Second, hot))
	if a := look(100*time.Second, hot); !slices.Equal(a.Splits, []Cut{{Shard: 1}}) || len(a.Homes) > 0 {
		t.Fatalf("it lasts: %+v", a)
	}
	tr = tr.Uncuttable(1, start.Add(100*time.Second))
	nothing("it cannot be cut", look(110*time.Second, hot))
	waits(Waiting{Split: 1})
	if a := look(13*time.Minute, hot); len(a.Splits) != 1 {
		t.Errorf("and is not tried again: %+v", a)
	}
	apply(shard.Split{Shard: 1, At: []string{"f"}, Stay: true}) // 3, 4, 2
	idle := map[shard.ID]Load{2: {Bytes: 100}, 3: {Bytes: 50, Events: 5}, 4: {Bytes: 90, Events: 5}}
	nothing("what was split rests", look(14*time.Minute, idle))
	nothing("it is young", look(20*time.Minute, idle))
	waits(Waiting{Merge: 1})
	a := look(25*time.Minute, idle)
	if len(a.Homes) != 1 || a.Homes[0].Shard != 3 || a.Homes[0].Home.Seat != 4 {
		t.Fatalf("two idle neighbours: %+v", a)
	}
	did.rehomed(m, a.Homes)
	apply(shard.Rehome{Homes: a.Homes})
	nothing("they join already", look(26*time.Minute, idle))
	apply(shard.Merge{Shards: []shard.ID{3, 4}, Replicas: []shard.NodeID{"a", "b"}}) // 5, 2
	for after := 27 * time.Minute; after < time.Hour; after += time.Minute {
		nothing("never below what was asked for", look(after, map[shard.ID]Load{2: {}, 5: {}}))
		waits(Waiting{})
	}

	crowd := map[shard.ID]Load{2: {Watches: 350}, 5: {}}
	nothing("a crowd", look(61*time.Minute, crowd))
	waits(Waiting{Replicas: 1})
	if a = look(62*time.Minute, crowd); len(a.Homes) != 1 || a.Homes[0].Shard != 2 || a.Homes[0].Home.Replicas != 4 {
		t.Fatalf("it stays: %+v", a)
	}
	did.rehomed(m, a.Homes)
	apply(shard.Rehome{Homes: a.Homes})
	nothing("some go", look(63*time.Minute, map[shard.ID]Load{2: {Watches: 210}, 5: {}}))
	nothing("most go", look(64*time.Minute, map[shard.ID]Load{2: {Watches: 20}, 5: {}}))
	if a = look(69*time.Minute, map[shard.ID]Load{2: {Watches: 20}, 5: {}}); len(a.Homes) != 1 || a.Homes[0].Home.Replicas != 0 {
		t.Errorf("its replicas are kept: %+v", a)
	}
	did.rehomed(m, a.Homes)
	if want := map[Deed]int64{LoadMerge: 1, LoadMoreReplicas: 1, LoadLessReplicas: 1}; !maps.Equal(did.deeds, want) {
		t.Errorf("did %v, want %v", did.deeds, want)
	}

	apply(shard.Rehome{Homes: a.Homes})
	m.Spec.Shards = 1
	b.MaxShards = 2
	nothing("no more shards", look(71*time.Minute, map[shard.ID]Load{2: {Bytes: 5000}, 5: {}}))
	nothing("for all that", look(75*time.Minute, map[shard.ID]Load{2: {Bytes: 5000}, 5: {}}))
	b = Balance{}
	nothing("switched off", look(90*time.Minute, map[shard.ID]Load{2: {Bytes: 5000}, 5: {}}))
}

// A merge takes as long as its shards take to come together. Meanwhile it counts:
// there are never fewer shards in the end than were asked for.
func TestMergesUnderWayCount(t *testing.T) {
	b := Balance{Split: true, SplitEvents: 100, MaxShards: 10, Merge: true, Patience: time.Minute, MergePatience: time.Minute}
	m := testMap(t, "a", "b")
	m.Spec.Shards = 3
	apply := func(c shard.Change) {
		t.Helper()
		var err error
		if m, err = shard.Apply(m, shard.Command{IfVersion: m.Version, Change: c}); err != nil {
			t.Fatal(err)
		}
	}
	apply(shard.Split{Shard: 1, At: []string{"c"}, Stay: true})
	apply(shard.Split{Shard: 2, At: []string{"x"}, Stay: true})
	idle := make(map[shard.ID]Load)
	for i := range m.Shards {
		idle[m.Shards[i].ID] = Load{}
	}
	var tr Trend
	begun := 0
	for now := time.Unix(1000, 0); now.Before(time.Unix(2000, 0)); now = now.Add(reportEvery) {
		var a Action
		if a, tr = b.Decide(m, idle, tr, now); len(a.Homes) > 0 {
			begun += len(a.Homes)
			apply(shard.Rehome{Homes: a.Homes})
		}
	}
	if begun != 1 {
		t.Errorf("%d merges of %d shards, and %d are asked for", begun, len(m.Shards), m.Spec.Shards)
	}
}

// A split parts watches of some keys. Those of whole shards it only doubles: they
// are split for once, and again when there are twice as many.
func TestWatchesOfWholeShardsAreNotSplitForEver(t *testing.T) { splitWholeShards(t, false) }

// Each of twenty leaders looks at the load for some minutes.
func TestWatchesOfWholeShardsAreNotSplitByEachLeader(t *testing.T) { splitWholeShards(t, true) }

func splitWholeShards(t *testing.T, leaders bool) {
	t.Helper()
	const keys = 1024
	b := Balance{Split: true, SplitWatches: 1000, MaxShards: 1000, Patience: time.Minute}
	bounds := func(s *shard.Shard) (from, to int) {
		to = keys
		_, _ = fmt.Sscanf(s.Range.Start, "%d", &from)
		_, _ = fmt.Sscanf(s.Range.End, "%d", &to)
		return from, to
	}
	for name, c := range map[string]struct {
		watches func(from, to, look int) int
		shards  int
	}{
		"of keys":                 {func(from, to, _ int) int { return 7 * (to - from) }, 8},
		"of keys in a corner":     {func(from, to, _ int) int { return 20 * max(0, min(to, 100)-from) }, 6},
		"of everything":           {func(int, int, int) int { return 1500 }, 2},
		"of everything, and many": {func(int, int, int) int { return 90_000 }, 2},
		"ever more of everything": {func(_, _, look int) int { return 1500 + 10*look }, 8},
	} {
		m, err := shard.Apply(nil, shard.Command{Change: shard.Found{
			ClusterID: "c", EtcdClusterID: 1, Spec: shard.Spec{Ranges: []kv.Range{{}}, Shards: 1, Replicas: 1}, Replicas: [][]shard.NodeID{{"a"}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		var tr Trend
		now := time.Unix(1000, 0)
		for look := range 600 {
			if leaders && look%29 == 0 {
				tr = Trend{} // another node leads
			}
			loads := make(map[shard.ID]Load)
			for i := range m.Shards {
				from, to := bounds(&m.Shards[i])
				loads[m.Shards[i].ID] = Load{Watches: c.watches(from, to, look)}
			}
			var a Action
			a, tr = b.Decide(m, loads, tr, now)
			if len(a.Homes) > 0 {
				if m, err = shard.Apply(m, shard.Command{IfVersion: m.Version, Change: shard.Rehome{Homes: a.Homes}}); err != nil {
					t.Fatal(err)
				}
			}
			for _, c := range a.Splits {
				s, _ := m.Shard(c.Shard)
				from, to := bounds(&s)
				split := shard.Split{Shard: c.Shard, At: []string{fmt.Sprintf("%04d", (from+to)/2)}, Stay: true, Watches: c.Watches}
				if m, err = shard.Apply(m, shard.Command{IfVersion: m.Version, Change: split}); err != nil {
					t.Fatal(err)
				}
			}
			now = now.Add(reportEvery)
		}
		if len(m.Shards) != c.shards {
			t.Errorf("%s: %d shards, want %d", name, len(m.Shards), c.shards)
		}
	}
}

// Three founders begin with three shards; three more nodes have none to own. A load that
// is spread over the keys splits shards, until all six nodes own equally many.
func TestLoadGivesEveryNodeShardsToOwn(t *testing.T) {
	const keys, events, founders, nodes = 3 << 10, 40_000, 3, 6
	key := func(at int) string { return fmt.Sprintf("%04d", at) }
	var members []shard.Member
	for i := range nodes {
		members = append(members, member(shard.NodeID(fmt.Sprintf("n%d", i+1)), shard.Alive, time.Unix(0, 0)))
	}
	found, err := planner.Place(shard.Found{
		ClusterID: "c", EtcdClusterID: 1, Spec: shard.Spec{Ranges: []kv.Range{{}}, Shards: founders, Replicas: 3},
		Cuts: []string{key(keys / 3), key(2 * keys / 3)},
	}, members[:founders])
	if err != nil {
		t.Fatal(err)
	}
	m, err := shard.Apply(nil, shard.Command{Change: found})
	if err != nil {
		t.Fatal(err)
	}
	apply := func(c shard.Change) {
		t.Helper()
		if m, err = shard.Apply(m, shard.Command{IfVersion: m.Version, Change: c}); err != nil {
			t.Fatal(err)
		}
	}
	bounds := func(s *shard.Shard) (from, to int) {
		to = keys
		_, _ = fmt.Sscanf(s.Range.Start, "%d", &from)
		_, _ = fmt.Sscanf(s.Range.End, "%d", &to)
		return from, to
	}
	owned := func() []int {
		counts := make(map[shard.NodeID]int)
		for _, s := range m.Shards {
			counts[s.Owner()]++
		}
		var out []int
		for _, n := range members {
			out = append(out, counts[n.Name])
		}
		slices.Sort(out)
		return out
	}
	if got := owned(); !slices.Equal(got, []int{0, 0, 0, 1, 1, 1}) {
		t.Fatalf("founders and others own %v shards", got)
	}
	b, tr := DefaultBalance(), Trend{}
	for now := time.Unix(1000, 0); now.Before(time.Unix(2000, 0)); now = now.Add(reportEvery) {
		loads := make(map[shard.ID]Load)
		for i := range m.Shards {
			from, to := bounds(&m.Shards[i])
			loads[m.Shards[i].ID] = Load{Events: float64(events * (to - from) / keys)}
		}
		var a Action
		a, tr = b.Decide(m, loads, tr, now)
		for _, c := range a.Splits {
			s, _ := m.Shard(c.Shard)
			from, to := bounds(&s)
			apply(shard.Split{Shard: c.Shard, At: []string{key((from + to) / 2)}, Stay: true})
		}
		for moves := planner.Plan(m, members); len(moves) > 0; moves = planner.Plan(m, members) {
			apply(shard.Assign{Moves: moves})
		}
	}
	if got := owned(); !slices.Equal(got, []int{2, 2, 2, 2, 2, 2}) {
		t.Errorf("nodes own %v of %d shards", got, len(m.Shards))
	}
}

func TestDecideStart(t *testing.T) {
	now := time.Unix(1000, 0)
	old := now.Add(-time.Hour)
	a, b, c, d := member("a", shard.Alive, old), member("b", shard.Alive, old), member("c", shard.Alive, old), member("d", shard.Alive, old)
	edit := func(m shard.Member, f func(*shard.Member)) shard.Member { f(&m); return m }
	for _, tc := range []struct {
		name    string
		self    shard.NodeID
		members []shard.Member
		wait    string // "": bootstraps
	}{
		{"three", "b", []shard.Member{c, a, b}, ""},
		{"two", "b", []shard.Member{a, b}, "2 of the 3 voters"},
		{"one is suspect", "b", []shard.Member{a, b, edit(c, func(m *shard.Member) { m.State = shard.Suspect })}, "2 of the 3"},
		{"one never votes", "b", []shard.Member{a, b, edit(c, func(m *shard.Member) { m.BootstrapExpect = 0 })}, "2 of the 3"},
		{"one came just now", "b", []shard.Member{a, b, edit(c, func(m *shard.Member) { m.Since = now })}, "a moment"},
		{"one expects five", "b", []shard.Member{a, b, edit(c, func(m *shard.Member) { m.BootstrapExpect = 5 })}, "--bootstrap-expect is 3 here and 5 on c"},
		{"a cluster exists", "b", []shard.Member{a, b, edit(c, func(m *shard.Member) { m.ClusterID = "x" })}, "cluster x exists"},
		{"four, among the first", "c", []shard.Member{d, c, b, a}, ""},
		{"four, not among the first", "d", []shard.Member{d, c, b, a}, "others bootstrap"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := decideStart(founding{self: serverID(tc.self, "u-"+string(tc.self)), expect: 3, settle: time.Second, members: tc.members}, now)
			if tc.wait != "" {
				if s.servers != nil || !strings.Contains(s.wait, tc.wait) {
					t.Errorf("%+v, want to wait: %s", s, tc.wait)
				}
				return
			}
			want := "[{Voter a/u-a a:1} {Voter b/u-b b:1} {Voter c/u-c c:1}]"
			if got := fmt.Sprint(s.servers); got != want {
				t.Errorf("bootstraps with %s, want %s (%s)", got, want, s.wait)
			}
		})
	}
}

// Two halves of six candidates, each with the three that --bootstrap-expect asks
// for, never bootstrap both.
func TestTwoHalvesDoNotBootstrapTwoClusters(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, tc := range []struct {
		name   string
		format string
		join   []string
		either bool // one half of some cut may bootstrap
	}{
		{name: "a StatefulSet", format: "cache-%d", join: []string{"cache-headless:7401"}, either: true},
		{name: "a StatefulSet counted from 7", format: "cache-%d", join: []string{"cache-headless:7401"}},
		{name: "named in --join", format: "m%dx", join: []string{"m0x:1", "m1x.example:1", "m2x:1", "m3x:1", "m4x:1", "m5x:1"}},
		{name: "three of six named", format: "m%dx", join: []string{"m0x:1", "m1x:1", "m2x:1"}, either: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			from := 0
			if strings.Contains(tc.name, "from 7") {
				from = 7
			}
			bootstraps := func(half int) bool {
				var members []shard.Member
				for i := range 6 {
					state := shard.Alive
					if half&(1<<i) == 0 {
						state = shard.Dead
					}
					members = append(members, member(shard.NodeID(fmt.Sprintf(tc.format, from+i)), state, now.Add(-time.Hour)))
				}
				return slices.ContainsFunc(members, func(m shard.Member) bool {
					return m.State == shard.Alive && decideStart(founding{self: serverID(m.Name, m.UUID), expect: 3, join: tc.join, settle: time.Second, members: members}, now).servers != nil
				})
			}
			if from == 0 && !bootstraps(1<<6-1) {
				t.Error("all six together do not bootstrap")
			}
			some := false
			for half := range 1 << 6 {
				one, other := bootstraps(half), bootstraps((1<<6-1)&^half)
				if one && other {
					t.Fatalf("the halves %06b and the rest both bootstrap", half)
				}
				if n := bits.OnesCount(uint(half)); n == 3 {
					some = some || one
				}
			}
			if some != tc.either {
				t.Errorf("a half of three bootstraps: %v, want %v", some, tc.either)
			}
		})
	}
}

func TestDecideVoter(t *testing.T) {
	server := func(name shard.NodeID) raft.Server {
		return raft.Server{ID: serverID(name, "u-"+string(name)), Address: raft.ServerAddress(string(name) + ":1")}
	}
	full := []raft.Server{server("a"), server("b"), server("c")}
	now := time.Unix(1000, 0)
	a, b, c, d := member("a", shard.Alive, now), member("b", shard.Alive, now), member("c", shard.Alive, now), member("d", shard.Alive, now)
	edit := func(m shard.Member, f func(*shard.Member)) shard.Member { f(&m); return m }
	newDisk := func(m *shard.Member) { m.UUID = "new" }
	dead := func(m *shard.Member) { m.State = shard.Dead }
	never := func(m *shard.Member) { m.BootstrapExpect = 0 }
	e := member("e", shard.Alive, now)
	learner := func(s raft.Server) raft.Server { s.Suffrage = raft.Nonvoter; return s }
	learning := append(slices.Clone(full), learner(server("d")))
	four := append(slices.Clone(full), server("d"))
	zoned := func(m shard.Member, z string) shard.Member { m.Zone = z; return m }
	left := func(m *shard.Member) { m.State, m.Draining = shard.Left, true }
	draining := func(m *shard.Member) { m.Draining = true }
	rested := func(m *shard.Member) { m.Since = now.Add(-time.Hour) }
	moved := []raft.Server{server("a"), server("d"), server("e"), learner(server("b"))}
	back := []shard.Member{edit(a, rested), edit(b, rested), edit(c, rested), edit(d, rested), edit(e, rested)}
	for _, tc := range []struct {
		name                string
		servers             []raft.Server
		members             []shard.Member
		lost, drained, slow shard.NodeID
		noReports           bool
		want                string
	}{
		{name: "as it should be", servers: full, members: []shard.Member{a, b, c}},
		{name: "one is dead", servers: full, members: []shard.Member{a, b, edit(c, dead)}},
		{name: "one is not seen", servers: full, members: []shard.Member{a, b}},
		{name: "a fourth", servers: full, members: []shard.Member{a, b, c, d}, noReports: true},
		{name: "one is missing", servers: full[:2], members: []shard.Member{a, b, d}, want: "learn d/u-d d:1"},
		{name: "one is missing, and no reports", servers: full[:2], members: []shard.Member{a, b, d}, noReports: true, want: "add d/u-d d:1"},
		{name: "the missing one never votes", servers: full[:2], members: []shard.Member{a, b, edit(d, never)}},
		{name: "back on an empty disk", servers: full, members: []shard.Member{a, b, edit(c, newDisk)}, want: "remove c/u-c"},
		{name: "and then", servers: full[:2], members: []shard.Member{a, b, edit(c, newDisk)}, want: "learn c/new c:1"},
		{name: "the leader at another address", servers: full, members: []shard.Member{edit(a, func(m *shard.Member) { m.RaftAddress = "x:9" }), b, c}, want: "add a/u-a x:9"},
		{name: "another at another address", servers: full, members: []shard.Member{a, b, edit(c, func(m *shard.Member) { m.RaftAddress = "x:9" })}},
		{name: "another node with our name", servers: full, members: []shard.Member{edit(a, newDisk), b, c}},

		{name: "one is lost, and no node to replace it", servers: full, members: []shard.Member{a, b, edit(c, dead)}, lost: "c"},
		{name: "but one that never votes", servers: full, members: []shard.Member{a, b, edit(c, dead), edit(d, never)}, lost: "c"},
		{name: "but one that shuts down", servers: full, members: []shard.Member{a, b, edit(c, dead), edit(d, draining)}, lost: "c", noReports: true},
		{name: "one is lost, another learns", servers: full, members: []shard.Member{a, b, edit(c, dead), d}, lost: "c", want: "learn d/u-d d:1"},
		{name: "the zone counts", servers: full, members: []shard.Member{zoned(a, "x"), zoned(b, "y"), zoned(edit(c, dead), "z"), zoned(d, "x"), zoned(e, "z")}, lost: "c", want: "learn e/u-e e:1"},
		{name: "it has learned", servers: learning, members: []shard.Member{a, b, d}, lost: "c", want: "remove c/u-c"},
		{name: "it has not learned all", servers: append(slices.Clone(full), learner(server("e"))), members: []shard.Member{a, b, e}, lost: "c", want: "await e/u-e e:1"},
		{name: "it never learns", servers: append(slices.Clone(full), learner(server("e"))), members: []shard.Member{a, b, e}, lost: "c", slow: "e"},
		{name: "no node reports whether it has", servers: learning, members: []shard.Member{a, b, d}, lost: "c", noReports: true},
		{name: "and votes", servers: append(slices.Clone(full[:2]), learner(server("d"))), members: []shard.Member{a, b, d, e}, want: "add d/u-d d:1"},
		{name: "its raft port is dead", servers: learning, members: []shard.Member{a, b, c, d}, lost: "c", want: "demote c/u-c"},
		{name: "one is drained", servers: learning, members: []shard.Member{a, b, c, d}, drained: "c", want: "add d/u-d d:1"},
		{name: "another votes for it", servers: four, members: []shard.Member{a, b, c, d}, drained: "c", want: "demote c/u-c"},
		{name: "the leader is drained", servers: four, members: []shard.Member{a, b, c, d}, drained: "a", want: "step_down a/u-a"},
		{name: "undrained during its replacement: four voters", servers: four, members: []shard.Member{a, b, c, d}, want: "demote d/u-d"},
		{name: "one that voted before is back", servers: full, members: []shard.Member{a, b, c, d}, want: "learn d/u-d d:1"},
		{name: "a learner is gone", servers: learning, members: []shard.Member{a, b, c}, lost: "d", want: "remove d/u-d"},
		{name: "a learner lives, and its log does not follow", servers: learning, members: []shard.Member{a, b, c, d}, lost: "d"},

		{name: "one shuts down", servers: full, members: []shard.Member{a, b, edit(c, draining), d}, want: "learn d/u-d d:1"},
		{name: "one shuts down, another can vote", servers: learning, members: []shard.Member{a, b, edit(c, draining), d}, want: "add d/u-d d:1"},
		{name: "one shuts down of three", servers: full, members: []shard.Member{a, b, edit(c, draining)}},
		{name: "all shut down", servers: full, members: []shard.Member{edit(a, draining), edit(b, draining), edit(c, draining), edit(d, draining)}, noReports: true},
		{name: "one has left with its vote", servers: learning, members: []shard.Member{a, b, edit(c, left), d}, want: "remove c/u-c"},
		{name: "the first ordinals are back", servers: moved, members: back, want: "await b/u-b b:1"},
		{name: "for a moment", servers: moved, members: []shard.Member{a, b, c, d, e}},
		{name: "while another voter is away", servers: moved, members: []shard.Member{back[0], back[1], back[2], back[3], edit(e, dead)}},
		{name: "while the log of another voter does not follow", servers: moved, members: back, slow: "e"},
		{name: "zones before ordinals", servers: full, members: []shard.Member{zoned(back[0], "x"), zoned(back[1], "x"), zoned(back[2], "y"), zoned(back[3], "z")}, want: "learn d/u-d d:1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := ""
			reports := (*Reports)(nil).Add(now, 100, []Report{{Node: "d", RaftIndex: 99}, {Node: "e", RaftIndex: 50}})
			if tc.noReports {
				reports = nil
			}
			if ch, ok := decideVoter(voterFacts{
				servers: tc.servers, self: "a/u-a", expect: 3, members: tc.members, reports: reports, now: now, lostAfter: 10 * time.Minute,
				away: func(n shard.NodeID) time.Duration {
					switch n {
					case tc.lost:
						return 10 * time.Minute
					case tc.slow:
						return learnPatience
					}
					return 0
				},
				drained: func(n shard.NodeID) bool { return n == tc.drained },
			}); ok {
				got = strings.TrimSpace(fmt.Sprintf("%s %s %s", ch.do, ch.id, ch.address))
			}
			if got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

func TestForeign(t *testing.T) {
	of := func(name shard.NodeID, cluster string) shard.Member {
		return shard.Member{Name: name, ClusterID: cluster, State: shard.Alive}
	}
	for _, tc := range []struct {
		name    string
		members []shard.Member
		want    string
	}{
		{"alone", nil, ""},
		{"among ours", []shard.Member{of("self", "x"), of("b", "x"), of("c", "")}, ""},
		{"one stranger", []shard.Member{of("b", "x"), of("c", "y")}, ""},
		{"one against one", []shard.Member{of("b", "y")}, ""},
		{"we are the stranger", []shard.Member{of("self", "x"), of("b", "y"), of("c", "y")}, "y"},
	} {
		if got, _ := foreign("x", "self", tc.members); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

type sink struct{ bytes.Buffer }

func (*sink) ID() string    { return "s" }
func (*sink) Cancel() error { return nil }
func (*sink) Close() error  { return nil }

func (f *fsm) applyCommand(t *testing.T, c shard.Command) outcome {
	t.Helper()
	b, err := shard.EncodeCommand(c)
	if err != nil {
		t.Fatal(err)
	}
	return f.Apply(&raft.Log{Data: b}).(outcome)
}

func TestFSMSnapshotKeepsRequests(t *testing.T) {
	show := func(*shard.Map) error { return nil }
	f := newFSM(show, func() {})
	found := shard.Command{RequestID: "first", Change: shard.Found{ClusterID: "c", Spec: shard.Spec{Ranges: []kv.Range{{}}, Shards: 1, Replicas: 1}}}
	if out := f.applyCommand(t, found); out.err != nil || out.version != 1 {
		t.Fatalf("%+v", out)
	}
	split := shard.Command{RequestID: "second", IfVersion: 1, Change: shard.Split{Shard: 1, At: []string{"a\xff"}}}
	f.applyCommand(t, split)

	snap, err := f.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	f.applyCommand(t, shard.Command{RequestID: "behind the snapshot", IfVersion: 2, Change: shard.Split{Shard: 2, At: []string{"A"}}})
	var s sink
	if err := snap.Persist(&s); err != nil {
		t.Fatal(err)
	}
	snap.Release()

	g := newFSM(show, func() {})
	if err := g.Restore(io.NopCloser(&s.Buffer)); err != nil {
		t.Fatal(err)
	}
	if g.m.Version != 2 || len(g.m.Shards) != 2 {
		t.Errorf("restored %+v", g.m)
	}
	if out := g.applyCommand(t, split); out.err != nil || out.version != 2 {
		t.Errorf("repeated after a restore: %+v", out)
	}
	split.RequestID = "third"
	if out := g.applyCommand(t, split); !errors.Is(out.err, shard.ErrRefused) {
		t.Errorf("stale: %+v", out)
	}
}

// A node that meets a command of a newer version stops, and does not guess.
func TestFSMStopsAtNewerCommand(t *testing.T) {
	f := newFSM(func(*shard.Map) error { return nil }, func() {})
	out := f.Apply(&raft.Log{Data: []byte{shard.Level + 1, '{', '}'}}).(outcome)
	if !errors.Is(out.err, shard.ErrNewer) {
		t.Errorf("%+v", out)
	}
	if err := <-f.broken; !errors.Is(err, shard.ErrNewer) {
		t.Error(err)
	}
	found := shard.Command{Change: shard.Found{ClusterID: "c", Spec: shard.Spec{Ranges: []kv.Range{{}}, Shards: 1, Replicas: 1}}}
	if out := f.applyCommand(t, found); !errors.Is(out.err, shard.ErrNewer) || f.m != nil {
		t.Errorf("it goes on: %+v", out)
	}
	if _, err := f.Snapshot(); !errors.Is(err, shard.ErrNewer) {
		t.Errorf("snapshot: %v", err)
	}
}

func TestLedgerIsBounded(t *testing.T) {
	l := newLedger(nil)
	for i := range 3 * ledgerSize {
		l.add(entry{RequestID: fmt.Sprint(i), Version: uint64(i)})
	}
	if len(l.entries) != ledgerSize || len(l.byID) != ledgerSize {
		t.Errorf("%d entries, %d by ID", len(l.entries), len(l.byID))
	}
	if v, ok := l.find(fmt.Sprint(3*ledgerSize - 1)); !ok || v != 3*ledgerSize-1 {
		t.Error("the newest is lost")
	}
	if _, ok := l.find("0"); ok {
		t.Error("the oldest is kept")
	}
}

// Cut off anywhere, or with any one byte changed, a map file is refused.
func TestMapFileTornAnywhere(t *testing.T) {
	f := newDiskMapFile(t.TempDir())
	if m, err := f.load(); m != nil || err != nil {
		t.Fatalf("no file: %v, %v", m, err)
	}
	m := testMap(t, "a", "b")
	for range 2 { // also over an old one
		if err := f.save(m); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := f.load(); err != nil || !reflect.DeepEqual(got, m) {
		t.Fatalf("%+v, %v", got, err)
	}
	b, err := os.ReadFile(f.path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range b {
		if m, err := decodeMapFile(b[:i]); m != nil || !errors.Is(err, ErrMapFile) {
			t.Fatalf("cut at %d: %v, %v", i, m, err)
		}
		c := bytes.Clone(b)
		c[i] ^= 0x20
		if m, err := decodeMapFile(c); m != nil || !errors.Is(err, ErrMapFile) {
			t.Fatalf("byte %d changed: %v, %v", i, m, err)
		}
	}
}

func TestIdentity(t *testing.T) {
	dir := t.TempDir()
	id := func() string {
		t.Helper()
		id, err := Identity(dir)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	first := id()
	if id() != first {
		t.Error("it changes by itself")
	}
	for _, p := range []string{filepath.Join(raftDir(dir), "snapshots"), filepath.Join(raftDir(dir), "raft.db")} {
		if err := os.MkdirAll(p, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if id() != first {
		t.Error("it changes though the log is there")
	}
	if err := os.Remove(filepath.Join(raftDir(dir), "raft.db")); err != nil {
		t.Fatal(err)
	}
	if id() == first {
		t.Error("the log is lost and the identity is kept")
	}
}

func TestConfigNamesEveryMistake(t *testing.T) {
	c := Config{BootstrapExpect: 2, Election: time.Second, Heartbeat: 2 * time.Second, Settle: -1}
	err := c.Validate()
	for _, want := range []string{"name", "UUID", "members", "logger", "--bootstrap-expect is 2", "data directory", "listener", "raft address", "etcd", "spec", "negative", "election (1s)", "split check"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
}
