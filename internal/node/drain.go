package node

import (
	"context"
	"time"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// drain takes the node out of service: it asks for its shards to be moved,
// sends its watches elsewhere with their positions, and says goodbye. It takes
// DrainTimeout at most.
func (n *Node) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.DrainTimeout)
	defer cancel()
	began := time.Now()
	n.log.Info("draining", "within", n.cfg.DrainTimeout)
	n.drained.Store(true)
	n.members.SetDraining(true)
	n.history.last(ctx)
	// Others must have the shards, and be their owners, before the clients come to
	// them: half of the time, because a node that came back a moment ago loads them
	// a few at a time, and this one may have the only copy that is whole.
	// (A shard that is here only needs PromoteDelay: its heir is to be warm.)
	handOver, stop := context.WithTimeout(ctx, n.cfg.DrainTimeout/2)
	n.handOver(handOver)
	stop()
	watches, stop := context.WithDeadline(ctx, began.Add(5*n.cfg.DrainTimeout/6))
	n.server.Drain(watches)
	stop()
	n.history.last(ctx)
	if err := n.members.Leave(ctx); err != nil {
		n.log.Warn("could not say goodbye to everybody: they will find out", "error", err)
	}
	n.log.Info("drained", "took", time.Since(began))
}

// handOver waits until the map names this node nowhere; there must be somebody
// to take over.
func (n *Node) handOver(ctx context.Context) {
	for {
		m, changed := n.placement.Watch()
		if m == nil || !n.named(m) || !n.accompanied() {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			n.log.Warn("shards were not all handed over in time: their replicas take over by themselves")
			return
		}
	}
}

func (n *Node) named(m *shard.Map) bool {
	for i := range m.Shards {
		for _, r := range m.Shards[i].Replicas {
			if r == n.self {
				return true
			}
		}
	}
	return false
}

func (n *Node) accompanied() bool {
	for _, m := range n.members.Members() {
		if m.Name != n.self && m.State == shard.Alive && !m.Draining {
			return true
		}
	}
	return false
}
