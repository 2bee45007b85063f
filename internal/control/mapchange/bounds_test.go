package mapchange_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/internal/control/mapchange"
	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

func judge(t *testing.T, c *mapchange.Cluster, r mapchange.Request) *mapchange.Plan {
	t.Helper()
	p, err := mapchange.NewPlan(c, mapchange.Order{Request: r})
	if err != nil {
		t.Fatalf("%v: %v", r, err)
	}
	return p
}

func homes(t *testing.T, p *mapchange.Plan) []shard.ShardHome {
	t.Helper()
	r, ok := p.Change.(shard.Rehome)
	if !ok {
		t.Fatalf("the change is %#v", p.Change)
	}
	return r.Homes
}

// An order is carried out on the map version that it names, or on any version.
func TestAChangeAppliesToItsMapVersion(t *testing.T) {
	c := cluster(t)
	for version, ok := range map[uint64]bool{0: true, 1: true, 2: false} {
		p, err := mapchange.NewPlan(c, mapchange.Order{Request: mapchange.Rebalance{}, IfVersion: version})
		if (err == nil) != ok || (ok && p.Version != 1) {
			t.Errorf("for map version %d: %v", version, err)
		}
	}
}

// A repeated undrain reports progress to its end; a first undrain of nodes that are not
// drained does not.
func TestARepeatedUndrainIsFollowed(t *testing.T) {
	c := cluster(t)
	state(c, "d", shard.Dead)
	order := mapchange.Order{Request: mapchange.Undrain{Nodes: []shard.NodeID{"a", "b", "c"}}}
	if p, err := mapchange.NewPlan(c, order); err != nil || len(p.Warnings) != 1 || len(p.Steps) != 0 {
		t.Errorf("%+v, %v", p, err)
	}
	order.Repeated = true
	if p, err := mapchange.NewPlan(c, order); err != nil || len(p.Warnings) != 0 || len(p.Steps) == 0 {
		t.Errorf("repeated: %+v, %v", p, err)
	}
}

// A merge brings the shards together on the nodes of a moved shard, otherwise on
// the nodes of the larger shard.
func TestNodesOfAMerge(t *testing.T) {
	pin := func(id shard.ID, nodes ...shard.NodeID) shard.ShardHome {
		return shard.ShardHome{Shard: id, Home: shard.Home{Pins: nodes}}
	}
	for what, x := range map[string]struct {
		pins   []shard.ShardHome
		larger shard.ID
		comes  shard.ID
	}{
		"of equal size":               {nil, 0, 2},
		"the second is larger":        {nil, 2, 1},
		"the first is pinned":         {[]shard.ShardHome{pin(1, "a", "b")}, 2, 2},
		"the second is pinned":        {[]shard.ShardHome{pin(2, "a", "b")}, 1, 1},
		"both are, to the same nodes": {[]shard.ShardHome{pin(1, "a", "b"), pin(2, "a", "b")}, 2, 2},
	} {
		c := cluster(t)
		if x.pins != nil {
			propose(t, c, shard.Rehome{Homes: x.pins})
		}
		for _, copies := range c.Copies {
			if held, ok := copies[x.larger]; ok {
				held.Bytes++
				copies[x.larger] = held
			}
		}
		for _, r := range []mapchange.Request{mapchange.Merge{Shard: 1, With: 2}, mapchange.Merge{Shard: 2, With: 1}} {
			p := judge(t, c, r)
			if what == "both are, to the same nodes" && p.Change == nil {
				continue
			}
			if h := homes(t, p); len(h) != 1 || h[0].Shard != x.comes {
				t.Errorf("%s, %v: %+v", what, r, h)
			}
		}
	}
	// A copy that is not ready does not determine the size.
	c := cluster(t)
	for n, copies := range c.Copies {
		if _, ok := copies[2]; ok {
			copies[2] = mapchange.Copy{Ready: n != replicas(t, c, 2)[0], Bytes: 1 << 10}
		}
	}
	c.Copies[replicas(t, c, 2)[0]][2] = mapchange.Copy{Bytes: 1 << 30}
	p, err := mapchange.NewPlan(c, mapchange.Order{Request: mapchange.Merge{Shard: 1, With: 2}, Force: true})
	if err != nil || homes(t, p)[0].Shard != 2 {
		t.Errorf("a loading copy determines the size: %+v, %v", p, err)
	}
	// A merge that has already begun is not proposed again.
	c = cluster(t)
	propose(t, c, judge(t, c, mapchange.Merge{Shard: 1, With: 2}).Change)
	if p := judge(t, c, mapchange.Merge{Shard: 2, With: 1}); p.Change != nil {
		t.Errorf("the merge is proposed again: %+v", p.Change)
	}
}

// A move pins its replicas and owner; a move that changes nothing is empty.
func TestPinsOfAMove(t *testing.T) {
	c := cluster(t)
	now := replicas(t, c, 1)
	fresh := stranger(t, c, 1)
	h := homes(t, judge(t, c, mapchange.Move{Shard: 1, To: []shard.NodeID{fresh, now[0]}}))
	if len(h) != 1 || !slices.Equal(h[0].Home.Pins, []shard.NodeID{fresh, now[0]}) || h[0].Home.Replicas != 0 {
		t.Errorf("moved to as many nodes as the cluster's replicas: %+v", h)
	}
	h = homes(t, judge(t, c, mapchange.Move{Shard: 1, To: []shard.NodeID{"a", "b", "c"}}))
	if h[0].Home.Replicas != 3 {
		t.Errorf("moved to more nodes: %+v", h)
	}
	propose(t, c, shard.Rehome{Homes: []shard.ShardHome{{Shard: 1, Home: shard.Home{Pins: []shard.NodeID{"a", "b"}}}}})
	for owner, want := range map[shard.NodeID][]shard.NodeID{"b": {"b", "a"}, "c": {"c", "a"}} {
		if h := homes(t, judge(t, c, mapchange.Move{Shard: 1, Owner: owner})); !slices.Equal(h[0].Home.Pins, want) {
			t.Errorf("owned by %s: %+v", owner, h)
		}
	}
	for _, r := range []mapchange.Move{{Shard: 1, Owner: "a"}, {Shard: 1, To: []shard.NodeID{"a", "b"}}} {
		if p := judge(t, c, r); p.Change != nil {
			t.Errorf("%v changes nothing, but is planned: %+v", r, p.Change)
		}
	}
	many := make([]shard.NodeID, shard.MaxReplicas+1)
	for i := range many {
		many[i] = shard.NodeID(fmt.Sprintf("m%02d", i))
		c.Members = append(c.Members, shard.Member{Name: many[i], Level: shard.Level, State: shard.Alive})
	}
	if _, err := mapchange.NewPlan(c, mapchange.Order{Request: mapchange.Move{Shard: 1, To: many}, Force: true}); err == nil || !strings.Contains(err.Error(), "replicas at most") {
		t.Errorf("%d replicas: %v", len(many), err)
	}
	if h := homes(t, judge(t, c, mapchange.Move{Shard: 1, To: many[1:]})); h[0].Home.Replicas != shard.MaxReplicas {
		t.Errorf("the greatest number of replicas: %+v", h)
	}
	// A shard that waits for a merge stays separate after a move.
	c = cluster(t)
	propose(t, c, judge(t, c, mapchange.Merge{Shard: 1, With: 2}).Change)
	p, err := mapchange.NewPlan(c, mapchange.Order{Request: mapchange.Move{Shard: 2, To: []shard.NodeID{"a", "b"}}, Force: true})
	if err != nil || homes(t, p)[0].Home.Seat != 0 {
		t.Errorf("the merge continues after the move: %+v, %v", p, err)
	}
}

// Risky destinations of a shard need Force.
func TestRiskyMovesNeedForce(t *testing.T) {
	zones := func(c *mapchange.Cluster, zones ...string) {
		for i := range c.Members {
			c.Members[i].Zone = zones[i]
		}
	}
	for what, x := range map[string]struct {
		given func(c *mapchange.Cluster)
		to    []shard.NodeID
		says  string // "": nothing
	}{
		"two zones":               {func(c *mapchange.Cluster) { zones(c, "e", "w", "e", "w") }, []shard.NodeID{"a", "b"}, ""},
		"one zone":                {func(c *mapchange.Cluster) { zones(c, "e", "w", "e", "w") }, []shard.NodeID{"a", "c"}, `in zone "e"`},
		"there is but one zone":   {func(c *mapchange.Cluster) { zones(c, "e", "e", "e", "e") }, []shard.NodeID{"a", "c"}, ""},
		"no zones":                {func(*mapchange.Cluster) {}, []shard.NodeID{"a", "c"}, ""},
		"one of them has no zone": {func(c *mapchange.Cluster) { zones(c, "e", "w", "", "w") }, []shard.NodeID{"a", "c"}, ""},
		"the other zone takes nothing": {func(c *mapchange.Cluster) {
			zones(c, "e", "w", "e", "w")
			state(c, "b", shard.Dead)
			state(c, "d", shard.Dead)
		}, []shard.NodeID{"a", "c"}, ""},
		"the other zone is suspected": {func(c *mapchange.Cluster) {
			zones(c, "e", "w", "e", "w")
			state(c, "b", shard.Suspect)
			state(c, "d", shard.Dead)
		}, []shard.NodeID{"a", "c"}, `in zone "e"`},
		"a node that drains itself": {func(c *mapchange.Cluster) { c.Members[2].Draining = true }, []shard.NodeID{"a", "c"}, "is drained"},
		"one copy ignores zones": {func(c *mapchange.Cluster) {
			zones(c, "e", "w", "e", "w")
			c.Map = c.Map.Clone()
			c.Map.Spec.Replicas = 1
		}, []shard.NodeID{"a"}, ""},
	} {
		c := cluster(t)
		x.given(c)
		_, err := mapchange.NewPlan(c, mapchange.Order{Request: mapchange.Move{Shard: 1, To: x.to}})
		if (err == nil) != (x.says == "") || (err != nil && !strings.Contains(err.Error(), x.says)) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Drains that leave too few nodes or too few voters need Force.
func TestRiskyDrainsNeedForce(t *testing.T) {
	for what, x := range map[string]struct {
		given func(t *testing.T, c *mapchange.Cluster)
		nodes []shard.NodeID
		says  string // "": nothing
	}{
		"just enough are left": {nil, []shard.NodeID{"c", "d"}, ""},
		"one too few":          {func(_ *testing.T, c *mapchange.Cluster) { state(c, "b", shard.Dead) }, []shard.NodeID{"c", "d"}, "1 node would be left for 2 replicas"},
		"a suspect is left":    {func(_ *testing.T, c *mapchange.Cluster) { state(c, "b", shard.Suspect); c.Voters = nil }, []shard.NodeID{"c", "d"}, ""},
		"one drains itself":    {func(_ *testing.T, c *mapchange.Cluster) { c.Members[1].Draining = true }, []shard.NodeID{"c", "d"}, "1 node would be left"},
		"a vote has no heir":   {func(_ *testing.T, c *mapchange.Cluster) { state(c, "b", shard.Dead); c.Members[3].BootstrapExpect = 0 }, []shard.NodeID{"c"}, "1 of 3 voters would be left once c is stopped, and 2 are needed"},
		"a vote has an heir":   {func(_ *testing.T, c *mapchange.Cluster) { state(c, "b", shard.Dead) }, []shard.NodeID{"c"}, ""},
		"the heir is drained": {func(t *testing.T, c *mapchange.Cluster) {
			state(c, "b", shard.Suspect)
			propose(t, c, shard.Drain{Nodes: []shard.NodeID{"d"}})
		}, []shard.NodeID{"c"}, "1 of 3 voters"},
		"a node that has no vote": {func(_ *testing.T, c *mapchange.Cluster) { state(c, "b", shard.Suspect); state(c, "c", shard.Suspect) }, []shard.NodeID{"d"}, ""},
		"voters are not known":    {func(_ *testing.T, c *mapchange.Cluster) { c.Voters = nil }, []shard.NodeID{"b", "c"}, ""},
		"a node that has left":    {func(t *testing.T, c *mapchange.Cluster) { c.Members = slices.Delete(c.Members, 3, 4) }, []shard.NodeID{"d"}, ""},
	} {
		c := cluster(t)
		if x.given != nil {
			x.given(t, c)
		}
		_, err := mapchange.NewPlan(c, mapchange.Order{Request: mapchange.Drain{Nodes: x.nodes}})
		if (err == nil) != (x.says == "") || (err != nil && !strings.Contains(err.Error(), x.says)) {
			t.Errorf("%s: %v", what, err)
		}
	}
	c := cluster(t)
	propose(t, c, shard.Drain{Nodes: []shard.NodeID{"d"}})
	p := judge(t, c, mapchange.Drain{Nodes: []shard.NodeID{"c", "d"}})
	if d, ok := p.Change.(shard.Drain); !ok || !slices.Equal(d.Nodes, []shard.NodeID{"c"}) {
		t.Errorf("drain of a drained node and another node: %+v", p.Change)
	}
	p = judge(t, c, mapchange.Undrain{Nodes: []shard.NodeID{"c", "d"}})
	if d, ok := p.Change.(shard.Drain); !ok || !d.Undo || !slices.Equal(d.Nodes, []shard.NodeID{"d"}) {
		t.Errorf("undrained: %+v", p.Change)
	}
}

// Errors list the existing shards, shortened, and the nodes that have not left.
func TestErrorsListShardsAndNodes(t *testing.T) {
	c := cluster(t)
	state(c, "c", shard.Left)
	for field, r := range map[string]mapchange.Request{
		`there is no node "x"; there are a, b, d`:                          mapchange.Drain{Nodes: []shard.NodeID{"x"}},
		"there is no shard 5; there are 1, 2, 3, 4":                        mapchange.Split{Shard: c.Map.NextID, At: []string{"/b"}},
		"there is no shard 0; there are 1, 2, 3, 4":                        mapchange.Split{At: []string{"/b"}},
		"shards 1 and 3 are not adjacent: the neighbour of 1 is 2":         mapchange.Merge{Shard: 1, With: 3},
		"shards 2 and 4 are not adjacent: the neighbours of 2 are 1 and 3": mapchange.Merge{Shard: 2, With: 4},
		"shards 4 and 1 are not adjacent: the neighbour of 4 is 3":         mapchange.Merge{Shard: 4, With: 1},
	} {
		if _, err := mapchange.NewPlan(c, mapchange.Order{Request: r}); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%v: %v", r, err)
		}
	}
	var cuts []string
	for i := range 15 {
		cuts = append(cuts, fmt.Sprintf("/h%02d", i))
	}
	for n, want := range map[int]string{13: "", 14: "and 1 more", 15: "and 2 more"} {
		c := cluster(t)
		propose(t, c, shard.Split{Shard: 2, At: cuts[:n-1]})
		_, err := mapchange.NewPlan(c, mapchange.Order{Request: mapchange.Split{Shard: 99}})
		if err == nil || !strings.HasSuffix(err.Error(), want) || (want == "" && strings.Contains(err.Error(), "more")) {
			t.Errorf("list of %d shards: %v", len(c.Map.Shards), err)
		}
	}
}

// A split whose part must be fetched counts its share of the bytes, and a node that was
// not asked does not block progress.
func TestProgressCountsTheRemainingBytes(t *testing.T) {
	c := cluster(t)
	p := judge(t, c, mapchange.Split{Shard: 2, At: []string{"/h"}})
	if len(p.Steps) == 0 || !slices.ContainsFunc(p.Steps, func(s mapchange.Step) bool { return s.Range == (kv.Range{Start: "/g", End: "/m"}) && len(s.To) == 2 }) {
		t.Errorf("%s", outline(p))
	}
	if now := p.Progress(c, new(planner.Planner)); now.Version != 1 {
		t.Errorf("%+v", now)
	}
	ask := p.Ask(c.Map)
	if !slices.IsSorted(ask) || !slices.Equal(ask, slices.Compact(slices.Clone(ask))) || !slices.Contains(ask, replicas(t, c, 2)[0]) {
		t.Errorf("asks %v", ask)
	}
	want := slices.Sorted(slices.Values(replicas(t, c, 2)))
	if got := mapchange.Ask(c.Map, mapchange.Split{Shard: 2}); !slices.Equal(got, want) {
		t.Errorf("a split asks nodes %v, want %v", got, want)
	}
	all := slices.Compact(slices.Sorted(slices.Values(slices.Concat(replicas(t, c, 2), replicas(t, c, 3)))))
	if got := mapchange.Ask(c.Map, mapchange.Merge{Shard: 2, With: 3}); !slices.Equal(got, all) {
		t.Errorf("a merge asks nodes %v, want %v", got, all)
	}
}
