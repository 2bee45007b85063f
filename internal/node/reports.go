package node

import (
	"context"
	"sync"
	"time"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

const (
	// reportTimeout is how long a node may take to tell what it has.
	reportTimeout = 2 * time.Second
	// mostReports is how many nodes are asked at a time.
	mostReports = 64
)

// reports asks nodes what they have, for the leader.
func (n *Node) reports(ctx context.Context, nodes []shard.NodeID) []planner.Report {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	var (
		mu      sync.Mutex
		out     []planner.Report // guarded by mu
		asking  sync.WaitGroup
		permits = make(chan struct{}, mostReports)
	)
	for _, node := range nodes {
		permits <- struct{}{}
		asking.Go(func() {
			defer func() { <-permits }()
			s, err := n.reportOf(ctx, node)
			if err != nil || s.GetEtcdRevision() == 0 {
				return // it is given nothing: it cannot be reached, or has not reached etcd
			}
			mu.Lock()
			defer mu.Unlock()
			out = append(out, report(node, s))
		})
	}
	asking.Wait()
	return out
}

func (n *Node) reportOf(ctx context.Context, node shard.NodeID) (*shardwatchv1.StatusResponse, error) {
	if node == n.self {
		return n.Status(), nil
	}
	return n.StatusOf(ctx, node)
}

func report(node shard.NodeID, s *shardwatchv1.StatusResponse) planner.Report {
	r := planner.Report{Node: node, RaftIndex: s.GetRaftIndex(), MapVersion: s.GetMapVersion()}
	for _, c := range s.GetReplicas() {
		r.Shards = append(r.Shards, planner.ShardReport{
			Shard: shard.ID(c.GetShardId()), Ready: c.GetReady() && !c.GetRelay(),
			// Not the window's: its bound is that of any shard, however small.
			Bytes: c.GetStateBytes(), Events: c.GetEvents(), Watches: int(c.GetWatchers()),
		})
	}
	return r
}

// halve returns a key that cuts the keys of r in two, "" when they are too few.
func (n *Node) halve(ctx context.Context, r kv.Range) (string, error) {
	at, _, err := n.middle(ctx, r)
	return at, err
}
