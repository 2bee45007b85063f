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

// isolation sends native watches to other nodes when this node reaches no other node
// and its data gets no updates: all watches if etcd does not answer either, otherwise
// the watches of relayed shards. The clients may reach a connected node. A node that
// reaches at least one other node gets its data from there. A node that, like all
// others, has lost etcd keeps its clients.
type isolation struct {
	n   *Node
	off atomic.Bool // no data arrives, and no other node answers
	// Owned by the clock. New and returning watches are sent away again at growing
	// intervals, since all other nodes may be unreachable for them too.
	next  time.Time
	pause time.Duration
}

var errIsolated = errors.New("this node is cut off from all other nodes, and its watches receive no new events")

const (
	// isolationTimeout bounds one round of sending clients away; the pause between two
	// rounds grows from isolationPauseMin to isolationPauseMax.
	isolationTimeout  = time.Second
	isolationPauseMin = time.Second
	isolationPauseMax = time.Minute
)

// updated records that data arrives. The pause is reset once another node answers.
func (i *isolation) updated(ctx context.Context) {
	i.off.Store(false)
	if i.pause > 0 && !i.cutOff(ctx) {
		i.next, i.pause = time.Time{}, 0
	}
}

// stalled records that ranges get no updates, and sends their watches away if no
// other node answers.
func (i *isolation) stalled(ctx context.Context, ranges []kv.Range) {
	if time.Now().Before(i.next) {
		return
	}
	off := i.cutOff(ctx)
	if i.off.Store(off); !off {
		return
	}
	i.pause = min(max(2*i.pause, isolationPauseMin), isolationPauseMax)
	i.next = time.Now().Add(i.pause)
	ctx, cancel := context.WithTimeout(ctx, isolationTimeout)
	defer cancel()
	if watches := i.n.server.Abandon(ctx, ranges, errIsolated); watches > 0 {
		i.n.log.Warn("cut off from all other nodes: watches sent to other nodes", "watches", watches, "ranges", len(ranges))
	}
}

// cutOff reports whether there are other nodes and none answers.
func (i *isolation) cutOff(ctx context.Context) bool {
	var others []shard.NodeID
	for _, m := range i.n.members.Members() {
		if m.Name != i.n.self && m.State != shard.Left {
			others = append(others, m.Name)
		}
	}
	return len(others) > 0 && !i.n.roster.AnyAnswers(ctx, others, func(healthgrpc.HealthCheckResponse_ServingStatus) bool { return true })
}
