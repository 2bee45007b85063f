package main

import (
	"log/slog"
	"testing"

	"github.com/shardwatch/shardwatch/internal/ops/config"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// What --weight says is gossiped, and has the bound that the planner has.
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
