package mapchange_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/internal/control/mapchange"
	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// cluster is the nodes a, b, c and d, of which a, b and c vote, and the shards 1 [, /g),
// 2 [/g, /m), 3 [/m, /t) and, in another served range, 4 [/t, ), 1 KiB each, placed by
// the planner.
func cluster(t *testing.T) *mapchange.Cluster {
	t.Helper()
	c := &mapchange.Cluster{Voters: []shard.NodeID{"a", "b", "c"}}
	for _, name := range []shard.NodeID{"a", "b", "c", "d"} {
		c.Members = append(c.Members, shard.Member{Name: name, Level: shard.Level, State: shard.Alive, BootstrapExpect: 3})
	}
	f, err := planner.Place(shard.Found{
		ClusterID: "test", EtcdClusterID: 1, Cuts: []string{"/g", "/m"},
		Spec: shard.Spec{Ranges: []kv.Range{{End: "/t"}, {Start: "/t"}}, Shards: 4, Replicas: 2},
	}, c.Members)
	if err != nil {
		t.Fatal(err)
	}
	if c.Map, err = shard.Apply(nil, shard.Command{Change: f}); err != nil {
		t.Fatal(err)
	}
	load(c)
	return c
}

// load marks every copy of the map as loaded.
func load(c *mapchange.Cluster) {
	c.Copies = make(map[shard.NodeID]map[shard.ID]mapchange.Copy)
	for _, m := range c.Members {
		c.Copies[m.Name] = make(map[shard.ID]mapchange.Copy)
		for _, s := range c.Map.Shards {
			if slices.Contains(s.Replicas, m.Name) {
				c.Copies[m.Name][s.ID] = mapchange.Copy{Ready: true, Keys: 4, Bytes: 1 << 10}
			}
		}
	}
}

// propose makes a change of the map.
func propose(t *testing.T, c *mapchange.Cluster, change shard.Change) {
	t.Helper()
	next, err := shard.Apply(c.Map, shard.Command{IfVersion: c.Map.Version, Change: change})
	if err != nil {
		t.Fatal(err)
	}
	c.Map = next
}

// state sets a node's state in gossip.
func state(c *mapchange.Cluster, node shard.NodeID, s shard.State) {
	for i := range c.Members {
		if c.Members[i].Name == node {
			c.Members[i].State = s
		}
	}
}

func replicas(t *testing.T, c *mapchange.Cluster, id shard.ID) []shard.NodeID {
	t.Helper()
	s, ok := c.Map.Shard(id)
	if !ok {
		t.Fatalf("no shard %d", id)
	}
	return s.Replicas
}

// stranger returns a node without the shard.
func stranger(t *testing.T, c *mapchange.Cluster, id shard.ID) shard.NodeID {
	t.Helper()
	for _, m := range c.Members {
		if !slices.Contains(replicas(t, c, id), m.Name) {
			return m.Name
		}
	}
	t.Fatalf("all nodes have shard %d", id)
	return ""
}

// Every refusal names the reason, the allowed values, and the wrong flag or argument.
func TestRefusals(t *testing.T) {
	drained := func(t *testing.T, c *mapchange.Cluster) { propose(t, c, shard.Drain{Nodes: []shard.NodeID{"d"}}) }
	for name, test := range map[string]struct {
		given   func(t *testing.T, c *mapchange.Cluster)
		request mapchange.Request
		field   string
		says    string
		force   bool // overrides it
	}{
		"an unknown shard": {nil, mapchange.Split{Shard: 9, At: []string{"/a"}}, "shard", "there is no shard 9; there are 1, 2, 3, 4", false},
		"a shard that is gone": {
			func(t *testing.T, c *mapchange.Cluster) { propose(t, c, shard.Split{Shard: 1, At: []string{"/c"}}) },
			mapchange.Split{Shard: 1, At: []string{"/a"}},
			"shard", "there is no shard 1 any more: it was split or merged; there are 5, 6, 2, 3, 4", false,
		},
		"a cut outside":      {nil, mapchange.Split{Shard: 2, At: []string{"/z"}}, "at", `"/z" is outside shard 2, which covers ["/g", "/m")`, false},
		"a cut at the start": {nil, mapchange.Split{Shard: 2, At: []string{"/g"}}, "at", `shard 2 begins at "/g" already`, false},
		"a cut at the end":   {nil, mapchange.Split{Shard: 2, At: []string{"/m"}}, "at", `shard 2 ends at "/m" already`, false},
		"an empty cut":       {nil, mapchange.Split{Shard: 1, At: []string{""}}, "at", `shard 1 begins at "" already`, false},
		"a cut twice":        {nil, mapchange.Split{Shard: 2, At: []string{"/h", "/h"}}, "at", `"/h" is named twice`, false},
		"a split of a loading shard": {
			func(t *testing.T, c *mapchange.Cluster) { delete(c.Copies[replicas(t, c, 2)[1]], 2) },
			mapchange.Split{Shard: 2, At: []string{"/h"}},
			"shard", "shard 2 is still being loaded at", true,
		},

		"merging with itself":                  {nil, mapchange.Merge{Shard: 2, With: 2}, "with", "cannot be merged with itself", false},
		"merging shards that are not adjacent": {nil, mapchange.Merge{Shard: 3, With: 1}, "with", "shards 3 and 1 are not adjacent: the neighbours of 3 are 2 and 4", false},
		"merging over served ranges":           {nil, mapchange.Merge{Shard: 3, With: 4}, "with", `shards 3 and 4 belong to two ranges that are served (--prefix): "/t" begins the second`, false},
		"merging with an unknown shard":        {nil, mapchange.Merge{Shard: 1, With: 8}, "with", "there is no shard 8", false},
		"merging a loading shard": {
			func(t *testing.T, c *mapchange.Cluster) { delete(c.Copies[replicas(t, c, 2)[1]], 2) },
			mapchange.Merge{Shard: 1, With: 2},
			"with", "still being loaded", true,
		},
		"merging shards on different nodes": {
			func(t *testing.T, c *mapchange.Cluster) {
				propose(t, c, shard.Rehome{Homes: []shard.ShardHome{
					{Shard: 1, Home: shard.Home{Pins: []shard.NodeID{"a", "b"}}}, {Shard: 2, Home: shard.Home{Pins: []shard.NodeID{"c", "d"}}},
				}})
			},
			mapchange.Merge{Shard: 1, With: 2},
			"with", "both were moved by hand, to different nodes: the merged shard would stay with a, b", true,
		},
		"splitting a shard that is being merged": {
			func(t *testing.T, c *mapchange.Cluster) {
				together, err := planner.Together(c.Map, 1, 2)
				if err != nil {
					t.Fatal(err)
				}
				propose(t, c, together)
			},
			mapchange.Split{Shard: 2, At: []string{"/h"}},
			"shard", "shard 2 is about to be merged with its neighbour", true,
		},

		"taking the last replica":        {nil, mapchange.Move{Shard: 1}, "to", "shard 1 would lose its last replica", false},
		"fewer replicas":                 {nil, mapchange.Move{Shard: 1, To: []shard.NodeID{"a"}}, "to", "shard 1 would have 1 of the 2 replicas that the cluster wants (--replicas)", true},
		"moving to an unknown node":      {nil, mapchange.Move{Shard: 1, To: []shard.NodeID{"a", "x"}}, "to", `there is no node "x"; there are a, b, c, d`, false},
		"owned by an unknown node":       {nil, mapchange.Move{Shard: 1, Owner: "x"}, "owner", `there is no node "x"`, false},
		"moving to a node twice":         {nil, mapchange.Move{Shard: 1, To: []shard.NodeID{"a", "a"}}, "to", "a is named twice", false},
		"moving to a drained node":       {drained, mapchange.Move{Shard: 1, To: []shard.NodeID{"a", "d"}}, "to", "d is drained, and is given no shards: run cachectl undrain d first", false},
		"owned by a drained node":        {drained, mapchange.Move{Shard: 1, Owner: "d"}, "owner", "d is drained", false},
		"moving to a dead node":          {func(_ *testing.T, c *mapchange.Cluster) { state(c, "d", shard.Dead) }, mapchange.Move{Shard: 1, To: []shard.NodeID{"a", "d"}}, "to", "d is dead", true},
		"moving to a suspect":            {func(_ *testing.T, c *mapchange.Cluster) { state(c, "d", shard.Suspect) }, mapchange.Move{Shard: 1, Owner: "d"}, "owner", "has not answered recently", true},
		"moving to a node that has left": {func(_ *testing.T, c *mapchange.Cluster) { state(c, "d", shard.Left) }, mapchange.Move{Shard: 1, To: []shard.NodeID{"a", "d"}}, "to", "has left", false},
		"to and owner":                   {nil, mapchange.Move{Shard: 1, To: []shard.NodeID{"a", "b"}, Owner: "a"}, "owner", "the first of to", false},
		"all replicas in one zone": {
			func(_ *testing.T, c *mapchange.Cluster) {
				for i, zone := range []string{"east", "east", "west", "west"} {
					c.Members[i].Zone = zone
				}
			},
			mapchange.Move{Shard: 1, To: []shard.NodeID{"a", "b"}},
			"to", `all replicas of shard 1 would be in zone "east", although other zones have nodes`, true,
		},

		"draining no node":         {nil, mapchange.Drain{}, "nodes", "name the nodes", false},
		"draining an unknown node": {nil, mapchange.Drain{Nodes: []shard.NodeID{"x"}}, "nodes", `there is no node "x"; there are a, b, c, d`, false},
		"draining all":             {nil, mapchange.Drain{Nodes: []shard.NodeID{"a", "b", "c", "d"}}, "nodes", "no node would be left", false},
		"draining the last": {
			func(t *testing.T, c *mapchange.Cluster) {
				propose(t, c, shard.Drain{Nodes: []shard.NodeID{"a", "b", "c"}})
			},
			mapchange.Drain{Nodes: []shard.NodeID{"d"}},
			"nodes", "no node would be left", false,
		},
		"draining below the replicas":    {nil, mapchange.Drain{Nodes: []shard.NodeID{"a", "b", "c"}}, "nodes", "1 node would be left for 2 replicas", true},
		"draining in every way too much": {nil, mapchange.Drain{Nodes: []shard.NodeID{"b", "c", "d"}}, "nodes", "1 node would be left for 2 replicas of each shard (--replicas); and 1 of 3 voters would be left once b, c, d are stopped", true},
		"draining below a quorum": {
			func(_ *testing.T, c *mapchange.Cluster) {
				state(c, "b", shard.Dead)
				c.Members[3].BootstrapExpect = 0 // d never votes
				c.Members = append(c.Members, shard.Member{Name: "e", Level: shard.Level, State: shard.Alive})
			},
			mapchange.Drain{Nodes: []shard.NodeID{"a"}},
			"nodes", "1 of 3 voters would be left once a is stopped, and 2 are needed", true,
		},
		"undraining an unknown node": {nil, mapchange.Undrain{Nodes: []shard.NodeID{"x"}}, "nodes", `there is no node "x"`, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := cluster(t)
			if test.given != nil {
				test.given(t, c)
			}
			_, err := mapchange.NewPlan(c, mapchange.Order{Request: test.request})
			refused, invalid := new(mapchange.RefusedError), new(kv.InvalidError)
			switch {
			case errors.As(err, &refused):
			case errors.As(err, &invalid):
				refused = &mapchange.RefusedError{Field: invalid.Field, Reason: invalid.Reason}
			default:
				t.Fatalf("got %v", err)
			}
			if refused.Field != test.field || !strings.Contains(refused.Reason, test.says) || refused.Force != test.force {
				t.Errorf("got %+v", refused)
			}
			plan, err := mapchange.NewPlan(c, mapchange.Order{Request: test.request, Force: true})
			if (err == nil) != test.force {
				t.Errorf("with force: %v", err)
			}
			if err == nil && !slices.ContainsFunc(plan.Warnings, func(w string) bool { return strings.Contains(test.says, w) || strings.Contains(w, test.says) }) {
				t.Errorf("warnings: %q", plan.Warnings)
			}
		})
	}
}

func TestAnotherVersion(t *testing.T) {
	c := cluster(t)
	_, err := mapchange.NewPlan(c, mapchange.Order{Request: mapchange.Rebalance{}, IfVersion: 7})
	if err == nil || err.Error() != "if_version: the shard map has version 1, not 7" {
		t.Errorf("got %v", err)
	}
}

// outline is a short form of a plan: the shards before and after, the nodes that fill, and bytes.
func outline(p *mapchange.Plan) string {
	var out []string
	for _, s := range p.Steps {
		line := ""
		for _, f := range s.From {
			line += fmt.Sprintf("%d%v ", f.ID, f.Replicas)
		}
		line += "->"
		for _, to := range s.To {
			line += fmt.Sprintf(" %d%v", to.ID, to.Replicas)
		}
		out = append(out, fmt.Sprintf("%s fill %v %d", line, s.Filling, s.Bytes))
	}
	return strings.Join(out, "; ")
}

// follow acts as the voters and the planner until no changes are left, and returns
// the number of changes.
func follow(t *testing.T, c *mapchange.Cluster, p *mapchange.Plan) (rounds int) {
	t.Helper()
	if p.Change != nil {
		propose(t, c, p.Change)
	}
	var plans planner.Planner
	copies := slices.ContainsFunc(p.Steps, func(s mapchange.Step) bool { return len(s.Filling) > 0 })
	for ; rounds < 20; rounds++ {
		if moves := plans.Plan(c.Map, c.Members); len(moves) > 0 {
			propose(t, c, shard.Assign{Moves: moves})
		} else if merges := planner.Merges(c.Map); len(merges) > 0 {
			propose(t, c, merges[0])
		} else {
			loading := p.Progress(c, &plans)
			load(c)
			if done := p.Progress(c, &plans); !done.Done || done.Left != 0 {
				t.Errorf("no changes left, but the plan is not done: %+v", done)
			}
			if loading.Done && copies {
				t.Errorf("done before the copies were loaded")
			}
			return rounds
		}
		if now := p.Progress(c, &plans); now.Done && copies {
			t.Errorf("done while changes are left: %+v", now)
		}
	}
	t.Error("changes never end")
	return rounds
}

// A plan shows the changes that follow.
func TestPlansPredictTheChanges(t *testing.T) {
	for name, test := range map[string]struct {
		given   func(t *testing.T, c *mapchange.Cluster)
		request func(t *testing.T, c *mapchange.Cluster) mapchange.Request
		quiet   bool // the plan is empty
	}{
		"split": {nil, func(*testing.T, *mapchange.Cluster) mapchange.Request {
			return mapchange.Split{Shard: 2, At: []string{"/j", "/h"}}
		}, false},
		"merge": {nil, func(*testing.T, *mapchange.Cluster) mapchange.Request { return mapchange.Merge{Shard: 3, With: 2} }, false},
		"move": {nil, func(t *testing.T, c *mapchange.Cluster) mapchange.Request {
			return mapchange.Move{Shard: 2, To: []shard.NodeID{stranger(t, c, 2), replicas(t, c, 2)[0]}}
		}, false},
		"owner": {nil, func(t *testing.T, c *mapchange.Cluster) mapchange.Request {
			return mapchange.Move{Shard: 2, Owner: replicas(t, c, 2)[1]}
		}, false},
		"owner from outside": {nil, func(t *testing.T, c *mapchange.Cluster) mapchange.Request {
			return mapchange.Move{Shard: 2, Owner: stranger(t, c, 2)}
		}, false},
		"more replicas":  {finalize, func(*testing.T, *mapchange.Cluster) mapchange.Request { return mapchange.Settings{Replicas: 4} }, false},
		"fewer replicas": {finalize, func(*testing.T, *mapchange.Cluster) mapchange.Request { return mapchange.Settings{Replicas: 1} }, false},
		"fewer served keys": {finalize, func(*testing.T, *mapchange.Cluster) mapchange.Request {
			return mapchange.Settings{Ranges: []kv.Range{{Start: "/a", End: "/h"}, {Start: "/m", End: "/z"}}}
		}, false},
		"more served keys": {func(t *testing.T, c *mapchange.Cluster) {
			finalize(t, c)
			propose(t, c, shard.Configure{Replicas: 2, Ranges: []kv.Range{{Start: "/a", End: "/h"}, {Start: "/m", End: "/z"}}})
			load(c)
		}, func(*testing.T, *mapchange.Cluster) mapchange.Request {
			return mapchange.Settings{Ranges: []kv.Range{{}}}
		}, false},
		"drain": {nil, func(t *testing.T, c *mapchange.Cluster) mapchange.Request {
			return mapchange.Drain{Nodes: replicas(t, c, 2)[:1]}
		}, false},
		"undrain": {func(t *testing.T, c *mapchange.Cluster) {
			drain, err := mapchange.NewPlan(c, mapchange.Order{Request: mapchange.Drain{Nodes: replicas(t, c, 2)[:1]}})
			if err != nil {
				t.Fatal(err)
			}
			follow(t, c, drain)
		}, func(_ *testing.T, c *mapchange.Cluster) mapchange.Request {
			return mapchange.Undrain{Nodes: c.Map.Drained}
		}, false},
		"rebalance": {func(t *testing.T, c *mapchange.Cluster) {
			move, err := mapchange.NewPlan(c, mapchange.Order{Request: mapchange.Move{Shard: 2, Owner: stranger(t, c, 2)}})
			if err != nil {
				t.Fatal(err)
			}
			follow(t, c, move)
		}, func(*testing.T, *mapchange.Cluster) mapchange.Request { return mapchange.Rebalance{} }, false},
		"drained already": {
			func(t *testing.T, c *mapchange.Cluster) { propose(t, c, shard.Drain{Nodes: []shard.NodeID{"d"}}) },
			func(*testing.T, *mapchange.Cluster) mapchange.Request {
				return mapchange.Drain{Nodes: []shard.NodeID{"d"}}
			}, true,
		},
		"not drained": {nil, func(*testing.T, *mapchange.Cluster) mapchange.Request {
			return mapchange.Undrain{Nodes: []shard.NodeID{"d"}}
		}, true},
		"balanced already": {nil, func(*testing.T, *mapchange.Cluster) mapchange.Request { return mapchange.Rebalance{} }, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := cluster(t)
			if test.given != nil {
				test.given(t, c)
			}
			r := test.request(t, c)
			p, err := mapchange.NewPlan(c, mapchange.Order{Request: r})
			if err != nil {
				t.Fatal(err)
			}
			if test.quiet != (p.Change == nil) {
				t.Errorf("change %+v", p.Change)
			}
			told := outline(p)
			before := c.Map
			follow(t, c, p)
			for _, s := range p.Steps {
				now := c.Map.Overlapping(s.Range)
				if len(now) != len(s.To) {
					t.Fatalf("planned %s, got %+v", told, now)
				}
				for i := range now {
					if now[i].Range != s.To[i].Range || !slices.Equal(now[i].Replicas, s.To[i].Replicas) || (s.To[i].ID != 0 && s.To[i].ID != now[i].ID) {
						t.Errorf("planned %s, got %+v", told, now)
					}
				}
			}
			for _, s := range before.Shards {
				planned := slices.ContainsFunc(p.Steps, func(step mapchange.Step) bool { return step.Range.Overlaps(s.Range) })
				if now, ok := c.Map.Shard(s.ID); !planned && (!ok || !slices.Equal(now.Replicas, s.Replicas)) {
					t.Errorf("shard %d changed, but is not in plan %s: %+v", s.ID, told, now)
				}
			}
			again, err := mapchange.NewPlan(c, mapchange.Order{Request: r})
			if _, gone := r.(mapchange.Split); gone || name == "merge" {
				return // its shards no longer exist
			}
			if err != nil || again.Change != nil || len(again.Steps) > 0 {
				t.Errorf("the plan of a finished change is not empty: %v, %+v", err, again)
			}
		})
	}
}

// After a rebalance, a shard that was moved to fewer nodes has as many replicas as the others again.
func TestRebalanceEndsAMoveToFewerNodes(t *testing.T) {
	c := cluster(t)
	move, err := mapchange.NewPlan(c, mapchange.Order{Request: mapchange.Move{Shard: 2, To: replicas(t, c, 2)[:1]}, Force: true})
	if err != nil {
		t.Fatal(err)
	}
	follow(t, c, move)
	if got := replicas(t, c, 2); len(got) != 1 {
		t.Fatalf("after the move to one node: on %v", got)
	}
	follow(t, c, judge(t, c, mapchange.Rebalance{}))
	if got := replicas(t, c, 2); len(got) != c.Map.Spec.Replicas {
		t.Errorf("after the rebalance: on %v", got)
	}
}

// The plan shows the bytes of each copy that a node must fetch, if they are known.
func TestPlansShowTheCopiedBytes(t *testing.T) {
	c := cluster(t)
	fresh := stranger(t, c, 2)
	move := mapchange.Order{Request: mapchange.Move{Shard: 2, To: []shard.NodeID{fresh, replicas(t, c, 2)[1]}}}
	p, err := mapchange.NewPlan(c, move)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Steps) != 1 || !slices.Equal(p.Steps[0].Filling, []shard.NodeID{fresh}) || p.Steps[0].Bytes != 1<<10 {
		t.Errorf("got %s", outline(p))
	}
	c.Copies = nil
	if p, err = mapchange.NewPlan(c, move); err != nil || p.Steps[0].Bytes != -1 {
		t.Errorf("with unknown sizes: %v, %s", err, outline(p))
	}
}

// The larger of two shards stays in place.
func TestTheSmallerShardMoves(t *testing.T) {
	for _, larger := range []shard.ID{1, 2} {
		c := cluster(t)
		for _, copies := range c.Copies {
			if held, ok := copies[larger]; ok {
				held.Bytes <<= 10
				copies[larger] = held
			}
		}
		p, err := mapchange.NewPlan(c, mapchange.Order{Request: mapchange.Merge{Shard: 1, With: 2}})
		if err != nil {
			t.Fatal(err)
		}
		if homes := p.Change.(shard.Rehome).Homes; len(homes) != 1 || homes[0].Shard == larger {
			t.Errorf("with shard %d as the larger: %+v", larger, homes)
		}
	}
}

// Progress shows how much of a replica is loaded.
func TestFilling(t *testing.T) {
	c := cluster(t)
	fresh := stranger(t, c, 2)
	p, err := mapchange.NewPlan(c, mapchange.Order{Request: mapchange.Move{Shard: 2, To: []shard.NodeID{replicas(t, c, 2)[0], fresh}}})
	if err != nil {
		t.Fatal(err)
	}
	propose(t, c, p.Change)
	propose(t, c, shard.Assign{Moves: planner.Plan(c.Map, c.Members)})
	c.Copies[fresh][2] = mapchange.Copy{Bytes: 256}
	now := p.Progress(c, new(planner.Planner))
	if want := (mapchange.Filling{Shard: 2, Node: fresh, Bytes: 256, OfBytes: 1 << 10}); now.Done || len(now.Filling) != 1 || now.Filling[0] != want {
		t.Errorf("got %+v", now)
	}
	if !slices.Contains(p.Ask(c.Map), fresh) {
		t.Errorf("asks %v", p.Ask(c.Map))
	}
	delete(c.Copies, fresh)
	if now := p.Progress(c, new(planner.Planner)); now.Done || now.Left != 1 {
		t.Errorf("without an answer of the node: %+v", now)
	}
}

// Progress does not wait for moves with other reasons: here the planner is about
// to replace a node that is gone.
func TestUndrainOfANodeThatIsNotDrainedIsDoneAtOnce(t *testing.T) {
	c := cluster(t)
	var nodes []shard.NodeID
	for i := range c.Members {
		if m := &c.Members[i]; m.Name == c.Map.Shards[0].Replicas[0] {
			m.State = shard.Dead
		} else {
			nodes = append(nodes, m.Name)
		}
	}
	p, err := mapchange.NewPlan(c, mapchange.Order{Request: mapchange.Undrain{Nodes: nodes}})
	if err != nil || p.Change != nil || len(p.Steps) > 0 || len(p.Warnings) != 1 || !strings.HasSuffix(p.Warnings[0], " are not drained") {
		t.Errorf("%v, %+v", err, p)
	}
	if p, err := mapchange.NewPlan(c, mapchange.Order{Request: mapchange.Rebalance{}}); err != nil || len(p.Steps) == 0 {
		t.Errorf("the test needs a planned move: %v, %+v", err, p)
	}
}

// A plan is not done while the planner still has to move a shard or merge two for it,
// even if every existing copy is loaded.
func TestAPlanIsNotDoneBeforeThePlanner(t *testing.T) {
	planned := func(c *mapchange.Cluster) bool {
		var plans planner.Planner
		moves := plans.Plan(c.Map, c.Members)
		if len(moves) > 0 {
			propose(t, c, shard.Assign{Moves: moves})
			load(c)
		}
		return len(moves) > 0
	}
	left := func(what string, c *mapchange.Cluster, p *mapchange.Plan, want bool) {
		t.Helper()
		if now := p.Progress(c, new(planner.Planner)); (now.Left > 0) != want || now.Done == want || len(now.Filling) > 0 {
			t.Errorf("%s: %+v", what, now)
		}
	}
	c := cluster(t)
	var others []shard.NodeID
	for _, m := range c.Members {
		if !slices.Contains(c.Map.Shards[0].Replicas, m.Name) {
			others = append(others, m.Name)
		}
	}
	p := judged(t, c, mapchange.Move{Shard: 1, To: others})
	propose(t, c, p.Change)
	left("a move that is agreed on", c, p, true)
	for planned(c) {
	}
	left("moved", c, p, false)

	c = cluster(t)
	p = judged(t, c, mapchange.Merge{Shard: 1, With: 2})
	propose(t, c, p.Change)
	for planned(c) {
	}
	left("two shards beside each other that are not one yet", c, p, true)
	propose(t, c, planner.Merges(c.Map)[0])
	load(c)
	for planned(c) {
	}
	left("merged", c, p, false)
}
