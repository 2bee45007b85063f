package config_test

import (
	"fmt"
	"testing"

	"github.com/shardwatch/shardwatch/internal/ops/config"
)

// Without --shards a cluster begins with one shard if each node has a replica of it,
// otherwise with one shard for each node, and with at least one for each prefix.
func TestAClusterBeginsWithTheShardsThatItsNodesNeed(t *testing.T) {
	for _, c := range []struct{ shards, expect, replicas, prefixes, want int }{
		{0, 3, 3, 0, 1},
		{0, 5, 5, 0, 1},
		{0, 5, 3, 0, 5},
		{0, 3, 2, 0, 3},
		{0, 3, 1, 0, 3},
		{0, 1, 3, 0, 1},
		{0, 0, 3, 0, 1}, // only joins: other nodes have founded
		{0, 3, 3, 4, 4},
		{0, 5, 3, 4, 5},
		{0, 5, 3, 6, 6},
		{16, 3, 3, 0, 16},
		{2, 3, 3, 0, 2},
	} {
		t.Run(fmt.Sprintf("--shards %d --bootstrap-expect %d --replicas %d and %d prefixes", c.shards, c.expect, c.replicas, c.prefixes), func(t *testing.T) {
			cfg := config.Defaults()
			cfg.BootstrapExpect, cfg.Replicas, cfg.Prefixes = c.expect, c.replicas, make([]string, c.prefixes)
			if c.shards > 0 {
				cfg.Shards = c.shards
			}
			if got := cfg.FoundingShards(); got != c.want {
				t.Errorf("%d shards, want %d", got, c.want)
			}
		})
	}
}

// Not all nodes of a dev cluster vote, but each owns a shard.
func TestADevClusterBeginsWithAShardForEachNode(t *testing.T) {
	for _, nodes := range []int{1, 2, 3, 4, 7} {
		d := config.DevDefaults()
		d.Nodes = nodes
		for i := range nodes {
			if got := d.Node(i, "d").FoundingShards(); got != nodes {
				t.Errorf("node %d of %d founds %d shards, want one for each node", i+1, nodes, got)
			}
		}
		if d.Shards = 16; d.Node(0, "d").FoundingShards() != 16 {
			t.Error("--shards 16 has no effect")
		}
	}
}
