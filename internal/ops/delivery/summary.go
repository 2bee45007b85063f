package delivery

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/shardwatch/shardwatch/internal/replica"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wait"
)

// summary sums up events that concern many shards at a time. The loss of a node gives
// one line for each kind of reaction of the other nodes, and not one per shard.
type summary struct {
	log *slog.Logger

	mu    sync.Mutex
	sums  map[event]*figures // guarded by mu
	order []event            // guarded by mu; of sums, as they came
	some  wait.Bell          // there are sums
}

type event struct {
	what   replica.What
	source string
}

type figures struct {
	shards  map[shard.ID]struct{}
	first   error
	longest time.Duration
}

// summaryEvery is for how long things are collected.
const summaryEvery = time.Second

func newSummary(log *slog.Logger) *summary {
	return &summary{log: log, sums: make(map[event]*figures), some: wait.NewBell()}
}

// add does not block. Handing shards over is part of a drain, which is reported by
// the node that drains; this node reports the new source instead.
func (d *summary) add(id shard.ID, n replica.Notice) {
	if n.What == replica.HandedOn {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	key := event{n.What, n.Source}
	sum := d.sums[key]
	if sum == nil {
		sum = &figures{shards: make(map[shard.ID]struct{}), first: n.Err}
		d.sums[key] = sum
		d.order = append(d.order, key)
	}
	sum.shards[id] = struct{}{}
	if !n.Began.IsZero() {
		sum.longest = max(sum.longest, time.Since(n.Began))
	}
	d.some.Wake()
}

// run logs the sums until ctx ends.
func (d *summary) run(ctx context.Context) {
	defer d.tell()
	for {
		if !wait.For(ctx, d.some) {
			return
		}
		if !wait.Sleep(ctx, summaryEvery) {
			return
		}
		d.tell()
	}
}

func (d *summary) tell() {
	d.mu.Lock()
	sums, order := d.sums, d.order
	d.sums, d.order = make(map[event]*figures), nil
	d.mu.Unlock()
	for _, key := range order {
		sum := sums[key]
		attrs := []any{"source", key.source, "shards", len(sum.shards)}
		if key.what == replica.Followed {
			attrs = append(attrs, "longest_without", sum.longest.Round(time.Millisecond))
		}
		if sum.first != nil {
			attrs = append(attrs, "error", sum.first)
		}
		d.log.Info(string(key.what), attrs...)
	}
}
