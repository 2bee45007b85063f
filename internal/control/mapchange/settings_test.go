package mapchange_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/internal/control/mapchange"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// finalize finalizes the newest feature level.
func finalize(t *testing.T, c *mapchange.Cluster) {
	t.Helper()
	propose(t, c, shard.Finalize{Level: shard.Level})
}

// final is a cluster whose settings can be changed.
func final(t *testing.T) *mapchange.Cluster {
	t.Helper()
	c := cluster(t)
	finalize(t, c)
	return c
}

func judged(t *testing.T, c *mapchange.Cluster, r mapchange.Request) *mapchange.Plan {
	t.Helper()
	p, err := mapchange.NewPlan(c, mapchange.Order{Request: r})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// More replicas: each shard is copied to one more node, its owner stays, and the plan
// shows the bytes.
func TestSettingsOfMoreReplicas(t *testing.T) {
	c := final(t)
	before := c.Map
	p := judged(t, c, mapchange.Settings{Replicas: 3})
	if len(p.Steps) != 4 || len(p.Warnings) > 0 {
		t.Fatalf("planned %+v", p)
	}
	for _, s := range p.Steps {
		if len(s.From) != 1 || len(s.To) != 1 || len(s.To[0].Replicas) != 3 || len(s.Filling) == 0 || s.Bytes < 1<<10 {
			t.Errorf("step %+v", s)
		}
	}
	follow(t, c, p)
	for i := range c.Map.Shards {
		s := &c.Map.Shards[i]
		if len(s.Replicas) != 3 || s.Range != before.Shards[i].Range || s.ID != before.Shards[i].ID {
			t.Errorf("shard %+v was %+v", *s, before.Shards[i])
		}
	}
	if again := judged(t, c, mapchange.Settings{Replicas: 3}); again.Change != nil || len(again.Steps) > 0 {
		t.Errorf("again: %+v", again)
	}
}

// Fewer replicas: nothing is copied, each shard keeps nodes that have it, and the plan
// shows the freed bytes.
func TestSettingsOfFewerReplicas(t *testing.T) {
	c := final(t)
	p := judged(t, c, mapchange.Settings{Replicas: 1})
	if len(p.Steps) != 4 || len(p.Warnings) != 1 || !strings.Contains(p.Warnings[0], "one replica") {
		t.Fatalf("planned %+v", p)
	}
	for _, s := range p.Steps {
		if len(s.To[0].Replicas) != 1 || len(s.Filling) > 0 || s.Bytes != 0 || s.Freed != 1<<10 || !slices.Contains(s.From[0].Replicas, s.To[0].Replicas[0]) {
			t.Errorf("step %+v", s)
		}
	}
	c.Copies = nil
	if p := judged(t, c, mapchange.Settings{Replicas: 1}); p.Steps[0].Freed != -1 {
		t.Errorf("freed %d bytes of copies of unknown size", p.Steps[0].Freed)
	}
	load(c)
	follow(t, c, p)
}

// Fewer served keys: shards outside end, shards at the edge are cut in place, all
// others stay. The warning describes the effect on watches.
func TestSettingsOfFewerServedKeys(t *testing.T) {
	c := final(t)
	p := judged(t, c, mapchange.Settings{Ranges: []kv.Range{{Start: "/m", End: "/t"}, {Start: "/h", End: "/i"}}})
	if len(p.Warnings) != 2 || !strings.Contains(p.Warnings[0], `only "/h", ["/m", "/t") is served then: all other watches end`) {
		t.Errorf("warned %q", p.Warnings)
	}
	type part struct {
		from shard.ID
		to   kv.Range
	}
	var got []part
	for _, s := range p.Steps {
		if len(s.Filling) > 0 || s.Bytes != 0 {
			t.Errorf("copies for step %+v", s)
		}
		one := part{from: s.From[0].ID}
		if len(s.To) > 0 {
			one.to = s.To[0].Range
			if s.To[0].ID != 5 || s.Freed != 0 {
				t.Errorf("cut %+v", s)
			}
		} else if s.Freed != 2<<10 {
			t.Errorf("%d bytes freed by shard %d on two nodes", s.Freed, s.From[0].ID)
		}
		got = append(got, one)
	}
	if !slices.Equal(got, []part{{1, kv.Range{}}, {2, kv.Range{Start: "/h", End: "/i"}}, {4, kv.Range{}}}) {
		t.Errorf("planned %+v", p.Steps)
	}
	follow(t, c, p)
	if again := judged(t, c, mapchange.Settings{Ranges: []kv.Range{{Start: "/h", End: "/i"}, {Start: "/m", End: "/t"}}}); again.Change != nil {
		t.Errorf("again: %+v", again)
	}
}

// The plan shows how many watches end, and which nodes are not counted.
func TestThePlanCountsTheWatchesThatEnd(t *testing.T) {
	c := final(t)
	fewer := mapchange.Settings{Ranges: []kv.Range{{Start: "/m", End: "/t"}, {Start: "/h", End: "/i"}}}
	nodes := mapchange.AskEnding(c.Map, c.Members, fewer)
	if len(nodes) != len(c.Members) {
		t.Fatalf("the plan asks nodes %v of %d members", nodes, len(c.Members))
	}
	c.Ending = make(map[shard.NodeID]mapchange.Ending)
	for _, n := range nodes[1:] {
		c.Ending[n] = mapchange.Ending{Native: 2, Etcd: 3}
	}
	all := len(nodes) - 1
	want := fmt.Sprintf("watches that end: %d of the native API, %d of etcd's API; those at %s are not counted, because it did not answer", 2*all, 3*all, nodes[0])
	if p := judged(t, c, fewer); len(p.Warnings) != 2 || p.Warnings[1] != want {
		t.Errorf("warned %q, want %q", p.Warnings, want)
	}
	c.Members[0].State = shard.Left // it has no watches
	if nodes := mapchange.AskEnding(c.Map, c.Members, fewer); len(nodes) != all || slices.Contains(nodes, c.Members[0].Name) {
		t.Errorf("asks %v", nodes)
	}
	want = fmt.Sprintf("watches that end: %d of the native API, %d of etcd's API", 2*all, 3*all)
	if p := judged(t, c, fewer); p.Warnings[1] != want {
		t.Errorf("warned %q, want %q", p.Warnings, want)
	}
	for _, r := range []mapchange.Request{
		mapchange.Settings{Replicas: 3},
		mapchange.Rebalance{},
		mapchange.Settings{Ranges: []kv.Range{{}}},
		mapchange.Settings{Ranges: []kv.Range{{Start: "/m"}, {End: "/m"}}}, // all keys, in two parts
	} {
		if nodes := mapchange.AskEnding(c.Map, c.Members, r); len(nodes) > 0 {
			t.Errorf("%v ends no watches, but its plan asks nodes %v", r, nodes)
		}
	}
}

// More served keys: every shard stays unchanged, and new shards of unknown size are
// added.
func TestSettingsOfMoreServedKeys(t *testing.T) {
	c := final(t)
	follow(t, c, judged(t, c, mapchange.Settings{Ranges: []kv.Range{{Start: "/h", End: "/i"}, {Start: "/m", End: "/t"}}}))
	before := c.Map
	p := judged(t, c, mapchange.Settings{Ranges: []kv.Range{{}}, Replicas: 2})
	if len(p.Warnings) > 0 || len(p.Steps) < 3 {
		t.Fatalf("planned %+v", p)
	}
	fresh := 0
	for _, s := range p.Steps {
		if len(s.From) > 0 { // the owners are rebalanced
			continue
		}
		fresh++
		if len(s.To) != 1 || len(s.To[0].Replicas) != 2 || len(s.Filling) != 2 || s.Bytes != -1 {
			t.Errorf("step %+v", s)
		}
	}
	if fresh != 3 {
		t.Errorf("%d new shards: %+v", fresh, p.Steps)
	}
	follow(t, c, p)
	for _, old := range before.Shards {
		if s, ok := c.Map.Shard(old.ID); !ok || s.Range != old.Range {
			t.Errorf("shard %+v has become %+v", old, s)
		}
	}
}

// Invalid settings are refused with the remedy; risky settings need Force.
func TestSettingsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		request     mapchange.Settings
		field, says string
		force       bool
	}{
		"nothing":              {mapchange.Settings{}, "settings", "name the number of replicas or the served keys", false},
		"below one replica":    {mapchange.Settings{Replicas: -1}, "replicas", "-1: use 1 to 64", false},
		"too many replicas":    {mapchange.Settings{Replicas: 65}, "replicas", "65: use 1 to 64", false},
		"no keys":              {mapchange.Settings{Ranges: []kv.Range{{Start: "/b", End: "/a"}}}, "served", "has no keys", false},
		"twice":                {mapchange.Settings{Ranges: []kv.Range{kv.Prefix("/a"), kv.Prefix("/a")}}, "served", "is given twice", false},
		"overlap":              {mapchange.Settings{Ranges: []kv.Range{kv.Prefix("/ab"), kv.Prefix("/a")}}, "served", "overlap: keep the wider one", false},
		"too many ranges":      {mapchange.Settings{Ranges: make([]kv.Range, shard.MaxRanges+1)}, "served", "257 ranges: use 256 at most", false},
		"too many bytes":       {mapchange.Settings{Ranges: []kv.Range{kv.Prefix(strings.Repeat("x", 40_000))}}, "served", "80000 bytes together: use 65536 at most", false},
		"nothing that is kept": {mapchange.Settings{Ranges: []kv.Range{kv.Prefix("/u")}}, "served", `none of the keys that are served now would still be served: ["", "/t") now, "/u" then`, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := final(t)
			if test.force { // the second served range has them
				propose(t, c, shard.Configure{Replicas: 2, Ranges: []kv.Range{{End: "/t"}}})
			}
			_, err := mapchange.NewPlan(c, mapchange.Order{Request: test.request})
			field, text, force := "", "", false
			var invalid *kv.InvalidError
			var refused *mapchange.RefusedError
			switch {
			case errors.As(err, &invalid):
				field, text = invalid.Field, invalid.Reason
			case errors.As(err, &refused):
				field, text, force = refused.Field, refused.Reason, refused.Force
			}
			if field != test.field || !strings.Contains(text, test.says) || force != test.force {
				t.Errorf("%v", err)
			}
			if _, err := mapchange.NewPlan(c, mapchange.Order{Request: test.request, Force: true}); (err == nil) != test.force {
				t.Errorf("with force: %v", err)
			}
		})
	}
}

// The plan warns of more replicas than nodes, and of shards that were moved by hand.
func TestSettingsWarnings(t *testing.T) {
	c := final(t)
	propose(t, c, shard.Rehome{Homes: []shard.ShardHome{{Shard: 1, Home: shard.Home{Pins: replicas(t, c, 1)[:1], Replicas: 1}}}})
	propose(t, c, shard.Drain{Nodes: []shard.NodeID{stranger(t, c, 1)}})
	p := judged(t, c, mapchange.Settings{Replicas: 5})
	if len(p.Warnings) != 2 || p.Warnings[0] != "3 nodes can have shards now: each shard has 3 of 5 replicas until more nodes join" ||
		!strings.HasPrefix(p.Warnings[1], "1 shard moved by hand") {
		t.Errorf("warned %q", p.Warnings)
	}
}

func TestSettingsAreNamedInLogs(t *testing.T) {
	r := mapchange.Settings{Replicas: 2, Ranges: []kv.Range{{}, kv.Prefix("/a/"), {Start: "b", End: "x"}}}
	if got := r.String(); got != `set replicas 2, serve all keys, "/a/", ["b", "x")` {
		t.Error(got)
	}
}

// A dry run also reports that the change cannot be made yet.
func TestSettingsOfAClusterThatIsNotFinalized(t *testing.T) {
	c := cluster(t)
	var notFinal *shard.NotFinalError
	if _, err := mapchange.NewPlan(c, mapchange.Order{Request: mapchange.Settings{Replicas: 3}, DryRun: true, Force: true}); !errors.As(err, &notFinal) {
		t.Errorf("%v", err)
	}
	c = final(t)
	c.Members[0].Level = shard.LevelWatches
	if p, err := mapchange.NewPlan(c, mapchange.Order{Request: mapchange.Settings{Replicas: 2}}); err != nil || p.Change != nil {
		t.Errorf("nothing to change: %v, %+v", err, p)
	}
}
