package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	"github.com/shardwatch/shardwatch/internal/placement"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// mapTurn and firstMapTurn bound how long the shard map is taken from one node,
// the latter while there is none: two nodes that learn it from each other alone
// would wait for ever.
const (
	mapTurn      = 10 * time.Second
	firstMapTurn = time.Second
)

// followMap takes the shard map from the other nodes in turn: nodes that do not
// vote learn it so, and voters too when they are cut from the other voters.
func (n *Node) followMap(ctx context.Context) error {
	next := 0
	for {
		changed := n.changed.wait()
		var others []shard.Member
		for _, m := range n.members.Members() {
			if m.Name != n.self && m.State == shard.Alive {
				others = append(others, m)
			}
		}
		// Those that may vote have it first-hand.
		if voters := slices.DeleteFunc(slices.Clone(others), func(m shard.Member) bool { return m.BootstrapExpect == 0 }); len(voters) > 0 {
			others = voters
		}
		if len(others) > 0 {
			from := others[next%len(others)].Name
			next++
			limit := mapTurn
			if n.placement.Map() == nil {
				limit = firstMapTurn
			}
			turn, cancel := context.WithTimeout(ctx, limit)
			err := n.followMapOf(turn, from)
			over := turn.Err() != nil
			cancel()
			if over && ctx.Err() == nil {
				continue
			}
			if err != nil && ctx.Err() == nil {
				n.log.Debug("shard map stream ended", "from", string(from), "error", err)
			}
		}
		wait := time.After(time.Second)
		if len(others) > 0 {
			changed = nil // members change often at a start; do not spin
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-wait:
		}
	}
}

func (n *Node) followMapOf(ctx context.Context, from shard.NodeID) error {
	conn, err := n.peers.conn(from)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := peerv1.NewPeerServiceClient(conn).FollowMap(ctx, &peerv1.FollowMapRequest{})
	if err != nil {
		return err
	}
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		m, err := shard.DecodeMap(r.GetMap())
		if err != nil {
			return fmt.Errorf("shard map from %s: %w", from, err)
		}
		if err := n.placement.Observe(m); err != nil {
			return fmt.Errorf("shard map from %s: %w", from, err)
		}
	}
}

// foundingFacts is what the leader needs of etcd to found the cluster.
func (n *Node) foundingFacts(ctx context.Context) (uint64, []string, error) {
	if !n.clock.checked() {
		err := n.clock.trouble()
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
	cutter := shard.NewCutter(spec.Ranges, spec.Shards)
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
