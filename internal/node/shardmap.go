package node

import (
	"context"
	"errors"
	"fmt"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	"github.com/shardwatch/shardwatch/internal/control/placement"
	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// cutter finds the keys at which the key space is cut into shards.
type cutter struct {
	etcd  Etcd
	clock *clock
	spec  shard.Spec // to found with
	now   func() *shard.Map
}

// foundingFacts returns etcd's cluster ID and the split keys with which the leader founds the
// cluster.
func (c *cutter) foundingFacts(ctx context.Context) (uint64, []string, error) {
	if !c.clock.Checked() {
		err := c.clock.Trouble()
		if err == nil {
			err = errors.New("not asked yet")
		}
		return 0, nil, fmt.Errorf("etcd: %w", err)
	}
	id, err := c.etcd.ClusterID(ctx)
	if err != nil {
		return 0, nil, err
	}
	cuts, err := c.cut(ctx, c.spec)
	return id, cuts, err
}

// cuts returns the keys at which the key space should be cut now.
func (c *cutter) cuts(ctx context.Context) ([]string, error) {
	m := c.now()
	if m == nil {
		return nil, nil
	}
	return c.cut(ctx, m.Spec)
}

func (c *cutter) cut(ctx context.Context, spec shard.Spec) ([]string, error) {
	cutting := planner.NewCutter(spec.Ranges, spec.Shards)
	for _, r := range spec.Ranges {
		if err := c.etcd.Keys(ctx, r, func(key []byte) error {
			cutting.Add(string(key))
			return nil
		}); err != nil {
			return nil, fmt.Errorf("keys of %v: %w", r, err)
		}
	}
	return cutting.Cuts(), nil
}

// forward sends a change of the map to the leader.
func (n *Node) forward(ctx context.Context, leader shard.NodeID, command []byte) (uint64, error) {
	conn, err := n.peers.Conn(leader)
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

// cluster returns the cluster ID of this node's shard map; "": no map yet.
func (n *Node) cluster() string {
	if m := n.placement.Map(); m != nil {
		return m.ClusterID
	}
	return ""
}
