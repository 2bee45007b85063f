package etcdapi

import (
	"context"
	"iter"
	"net"

	"google.golang.org/grpc/peer"

	"github.com/shardwatch/shardwatch/internal/ops/tally"
)

// Watchers returns the open watches. It blocks no other caller, and may
// tell of some that have just ended.
func (d *Door) Watchers() iter.Seq[tally.Watcher] {
	return func(yield func(tally.Watcher) bool) {
		for _, s := range d.list() {
			for _, w := range s.list() {
				if w.tally.Rung() != 0 && !yield(tally.Watcher{Client: s.from, User: w.caller, ID: w.id, Range: w.rng, Watch: &w.tally}) {
					return
				}
			}
		}
	}
}

// clientOf returns where a call comes from; nil when that is not known.
func clientOf(ctx context.Context) net.Addr {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr
	}
	return nil
}
