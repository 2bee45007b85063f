package shard_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

func TestUnderstood(t *testing.T) {
	members := []shard.Member{
		{Name: "c", Level: shard.Level, State: shard.Alive},
		{Name: "b", State: shard.Dead},
		{Name: "a", Level: 2, State: shard.Suspect},
		{Name: "d", Level: 1, State: shard.Left},
	}
	if err := shard.Understood(2, members); err != nil {
		t.Errorf("a level from before members announced levels: %v", err)
	}
	err := shard.Understood(3, members)
	old := new(shard.OldMembersError)
	if !errors.As(err, &old) || !slices.Equal(old.Members, []shard.NodeID{"a", "b"}) || !errors.Is(err, shard.ErrRefused) {
		t.Errorf("%v", err)
	}
}

// A feature level is used when an operator has finalized it, not as soon as the
// present members understand it: nodes can be downgraded until then.
func TestALevelIsUsedOnceItIsFinal(t *testing.T) {
	upgraded := []shard.Member{{Name: "a", Level: shard.Level, State: shard.Alive}, {Name: "b", Level: shard.Level, State: shard.Alive}}
	mixed := []shard.Member{upgraded[0], {Name: "b", Level: shard.LevelWatches, State: shard.Dead}}
	first := &shard.Map{Shards: []shard.Shard{{ID: 1}}}
	drained := &shard.Map{Drained: []shard.NodeID{"b"}}
	final := &shard.Map{Finalized: shard.LevelSettings}
	older := []shard.Member{upgraded[0], {Name: "b", Level: 2, State: shard.Alive}}
	for _, c := range []struct {
		name    string
		m       *shard.Map
		change  shard.Change
		level   int
		members []shard.Member
		want    string // part of the error
	}{
		{"a new level, all understand it", first, shard.Assign{}, shard.LevelSettings, upgraded, "level 5, and level 4 is finalized: upgrade all nodes, then run cachectl upgrade finalize"},
		{"a new level after it is final", final, shard.Assign{}, shard.LevelSettings, upgraded, ""},
		{"a final level, an older node tries to join", final, shard.Assign{}, shard.LevelSettings, mixed, ""},
		{"to finalize, all understand it", first, shard.Finalize{Level: 5}, shard.LevelSettings, upgraded, ""},
		{"to finalize, a dead member is older", first, shard.Finalize{Level: 5}, shard.LevelSettings, mixed, "members [b] run older software"},
		{"to found", nil, shard.Found{}, shard.LevelSettings, upgraded, ""},
		{"to found with older members", nil, shard.Found{}, shard.LevelSettings, mixed, "members [b] run older software"},
		{"a level from before levels were final", first, shard.Drain{}, shard.LevelHomes, mixed, ""},
		{"and a member does not understand it", first, shard.Drain{}, shard.LevelHomes, older, "members [b] run older software"},
		{"and the map has it already", drained, shard.Drain{}, shard.LevelHomes, older, ""},
	} {
		err := shard.Allows(c.m, c.change, c.level, c.members)
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || !errors.Is(err, shard.ErrRefused)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if got := shard.Common(mixed); got != shard.LevelWatches {
		t.Errorf("common level of the members: %d", got)
	}
	mixed[1].State = shard.Left
	if got := shard.Common(mixed); got != shard.Level {
		t.Errorf("common level of the members that have not left: %d", got)
	}
}

// The finalized level is in the map from its founding, it only grows, and software of
// an older level cannot read the map.
func TestFinalize(t *testing.T) {
	found := shard.Found{ClusterID: "c", EtcdClusterID: 1, Spec: shard.Spec{Ranges: []kv.Range{{}}, Shards: 1, Replicas: 1}}
	old, err := shard.Apply(nil, shard.Command{Change: found})
	if err != nil || old.Finalized != 0 || old.Level() != 1 || old.FinalLevel() != shard.LevelWatches {
		t.Fatalf("a map without a finalized level: %+v, %v", old, err)
	}
	found.Finalized = shard.Level
	if m, err := shard.Apply(nil, shard.Command{Change: found}); err != nil || m.FinalLevel() != shard.Level {
		t.Errorf("a new cluster: %+v, %v", m, err)
	}
	final := change(t, old, shard.Finalize{Level: shard.LevelSettings})
	if final.FinalLevel() != shard.LevelSettings || final.Level() != shard.LevelSettings || old.Finalized != 0 {
		t.Errorf("after finalize: %+v", final)
	}
	b, err := shard.EncodeMap(final)
	if err != nil || b[0] != shard.LevelSettings {
		t.Errorf("the map is written with level %d, %v", b[0], err)
	}
	for _, level := range []int{shard.LevelSettings, shard.LevelSettings - 1, 0} {
		if _, err := shard.Apply(final, shard.Command{IfVersion: final.Version, Change: shard.Finalize{Level: level}}); !errors.Is(err, shard.ErrInvalid) {
			t.Errorf("finalize %d again: %v", level, err)
		}
	}
	for _, level := range []int{-1, shard.LevelWatches, shard.Level + 1} {
		m := final.Clone()
		m.Finalized = level
		if err := m.Validate(); err == nil || !strings.Contains(err.Error(), "finalized feature level") {
			t.Errorf("a map with finalized level %d: %v", level, err)
		}
	}
}
