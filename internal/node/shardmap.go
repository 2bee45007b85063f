package node

import (
	"context"
	"errors"
	"fmt"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/placement"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// foundingFacts is what the leader needs of etcd to found the cluster.
func (n *Node) foundingFacts(ctx context.Context) (uint64, []string, error) {
	if !n.clock.Checked() {
		err := n.clock.Trouble()
		if err == nil {
			err = errors.New("not asked yet")
		}
		return 0, nil, fmt.Errorf("etcd: %w", err)
	}
	id, err := n.cfg.Etcd.ClusterID(ctx)
	if err != nil {
		return 0, nil, err
	}
	cuts, err := n.cut(ctx, n.cfg.Spec)
	return id, cuts, err
}

// cuts returns where the keys should be cut now.
func (n *Node) cuts(ctx context.Context) ([]string, error) {
	m := n.placement.Map()
	if m == nil {
		return nil, nil
	}
	return n.cut(ctx, m.Spec)
}

func (n *Node) cut(ctx context.Context, spec shard.Spec) ([]string, error) {
	cutter := planner.NewCutter(spec.Ranges, spec.Shards)
	for _, r := range spec.Ranges {
		if err := n.cfg.Etcd.Keys(ctx, r, func(key []byte) error {
			cutter.Add(string(key))
			return nil
		}); err != nil {
			return nil, fmt.Errorf("keys of %v: %w", r, err)
		}
	}
	return cutter.Cuts(), nil
}

// forward hands a change of the map to the leader.
func (n *Node) forward(ctx context.Context, leader shard.NodeID, command []byte) (uint64, error) {
	conn, err := n.peers.conn(leader)
	if err != nil {
		return 0, err
	}
	r, err := peerv1.NewPeerServiceClient(conn).Propose(ctx, &peerv1.ProposeRequest{Command: command})
	if err != nil {
		err = wire.Error(err)
		var elsewhere *shard.LeaderError
		if errors.As(err, &elsewhere) {
			return 0, &placement.NotLeaderError{Leader: elsewhere.Leader}
		}
		return 0, fmt.Errorf("propose to %s: %w", leader, err)
	}
	return r.GetMapVersion(), nil
}

// Propose implements server.Node.
func (n *Node) Propose(ctx context.Context, command []byte) (uint64, error) {
	version, err := n.placement.ApplyEncoded(ctx, command)
	var elsewhere *placement.NotLeaderError
	if errors.As(err, &elsewhere) {
		return 0, &shard.LeaderError{Leader: elsewhere.Leader}
	}
	return version, err
}
