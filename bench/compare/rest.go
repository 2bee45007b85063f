package main

import (
	"context"
	"fmt"

	"github.com/shardwatch/shardwatch/internal/testing/proc"
)

// restLoads measure the cost of writes, and of idle servers.
func restLoads() []load {
	const many = 64
	return []load{
		{
			name: "write", sides: []string{sideEtcd, sideProxy, sideTier}, standard: true, setup: everywhere(),
			run: unwatchedWrites,
		},
		{name: "idle/default-shards", sides: etcdSides(), standard: true, setup: everywhere(), run: idle},
		{name: fmt.Sprintf("idle/%d-shards", many), sides: etcdSides(), standard: true, setup: over(many), run: idle},
	}
}

// unwatchedWrites measures writes that only the nodes watch.
func unwatchedWrites(ctx context.Context, t *trial) error {
	const perSecond = 1_000
	n := max(1, int(t.deliver.Seconds()*perSecond))
	spent, puts, err := t.unwatched(ctx, shape{what: whatPrefix, watches: 1, size: t.sizes[0]}, n, perSecond)
	if err != nil {
		return err
	}
	t.noteTime(figureWrite, spent.all, int64(n))
	if len(t.side.behind()) > 0 {
		t.noteTime(figureBehind, spent.behind, int64(n))
	}
	t.note(figureUnwatched, unitTime, puts.quantile(0.5).Seconds())
	return nil
}

// idle measures idle processes.
func idle(ctx context.Context, t *trial) error {
	if err := pause(ctx, t.rest); err != nil {
		return err
	}
	before, err := t.side.used()
	if err != nil {
		return err
	}
	if err := pause(ctx, 4*t.rest); err != nil {
		return err
	}
	spent, err := t.side.since(before)
	if err != nil {
		return err
	}
	memory, err := proc.Memory(t.side.servers())
	if err != nil {
		return err
	}
	n := float64(len(t.side.servers()))
	t.note("share of a core, all processes", unitShare, spent.all.Seconds()/spent.wall.Seconds())
	t.note("share of a core, each server", unitShare, (spent.all-spent.behind).Seconds()/spent.wall.Seconds()/n)
	t.note("memory, each server", unitBytes, float64(memory)/n)
	return nil
}
