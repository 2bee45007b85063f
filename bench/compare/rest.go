package main

import (
	"context"
	"fmt"
)

// restLoads are what it costs to write, and to do nothing.
func restLoads(c *config) []load {
	const shards = 64
	return []load{
		{
			name: "write", sides: []string{sideEtcd, sideProxy, sideTier}, standard: true, setup: elsewhere(),
			run: unwatchedWrites,
		},
		{
			name: fmt.Sprintf("idle/%d-shards", shards), sides: etcdSides(), standard: true,
			setup: setup{nodeArgs: []string{"--shards", fmt.Sprint(shards)}, keys: 10 * shards, size: c.sizes[0], key: func(i int) string {
				return fmt.Sprintf("/idle/%05d/key", i)
			}},
			run: idle,
		},
	}
}

// unwatchedWrites are writes that nobody watches but the nodes.
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

// idle measures processes of which nobody wants anything.
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
	n := len(t.side.servers())
	t.note("share of a core, each server", unitShare, (spent.all-spent.behind).Seconds()/spent.wall.Seconds()/float64(n))
	t.note("share of a core, all with etcd", unitShare, spent.all.Seconds()/spent.wall.Seconds())
	return nil
}
