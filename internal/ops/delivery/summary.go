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

// summary sums up events of many shards. The loss of a node gives one log line for each kind of reaction, not
// one for each shard.
type summary struct {
	log *slog.Logger

	mu    sync.Mutex
	sums  map[event]*figures // guarded by mu
	order []event            // guarded by mu; keys of sums, in order of arrival
	some  wait.Bell          // wakes run
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

// summaryEvery is how long events are collected for a line.
const summaryEvery = time.Second

func newSummary(log *slog.Logger) *summary {
	return &summary{log: log, sums: make(map[event]*figures), some: wait.NewBell()}
}

// add does not block. It ignores handovers: they are part of a drain, which the draining node reports. This
// node reports the new source instead.
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
