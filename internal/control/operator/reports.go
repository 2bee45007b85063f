package operator

import (
	"context"
	"sync"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// Reports returns the nodes' reports of their copies, for the leader. A node that does not answer in time
// is missing, and gets no shards.
func (o *Operator) Reports(ctx context.Context, nodes []shard.NodeID) []planner.Report {
	var mu sync.Mutex
	var out []planner.Report // guarded by mu
	o.ask(ctx, nodes, func(node shard.NodeID, s *shardwatchv1.StatusResponse) {
		mu.Lock()
		defer mu.Unlock()
		out = append(out, report(node, s))
	})
	return out
}

func report(node shard.NodeID, s *shardwatchv1.StatusResponse) planner.Report {
	r := planner.Report{Node: node, RaftIndex: s.GetRaftIndex(), MapVersion: s.GetMapVersion(), NoEtcd: s.GetEtcdRevision() == 0}
	for _, c := range s.GetReplicas() {
		r.Shards = append(r.Shards, planner.ShardReport{
			Shard: shard.ID(c.GetShardId()), Ready: c.GetReady() && !c.GetRelay(),
			// without the window, whose bound is the same for shards of any size
			Bytes: c.GetStateBytes(), Events: c.GetEvents(), Watches: int(c.GetWatchers()),
		})
	}
	return r
}

// Halve returns a key that splits the keys of r in half, "" when there are too few.
func (o *Operator) Halve(ctx context.Context, r kv.Range) (string, error) {
	at, _, err := o.middle(ctx, r)
	return at, err
}
