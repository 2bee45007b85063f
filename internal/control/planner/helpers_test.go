package planner_test

import (
	"testing"

	"github.com/shardwatch/shardwatch/internal/shard"
)

func change(t *testing.T, m *shard.Map, c shard.Change) *shard.Map {
	t.Helper()
	next, err := shard.Apply(m, shard.Command{IfVersion: m.Version, Change: c})
	if err != nil {
		t.Fatalf("%+v: %v", c, err)
	}
	return next
}
