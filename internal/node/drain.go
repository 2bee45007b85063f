package node

import (
	"context"
	"sync"
	"time"

	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// voteTimeout bounds how long a node that shuts down waits until another node has
// its vote.
const voteTimeout = 3 * time.Second

// drain takes the node out of service: it hands its vote and its shards over, sends
// its watches elsewhere with their positions, and says goodbye. It takes
// DrainTimeout at most.
func (n *Node) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.DrainTimeout)
	defer cancel()
	began := time.Now()
	n.log.Info("draining", "within", n.cfg.DrainTimeout)
	n.leaves()
	n.members.SetDraining(true)
	n.history.last(ctx)
	// Others must have the shards, and be their owners, before the clients come to
	// them: half of the time, because a node that came back a moment ago loads them
	// a few at a time, and this one may have the only copy that is whole.
	// (A shard that is here only needs PromoteDelay: its heir is to be warm.)
	handOver, stop := context.WithTimeout(ctx, n.cfg.DrainTimeout/2)
	var vote sync.WaitGroup
	vote.Go(func() { n.handOverVote(handOver) })
	n.handOver(handOver)
	vote.Wait()
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

// handOverVote waits until another node votes in place of this one: a node that is
// scaled away with its vote takes a part of the majority with it.
func (n *Node) handOverVote(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, voteTimeout)
	defer cancel()
	if !n.placement.HandOverVote(ctx) {
		n.log.Info("the node keeps its vote while it is away", "voters", n.placement.Voters())
	}
}

// handOver waits until the map names this node nowhere, and others read etcd in its
// place; there must be somebody to take over.
func (n *Node) handOver(ctx context.Context) {
	for {
		others := n.changed.Wait() // before the members: nothing is missed
		m, changed := n.placement.Watch()
		if m == nil || !n.accompanied() {
			return
		}
		if !n.named(m) {
			n.copies.Left(ctx, m.Version)
			return
		}
		select {
		case <-changed:
		case <-others:
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

// accompanied reports whether others can take over what this node has.
func (n *Node) accompanied() bool { return len(n.heirs()) > 0 }

// takesLeave reports whether another node drains or has left: it hands its shards on.
func (n *Node) takesLeave(node shard.NodeID) bool {
	for _, m := range n.roster() {
		if m.Name == node {
			return m.Draining || m.State == shard.Left
		}
	}
	return false
}

// heirs are the nodes that shards and clients can go to.
func (n *Node) heirs() (out []shard.NodeID) {
	for _, m := range n.roster() {
		if m.Name != n.self && m.State == shard.Alive && !m.Draining {
			out = append(out, m.Name)
		}
	}
	return out
}

// roster is what gossip sees, but that whom an operator has drained drains, too.
func (n *Node) roster() []shard.Member {
	members := n.members.Members()
	if m := n.placement.Map(); m != nil && len(m.Drained) > 0 {
		for i := range members {
			members[i].Draining = members[i].Draining || m.IsDrained(members[i].Name)
		}
	}
	return members
}

// While an operator has this node drained and it runs on, its clients are sent
// to other nodes once those have its shards. New ones are let in, and those that
// come back, for they may reach no other node: they are sent on again, ever more
// seldom.
const (
	// sendOnLook is how often it is looked whether others have the shards, and
	// serve.
	sendOnLook = time.Second
	// sendOnPause is the shortest time until clients are sent on again, and
	// sendOnLongest the longest.
	sendOnPause   = 2 * time.Second
	sendOnLongest = 10 * time.Minute
)

// heedMark sends the clients on while the map has this node drained.
func (n *Node) heedMark(ctx context.Context) error {
	for n.marked(ctx, true) {
		drained, undrain := context.WithCancel(ctx)
		var sending sync.WaitGroup
		sending.Go(func() { n.sendOn(drained) })
		n.marked(ctx, false)
		undrain()
		sending.Wait()
	}
	return nil
}

// marked waits until the map has this node drained, or has it no longer. It
// returns false when ctx ends before.
func (n *Node) marked(ctx context.Context, want bool) bool {
	for ctx.Err() == nil {
		m, changed := n.placement.Watch()
		if want == (m != nil && m.IsDrained(n.self)) {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return false
}

func (n *Node) sendOn(ctx context.Context) {
	for pause := time.Duration(0); ; {
		wait := sendOnLook
		if n.replaced(ctx) {
			if watches := n.server.SendOn(ctx); watches > 0 {
				n.log.Info("drained by an operator: watches sent to other nodes", "watches", watches)
			}
			pause = min(max(2*pause, sendOnPause), sendOnLongest)
			wait = pause
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// replaced reports whether other nodes have the shards of this one, and one of
// them says that it serves.
func (n *Node) replaced(ctx context.Context) bool {
	m := n.placement.Map()
	return m != nil && !n.named(m) && !n.drained.Load() && n.anyAnswers(ctx, n.heirs(), func(s healthgrpc.HealthCheckResponse_ServingStatus) bool {
		return s == healthgrpc.HealthCheckResponse_SERVING
	})
}
