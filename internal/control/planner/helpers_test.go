package planner_test

import (
	"math/rand/v2"
	"testing"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

func newRand(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func spec(shards, replicas int, ranges ...kv.Range) shard.Spec {
	if len(ranges) == 0 {
		ranges = []kv.Range{{}}
	}
	return shard.Spec{Ranges: ranges, Shards: shards, Replicas: replicas}
}

func found(t *testing.T, s shard.Spec, cuts ...string) *shard.Map {
	t.Helper()
	m, err := shard.Apply(nil, shard.Command{Change: shard.Found{ClusterID: "c", EtcdClusterID: 7, Spec: s, Cuts: cuts}})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func change(t *testing.T, m *shard.Map, c shard.Change) *shard.Map {
	t.Helper()
	next, err := shard.Apply(m, shard.Command{IfVersion: m.Version, Change: c})
	if err != nil {
		t.Fatalf("%+v: %v", c, err)
	}
	return next
}
