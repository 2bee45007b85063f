package main

import (
	"log/slog"
	"testing"

	"github.com/shardwatch/shardwatch/internal/ops/config"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// The value of --weight is gossiped, and has the same bound as in the planner.
func TestTheWeightIsGossiped(t *testing.T) {
	cfg := config.Defaults()
	cfg.Name, cfg.Advertise, cfg.Weight = "n1", "127.0.0.1", config.MaxWeight
	nc, err := nodeConfig(cfg, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if nc.Self.Weight != shard.MaxWeight {
		t.Errorf("the node gossips weight %d, want %d", nc.Self.Weight, shard.MaxWeight)
	}
}
