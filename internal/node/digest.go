package node

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/shardwatch/shardwatch/internal/replica"
)

// digest sums up what happens to many shards at a time: the loss of a node is
// one line for each thing that it made the others do, and not one per shard.
type digest struct {
	log *slog.Logger

	mu   sync.Mutex
	sums map[digestKey]*digestSum // guarded by mu
	some chan struct{}            // holds one
}

type digestKey struct {
	what   replica.What
	source string
}

type digestSum struct {
	times int
	first error
}

// digestEvery is for how long things are collected.
const digestEvery = time.Second

func newDigest(log *slog.Logger) *digest {
	return &digest{log: log, sums: make(map[digestKey]*digestSum), some: make(chan struct{}, 1)}
}

// add does not block.
func (d *digest) add(n replica.Notice) {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := digestKey{n.What, n.Source}
	sum := d.sums[key]
	if sum == nil {
		sum = &digestSum{first: n.Err}
		d.sums[key] = sum
	}
	sum.times++
	select {
	case d.some <- struct{}{}:
	default:
	}
}

// run logs the sums until ctx ends.
func (d *digest) run(ctx context.Context) error {
	defer d.tell()
	for {
		select {
		case <-d.some:
		case <-ctx.Done():
			return nil
		}
		select {
		case <-time.After(digestEvery):
		case <-ctx.Done():
			return nil
		}
		d.tell()
	}
}

func (d *digest) tell() {
	d.mu.Lock()
	sums := d.sums
	d.sums = make(map[digestKey]*digestSum)
	d.mu.Unlock()
	for key, sum := range sums {
		attrs := []any{"source", key.source, "shards", sum.times}
		if sum.first != nil {
			attrs = append(attrs, "error", sum.first)
		}
		d.log.Info(string(key.what), attrs...)
	}
}
