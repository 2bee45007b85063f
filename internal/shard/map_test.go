package shard_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/maptest"
)

// change makes a change, as the voters do.
func change(t *testing.T, m *shard.Map, c shard.Change) *shard.Map {
	t.Helper()
	b, err := shard.EncodeCommand(shard.Command{IfVersion: m.Version, Change: c})
	if err != nil {
		t.Fatal(err)
	}
	command, err := shard.DecodeCommand(b)
	if err != nil {
		t.Fatal(err)
	}
	next, err := shard.Apply(m, command)
	if err != nil {
		t.Fatalf("%+v: %v", c, err)
	}
	b, err = shard.EncodeMap(next)
	if err != nil {
		t.Fatal(err)
	}
	if back, err := shard.DecodeMap(b); err != nil || !reflect.DeepEqual(back, next) {
		t.Fatalf("%+v came back as %+v, %v", next, back, err)
	}
	return next
}

func ids(ss []shard.Shard) (out []shard.ID) {
	for _, s := range ss {
		out = append(out, s.ID)
	}
	return out
}

func TestFindAndOverlapping(t *testing.T) {
	// Served: [a, c) cut at b, [c, d), [x, ∞) cut at y.
	m := maptest.Found(t, maptest.Spec(9, 1, kv.Range{Start: "a", End: "c"}, kv.Range{Start: "c", End: "d"}, kv.Range{Start: "x"}), "b", "y")
	for key, want := range map[string]shard.ID{"": 0, "A": 0, "a": 1, "az": 1, "b": 2, "c": 3, "c\xff": 3, "d": 0, "w": 0, "x": 4, "y": 5, "\xff\xff": 5} {
		if s, ok := m.Find(key); s.ID != want || ok != (want != 0) {
			t.Errorf("Find(%q) = %d, %v; want %d", key, s.ID, ok, want)
		}
	}
	for _, c := range []struct {
		r      kv.Range
		want   []shard.ID
		covers bool
	}{
		{kv.Range{}, []shard.ID{1, 2, 3, 4, 5}, false},
		{kv.Range{Start: "a", End: "d"}, []shard.ID{1, 2, 3}, true},
		{kv.Range{Start: "aa", End: "b"}, []shard.ID{1}, true},
		{kv.Range{Start: "aa", End: "b\x00"}, []shard.ID{1, 2}, true},
		{kv.Range{Start: "c", End: "e"}, []shard.ID{3}, false},
		{kv.Range{Start: "d", End: "x"}, nil, false},
		{kv.Range{Start: "w", End: "xa"}, []shard.ID{4}, false},
		{kv.Range{Start: "xa"}, []shard.ID{4, 5}, true},
		{kv.Single("y"), []shard.ID{5}, true},
		{kv.Single("e"), nil, false},
	} {
		if got := ids(m.Overlapping(c.r)); !slices.Equal(got, c.want) {
			t.Errorf("Overlapping(%v) = %v, want %v", c.r, got, c.want)
		}
		if got := m.Covers(c.r); got != c.covers {
			t.Errorf("Covers(%v) = %v", c.r, got)
		}
	}
	if s, ok := m.Shard(4); !ok || s.Range.Start != "x" {
		t.Errorf("Shard(4) = %v, %v", s, ok)
	}
	if _, ok := m.Shard(6); ok {
		t.Error("found a shard that does not exist")
	}
}

// Validate reports every mistake in a map, also several at once.
func TestValidate(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*shard.Map)
		want  []string
	}{
		{"hole", func(m *shard.Map) { m.Shards[1].Range.Start = "mm" }, []string{"hole from"}},
		{"hole at the end", func(m *shard.Map) { m.Shards = m.Shards[:1] }, []string{"hole in"}},
		{"no shards", func(m *shard.Map) { m.Shards = nil }, []string{"hole in"}},
		{"overlap", func(m *shard.Map) { m.Shards[1].Range.Start = "l" }, []string{"overlaps"}},
		{"outside", func(m *shard.Map) { m.Spec.Ranges[0].End = "z" }, []string{"extends beyond"}},
		{"behind", func(m *shard.Map) { m.Shards = append(m.Shards, shard.Shard{ID: 9, Epoch: 1}); m.NextID = 10 }, []string{"outside the served"}},
		{"twice", func(m *shard.Map) { m.Shards[1].ID = 1 }, []string{"used twice"}},
		{"future ID", func(m *shard.Map) { m.NextID = 2 }, []string{"shard 2: ID"}},
		{"replica twice", func(m *shard.Map) { m.Shards[0].Replicas = []shard.NodeID{"a", "a"} }, []string{"named twice"}},
		{"nameless", func(m *shard.Map) { m.Shards[0].Replicas = []shard.NodeID{""} }, []string{"empty or not UTF-8"}},
		{"zeros", func(m *shard.Map) {
			m.ClusterID, m.Lineage, m.Version, m.Shards[0].Epoch, m.Spec.Replicas, m.Spec.Shards = "", 0, 0, 0, 0, 0
		}, []string{"cluster ID", "lineage", "version", "epoch", "replicas", "shards"}},
		{"spec", func(m *shard.Map) { m.Spec.Ranges = []kv.Range{{Start: "b", End: "a"}, {Start: "0"}} }, []string{"is empty", "overlaps or precedes"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := maptest.Found(t, maptest.Spec(2, 1), "m")
			if err := m.Validate(); err != nil {
				t.Fatalf("before: %v", err)
			}
			c.spoil(m)
			err := m.Validate()
			if err == nil {
				t.Fatal("not noticed")
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q does not contain %q", err, w)
				}
			}
		})
	}
}
