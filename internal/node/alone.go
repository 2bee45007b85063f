package node

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// alone sends native watches to other nodes when this node reaches no other node
// and data stands still here: all data when etcd does not answer either, and else
// that of the shards which other nodes have and which are relayed here. The clients
// may reach a node that is not cut off. A node that reaches any other node gets its
// data from there, and one that has lost etcd like all others keeps its clients.
type alone struct {
	n   *Node
	off atomic.Bool // data stands still, and no other node answers
	// Owned by the clock. Watches that come meanwhile, or come back, are sent away
	// again, at growing intervals: there may be no better place for them.
	next  time.Time
	pause time.Duration
}

var errAlone = errors.New("this node is cut off from all other nodes, and its watches receive no new events")

const (
	// aloneWithin is the time in which clients are sent away, and alonePause the
	// shortest until that is done again, aloneLongest the longest.
	aloneWithin  = time.Second
	alonePause   = time.Second
	aloneLongest = time.Minute
)

// move says that data arrives. The interval starts anew once another node answers.
func (a *alone) move(ctx context.Context) {
	a.off.Store(false)
	if a.pause > 0 && !a.cutOff(ctx) {
		a.next, a.pause = time.Time{}, 0
	}
}

// standStill says that data of ranges stands still, and sends their watches away
// when no other node answers.
func (a *alone) standStill(ctx context.Context, ranges []kv.Range) {
	if time.Now().Before(a.next) {
		return
	}
	off := a.cutOff(ctx)
	if a.off.Store(off); !off {
		return
	}
	a.pause = min(max(2*a.pause, alonePause), aloneLongest)
	a.next = time.Now().Add(a.pause)
	ctx, cancel := context.WithTimeout(ctx, aloneWithin)
	defer cancel()
	if watches := a.n.server.Abandon(ctx, ranges, errAlone); watches > 0 {
		a.n.log.Warn("cut off from all other nodes: watches sent to other nodes", "watches", watches, "ranges", len(ranges))
	}
}

// cutOff asks other nodes for a sign of life, and reports whether there are
// others and none gives one.
func (a *alone) cutOff(ctx context.Context) bool {
	var others []shard.NodeID
	for _, m := range a.n.members.Members() {
		if m.Name != a.n.self && m.State != shard.Left {
			others = append(others, m.Name)
		}
	}
	return len(others) > 0 && !a.n.roster.AnyAnswers(ctx, others, func(healthgrpc.HealthCheckResponse_ServingStatus) bool { return true })
}
