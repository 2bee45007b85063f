package shard_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/maptest"
)

// three is a map of shards 1 [, g), 2 [g, m) and 3 [m, ), all on n and o.
func three(t *testing.T) *shard.Map {
	t.Helper()
	m := maptest.Found(t, maptest.Spec(3, 2), "g", "m")
	for i := range m.Shards {
		m.Shards[i].Replicas = []shard.NodeID{"n", "o"}
	}
	return m
}

// A merge must name neighbours in key order, anywhere in the map.
func TestAMergeNamesNeighboursInOrder(t *testing.T) {
	m := three(t)
	for _, ids := range [][]shard.ID{{1, 3}, {2, 1}, {3, 2}, {2, 3, 1}, {1, 2, 2}, {3, 3}} {
		if _, err := shard.Apply(m, shard.Command{IfVersion: 1, Change: shard.Merge{Shards: ids, Replicas: []shard.NodeID{"n"}}}); !errors.Is(err, shard.ErrInvalid) {
			t.Errorf("%v: %v", ids, err)
		}
	}
	for _, ids := range [][]shard.ID{{1, 2}, {2, 3}, {1, 2, 3}} {
		next := change(t, m, shard.Merge{Shards: ids, Replicas: []shard.NodeID{"o", "n"}})
		s, ok := next.Shard(4)
		first, _ := m.Shard(ids[0])
		last, _ := m.Shard(ids[len(ids)-1])
		if !ok || s.Range != (kv.Range{Start: first.Range.Start, End: last.Range.End}) || len(next.Shards) != 4-len(ids) || s.Seat() != ids[0] {
			t.Errorf("%v: %+v", ids, next.Shards)
		}
	}
	// Every replica of a merge must have every part.
	m.Shards[1].Replicas = []shard.NodeID{"n"}
	for node, ok := range map[shard.NodeID]bool{"n": true, "o": false} {
		if _, err := shard.Apply(m, shard.Command{IfVersion: 1, Change: shard.Merge{Shards: []shard.ID{1, 2}, Replicas: []shard.NodeID{node}}}); (err == nil) != ok {
			t.Errorf("to %s: %v", node, err)
		}
	}
}

// The parts of a split inherit pins, replicas and the record of watches; their seats depend
// on Stay.
func TestHomesOfTheParts(t *testing.T) {
	m := three(t)
	home := shard.Home{Seat: 1, Pins: []shard.NodeID{"n"}, Replicas: 2, Parting: 5, Whole: 6}
	m = change(t, m, shard.Rehome{Homes: []shard.ShardHome{{Shard: 2, Home: home}}})
	for _, c := range []struct {
		split          shard.Split
		first, other   shard.ID // seats; 0: their own
		parting, whole int
	}{
		{shard.Split{Shard: 2, At: []string{"h"}}, 0, 0, 5, 6},
		{shard.Split{Shard: 2, At: []string{"h"}, Stay: true}, 1, 0, 5, 6},
		{shard.Split{Shard: 2, At: []string{"h"}, Watches: 9}, 0, 0, 9, 0},
	} {
		next := change(t, m, c.split)
		for i, seat := range []shard.ID{c.first, c.other} {
			h := next.Shards[1+i].Home
			if h.Seat != seat || h.Parting != c.parting || h.Whole != c.whole || !slices.Equal(h.Pins, home.Pins) || h.Replicas != 2 {
				t.Errorf("%+v: part %d has home %+v", c.split, i, h)
			}
		}
	}
	if own := change(t, m, shard.Rehome{Homes: []shard.ShardHome{{Shard: 2, Home: shard.Home{Seat: 2}}}}); own.Shards[1].Home.Seat != 0 {
		t.Errorf("a shard's own seat is recorded: %+v", own.Shards[1].Home)
	}
}

// An undone drain leaves the other nodes drained.
func TestUndrainAffectsOnlyTheNamedNodes(t *testing.T) {
	m := change(t, three(t), shard.Drain{Nodes: []shard.NodeID{"b", "a", "b"}})
	if !slices.Equal(m.Drained, []shard.NodeID{"a", "b"}) || !m.IsDrained("a") || m.IsDrained("c") {
		t.Errorf("drained: %v", m.Drained)
	}
	m = change(t, m, shard.Drain{Nodes: []shard.NodeID{"a", "c"}, Undo: true})
	if !slices.Equal(m.Drained, []shard.NodeID{"b"}) {
		t.Errorf("drained: %v", m.Drained)
	}
	if m = change(t, m, shard.Drain{Nodes: []shard.NodeID{"b"}, Undo: true}); m.Drained != nil {
		t.Errorf("drained: %v", m.Drained)
	}
}

// A delta only fits the map that it was made for.
func TestADeltaFitsOneMap(t *testing.T) {
	m := three(t)
	next := change(t, change(t, m, shard.Split{Shard: 2, At: []string{"h", "i"}}), shard.Merge{Shards: []shard.ID{6, 3}, Replicas: []shard.NodeID{"n"}})
	d := shard.Diff(m, next)
	if d.From != 1 || d.Version() != 3 || d.Size() != 5 || len(d.Removed) != 2 || d.Removed[0].ID != 2 || d.Removed[1].ID != 3 {
		t.Errorf("from %d to %d, %d shards, removed %v", d.From, d.Version(), d.Size(), ids(d.Removed))
	}
	if got, err := d.Apply(m); err != nil || !slices.Equal(ids(got.Shards), ids(next.Shards)) {
		t.Errorf("%v", err)
	}
	foreign, later := m.Clone(), m.Clone()
	foreign.ClusterID = "other"
	later.Version = 2
	for what, m := range map[string]*shard.Map{"none": nil, "of another cluster": foreign, "of another version": later} {
		if got, err := d.Apply(m); !errors.Is(err, shard.ErrOtherMap) || got != nil {
			t.Errorf("to a map %s: %v, %v", what, got, err)
		}
	}
	torn := m.Clone()
	torn.Shards = torn.Shards[1:]
	if got, err := d.Apply(torn); err == nil || got != nil {
		t.Error("to a map with a hole")
	}
	if _, err := shard.DecodeDelta([]byte("\x01{")); !errors.Is(err, shard.ErrMalformed) {
		t.Errorf("torn: %v", err)
	}
}

// A clone shares no memory.
func TestACloneSharesNothing(t *testing.T) {
	m := three(t)
	m.Drained, m.Shards[0].Home.Pins = []shard.NodeID{"d"}, []shard.NodeID{"n"}
	c := m.Clone()
	c.Drained[0], c.Shards[0].Home.Pins[0], c.Shards[0].Replicas[0], c.Spec.Ranges[0].Start, c.Shards[1].ID = "x", "x", "x", "x", 9
	if m.Drained[0] != "d" || m.Shards[0].Home.Pins[0] != "n" || m.Shards[0].Replicas[0] != "n" || m.Spec.Ranges[0].Start != "" || m.Shards[1].ID != 2 {
		t.Errorf("changed with its clone: %+v", m)
	}
	if (*shard.Map)(nil).Clone() != nil {
		t.Error("the clone of nil is a map")
	}
}

// Neighbours that are about to be merged, and neighbours that can be.
func TestNeighboursThatCanMerge(t *testing.T) {
	together := func(m *shard.Map) *shard.Map {
		r, err := planner.Together(m, 1, 2)
		if err != nil {
			t.Fatal(err)
		}
		return change(t, m, r)
	}
	for what, c := range map[string]struct {
		given  func(m *shard.Map)
		joins  bool
		merges int
	}{
		"nothing speaks against it":  {func(*shard.Map) {}, true, 1},
		"in another order":           {func(m *shard.Map) { m.Shards[1].Replicas = []shard.NodeID{"o", "n"} }, true, 1},
		"other replicas":             {func(m *shard.Map) { m.Shards[1].Replicas = []shard.NodeID{"n", "p"} }, true, 0},
		"fewer replicas":             {func(m *shard.Map) { m.Shards[1].Replicas = []shard.NodeID{"n"} }, true, 0},
		"more replicas":              {func(m *shard.Map) { m.Shards[1].Replicas = []shard.NodeID{"n", "o", "p"} }, true, 0},
		"none":                       {func(m *shard.Map) { m.Shards[0].Replicas = nil }, false, 0},
		"pinned to another node":     {func(m *shard.Map) { m.Shards[1].Home.Pins = []shard.NodeID{"o"} }, false, 0},
		"another number of replicas": {func(m *shard.Map) { m.Shards[1].Home.Replicas = 3 }, false, 0},
		"another seat":               {func(m *shard.Map) { m.Shards[1].Home.Seat = 0 }, false, 0},
		"in two served ranges":       {func(m *shard.Map) { m.Spec.Ranges = []kv.Range{{End: "g"}, {Start: "g"}} }, false, 0},
		"not side by side":           {func(m *shard.Map) { m.Shards[1].Range.Start = "h" }, false, 0},
	} {
		m := together(three(t)).Clone()
		c.given(m)
		if m.Joins(0) != c.joins || m.Joins(1) != c.joins || m.Joins(2) || (m.Joining() == 1) != c.joins {
			t.Errorf("%s: joins %v, %v, %v, %d in total", what, m.Joins(0), m.Joins(1), m.Joins(2), m.Joining())
		}
		if got := planner.Merges(m); len(got) != c.merges || (c.merges == 1 && !slices.Equal(got[0].Shards, []shard.ID{1, 2})) {
			t.Errorf("%s: merges %+v", what, got)
		}
	}
	m := three(t)
	for i, want := range map[int]bool{-1: false, 0: true, 1: true, 2: false, 3: false} {
		if m.Mergeable(i) != want {
			t.Errorf("Mergeable(%d) = %v", i, !want)
		}
	}
	// Loosen ends the merge, and keeps the parts of a split in place.
	if r := planner.Loosen(together(m)); len(r.Homes) != 1 || r.Homes[0].Shard != 2 || r.Homes[0].Home.Seat != 0 {
		t.Errorf("loosened: %+v", r)
	}
	stays := change(t, m, shard.Split{Shard: 1, At: []string{"c"}, Stay: true})
	if r := planner.Loosen(stays); len(r.Homes) != 0 {
		t.Errorf("Loosen after a split with Stay: %+v", r)
	}
}

// A range overlaps the right shards, and is covered only if all of it is served.
func TestRangesBetweenServedOnes(t *testing.T) {
	m := maptest.Found(t, maptest.Spec(2, 1, kv.Range{Start: "b", End: "d"}, kv.Range{Start: "d", End: "f"}, kv.Range{Start: "h", End: "k"}))
	for r, want := range map[kv.Range]int{
		{Start: "a", End: "b"}: 0, {Start: "f", End: "h"}: 0, {Start: "k"}: 0, {Start: "f", End: "g"}: 0,
		{Start: "a", End: "b\x00"}: 1, {Start: "c", End: "d"}: 1, {Start: "c", End: "d\x00"}: 2, {Start: "e"}: 2, {}: 3,
	} {
		got := m.Overlapping(r)
		if len(got) != want || (want == 0 && got != nil) {
			t.Errorf("%v: %d shards, want %d", r, len(got), want)
		}
	}
	for r, want := range map[kv.Range]bool{
		{Start: "b", End: "f"}: true, {Start: "b", End: "f\x00"}: false, {Start: "c", End: "e"}: true, {Start: "e", End: "i"}: false,
		{Start: "h"}: false, {Start: "h", End: "k"}: true, {Start: "g", End: "h"}: false, {Start: "a", End: "c"}: false,
	} {
		if m.Covers(r) != want {
			t.Errorf("%v: covered %v", r, !want)
		}
	}
	if open := maptest.Found(t, maptest.Spec(1, 1, kv.Range{Start: "b"})); !open.Covers(kv.Range{Start: "b"}) || !open.Covers(kv.Range{Start: "c", End: "d"}) || open.Covers(kv.Range{}) {
		t.Error("wrong result for a range without an end")
	}
	for key, want := range map[string]shard.ID{"a": 0, "b": 1, "cc": 1, "d": 2, "f": 0, "g": 0, "h": 3, "k": 0} {
		if s, ok := m.Find(key); s.ID != want || ok != (want != 0) {
			t.Errorf("%s is in shard %d, want %d", key, s.ID, want)
		}
	}
}

// Error messages contain the data that callers need.
func TestErrorsOfChanges(t *testing.T) {
	for want, err := range map[string]error{
		"made for map version 3, the current one is 5": &shard.StaleError{IfVersion: 3, Current: 5},
		"made to end lineage 3, the current one is 5":  &shard.LineageError{Ended: 3, Current: 5},
		"node n leads the voters":                      &shard.LeaderError{Leader: "n"},
		"no leader of the voters is known":             &shard.LeaderError{},
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q, want %q", err, want)
		}
	}
	if n := shard.CommandLevel(nil); n != 0 {
		t.Errorf("no command has level %d", n)
	}
	m := three(t)
	_, err := shard.Apply(m, shard.Command{IfVersion: 1, Change: shard.Split{Shard: 2, At: []string{"z"}}})
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("cut %q is outside", "z")) {
		t.Errorf("a cut elsewhere: %v", err)
	}
}
