package admin

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/client"
)

// MemberState is the state of a member according to gossip. The values are those of the API.
type MemberState int

// The states of a member.
const (
	MemberAlive   MemberState = 1
	MemberSuspect MemberState = 2
	MemberDead    MemberState = 3
	MemberLeft    MemberState = 4
)

// String returns the state in lower case.
func (s MemberState) String() string {
	switch s {
	case MemberAlive:
		return "alive"
	case MemberSuspect:
		return "suspect"
	case MemberDead:
		return "dead"
	case MemberLeft:
		return "left"
	}
	return "unknown"
}

// Member is one node of the cluster.
type Member struct {
	Name, UUID string
	// ClientAddress, PeerAddress and HTTPAddress are host:port.
	ClientAddress, PeerAddress, HTTPAddress string
	State                                   MemberState
	Voter, Leader, Draining                 bool
	Zone, Version                           string
	// FeatureLevel is the newest feature level that the node's software supports; 0: not known.
	FeatureLevel int
	// Weight is the node's share of shards: with 2, it gets twice as many as with 1. 0:
	// its software does not support weights.
	Weight int
}

// Shard is one range of keys and the nodes that serve it.
type Shard struct {
	ID    uint64
	Range client.Range
	Epoch uint64
	// Replicas has names of members; the first is the owner.
	Replicas []string
	// Pins has the members that an operator assigned to it, in order of preference.
	Pins []string
	// WantedReplicas is the desired number of replicas; 0: ShardMap.Replicas.
	WantedReplicas int
	// Joins: the shard is about to be merged with a neighbour.
	Joins bool
}

// Owner returns the name of the node that watches etcd for the shard; empty if there is none.
func (s Shard) Owner() string {
	if len(s.Replicas) == 0 {
		return ""
	}
	return s.Replicas[0]
}

// ShardMap is the division of the key space, and the nodes of each shard.
type ShardMap struct {
	Lineage, Version uint64
	ClusterID        string
	// Origin describes the start of the lineage; nil for the first.
	Origin *LineageOrigin
	// Shards are ordered by key and disjoint.
	Shards []Shard
	// Replicas is the desired number of replicas of each shard.
	Replicas int
	// Drained has the names of nodes that an operator has drained: they get no shards.
	Drained []string
	// FeatureLevel is the finalized level: features of newer levels are not used yet.
	// 0: the node's software predates finalized levels.
	FeatureLevel int
	// Generation identifies the group of voters that changes the map: 0 for the group
	// that founded the cluster; else the version that the map had when the voters were
	// last recovered, after a majority of them was lost.
	Generation uint64
}

// Members returns the members, ordered by name, as the gossip of the answering node reports them.
func (c *Client) Members(ctx context.Context) ([]Member, error) {
	var out []Member
	err := c.c.Call(ctx, 0, func(ctx context.Context, node grpc.ClientConnInterface) error {
		r, err := pb.NewClusterServiceClient(node).ListMembers(ctx, &pb.ListMembersRequest{})
		out = membersFrom(r.GetMembers())
		return err //nolint:wrapcheck // judged by Call, wrapped below
	})
	if err != nil {
		return nil, fmt.Errorf("list members: %w", err)
	}
	return out, nil
}

// maxMap bounds a shard map, and the status of a cluster, which contains it: 100,000 shards
// take some 21 MB.
const maxMap = 64 << 20

// ShardMap returns the shard map of the node that answers.
func (c *Client) ShardMap(ctx context.Context) (ShardMap, error) {
	var out ShardMap
	err := c.c.Call(ctx, 0, func(ctx context.Context, node grpc.ClientConnInterface) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := pb.NewClusterServiceClient(node).WatchShardMap(ctx, &pb.WatchShardMapRequest{}, grpc.MaxCallRecvMsgSize(maxMap))
		if err != nil {
			return err //nolint:wrapcheck // judged by Call, wrapped below
		}
		r, err := stream.Recv()
		out = shardMapFrom(r.GetMap())
		return err //nolint:wrapcheck // judged by Call, wrapped below
	})
	if err != nil {
		return ShardMap{}, fmt.Errorf("shard map: %w", err)
	}
	return out, nil
}

func shardMapFrom(m *pb.ShardMap) ShardMap {
	return ShardMap{
		Lineage: m.GetLineage(), Version: m.GetVersion(), ClusterID: m.GetClusterId(), Origin: originFrom(m.GetOrigin()),
		Shards: shardsFrom(m.GetShards()), Replicas: int(m.GetReplicas()), Drained: m.GetDrained(),
		FeatureLevel: int(m.GetFeatureLevel()), Generation: m.GetGeneration(),
	}
}

func shardsFrom(shards []*pb.Shard) []Shard {
	var out []Shard
	for _, s := range shards {
		out = append(out, Shard{
			ID: s.GetId(), Range: rangeFrom(s.GetKey(), s.GetRangeEnd()), Epoch: s.GetEpoch(), Replicas: s.GetReplicas(),
			Pins: s.GetPins(), WantedReplicas: int(s.GetWantedReplicas()), Joins: s.GetJoins(),
		})
	}
	return out
}

func membersFrom(ms []*pb.Member) []Member {
	out := make([]Member, 0, len(ms))
	for _, m := range ms {
		out = append(out, memberFrom(m))
	}
	return out
}

func memberFrom(m *pb.Member) Member {
	return Member{
		Name: m.GetName(), UUID: m.GetUuid(),
		ClientAddress: m.GetClientAddress(), PeerAddress: m.GetPeerAddress(), HTTPAddress: m.GetHttpAddress(),
		State: MemberState(m.GetState()),
		Voter: m.GetVoter(), Leader: m.GetLeader(), Draining: m.GetDraining(),
		Zone: m.GetZone(), Version: m.GetVersion(), FeatureLevel: int(m.GetFeatureLevel()), Weight: int(m.GetWeight()),
	}
}
