package main

import (
	"log/slog"
	"testing"

	"github.com/shardwatch/shardwatch/internal/ops/config"
)

// Nodes with default settings found a cluster of one shard if each node has a replica of it. The
// settings of nodes that only join are valid.
func TestTheSpecificationHasTheShardsThatTheFoundersNeed(t *testing.T) {
	for expect, want := range map[int]int{0: 1, 1: 1, 3: 1, 5: 5} {
		cfg := config.Defaults()
		cfg.Name, cfg.Advertise, cfg.BootstrapExpect = "n1", "127.0.0.1", expect
		nc, err := nodeConfig(cfg, nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if err := nc.Spec.Validate(); err != nil || nc.Spec.Shards != want {
			t.Errorf("--bootstrap-expect %d: %d shards (%v), want %d", expect, nc.Spec.Shards, err, want)
		}
	}
}
