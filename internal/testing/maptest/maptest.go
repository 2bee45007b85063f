// Package maptest makes shard maps for tests.
package maptest

import (
	"testing"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// Spec returns a specification of the ranges; without ranges, of all keys.
func Spec(shards, replicas int, ranges ...kv.Range) shard.Spec {
	if len(ranges) == 0 {
		ranges = []kv.Range{{}}
	}
	return shard.Spec{Ranges: ranges, Shards: shards, Replicas: replicas}
}

// Found returns the first map of a cluster, without replicas.
func Found(tb testing.TB, s shard.Spec, cuts ...string) *shard.Map {
	tb.Helper()
	return found(tb, shard.Found{ClusterID: "c", EtcdClusterID: 7, Spec: s, Cuts: cuts})
}

// Pair returns a map of two shards, cut at m, each with the replicas.
func Pair(tb testing.TB, replicas ...shard.NodeID) *shard.Map {
	tb.Helper()
	return found(tb, shard.Found{
		ClusterID: "c", EtcdClusterID: 1, Spec: Spec(2, 2), Cuts: []string{"m"}, Replicas: [][]shard.NodeID{replicas, replicas},
	})
}

func found(tb testing.TB, c shard.Found) *shard.Map {
	tb.Helper()
	m, err := shard.Apply(nil, shard.Command{Change: c})
	if err != nil {
		tb.Fatal(err)
	}
	return m
}
