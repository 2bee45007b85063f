package admin

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/client"
)

// ReplicaSource is the source of a replica's events.
type ReplicaSource int

// The sources of a replica. The values are those of the API.
const (
	SourceNone ReplicaSource = 0
	SourceEtcd ReplicaSource = 1
	SourcePeer ReplicaSource = 2
)

// String returns the source in lower case.
func (s ReplicaSource) String() string {
	switch s {
	case SourceEtcd:
		return "etcd"
	case SourcePeer:
		return "peer"
	case SourceNone:
	}
	return "none"
}

// ReplicaStatus is a node's copy of one shard.
type ReplicaStatus struct {
	Shard  uint64
	Node   string
	Ready  bool
	Source ReplicaSource
	// SourceNode is the node that sends the events, with SourcePeer.
	SourceNode string
	// Progress: the replica has everything up to this revision.
	Progress int64
	// Floor is the oldest revision a watch may start from.
	Floor int64
	// DeltaFloor is the oldest revision from which on the node knows all deletes, by
	// Tombstones in TombstoneBytes: a watch from there gets a delta. 0: none.
	DeltaFloor, Tombstones, TombstoneBytes int64
	// Age is the maximum age of the data.
	Age time.Duration
	// Keys is the number of keys, which take StateBytes with their values and indexes. Until the
	// replica is Ready, StateBytes, WindowBytes and TombstoneBytes count the data loaded so far.
	Keys, StateBytes int64
	// Roots is the number of older states that are kept for reads at their revisions;
	// they take RootsBytes in addition to the newest state.
	Roots, RootsBytes int64
	// WindowBatches is the number of revisions in the window, which take WindowBytes.
	WindowBatches, WindowBytes int64
	// WindowSpan is the time since the window's oldest batch.
	WindowSpan time.Duration
	Watchers   int64
	// Relay: a window without state, kept for clients of the node.
	Relay bool
}

// NodeStatus is a node's report about itself.
type NodeStatus struct {
	Self                Member
	ClusterID           string
	Lineage, MapVersion uint64
	EtcdClusterID       string
	// EtcdRevision is the last revision of etcd that the node saw, EtcdAge ago.
	EtcdRevision int64
	EtcdAge      time.Duration
	// NotReady has the conditions that the node waits for; empty: it serves.
	NotReady []string
	// Refusal is the reason why the node rejects reads and watches although it is
	// ready: etcd has another history than the lineage. Empty: it does not.
	Refusal              string
	Watches, Connections int64
	Uptime               time.Duration
	Replicas             []ReplicaStatus
	// Voters has the voters in the node's raft log, RaftIndex is its newest entry, and
	// RaftLeader the leader, as far as the node knows. Nodes that do not vote do not know them.
	Voters     []string
	RaftIndex  uint64
	RaftLeader string
	// OverruledFlags has flags that the node was started with but that the settings of
	// the cluster override: "--replicas 5".
	OverruledFlags []string
	// NewLevels has the feature levels that the node's software supports and that are
	// not finalized.
	NewLevels []FeatureLevel
}

// FeatureLevel describes the features that a finalized level enables.
type FeatureLevel struct {
	Level int
	// Adds describes the features, as readable text.
	Adds string
}

// MemberStatus is a member and its status.
type MemberStatus struct {
	Member Member
	// Status is nil if the member did not answer; Error has the reason.
	Status *NodeStatus
	Error  string
}

// ClusterStatus has every member's status, and the shard map of the node that asked them.
type ClusterStatus struct {
	Map      ShardMap
	Members  []MemberStatus
	Settings ClusterSettings
}

// ClusterSettings are the settings that all nodes share: see [ChangeSettings].
type ClusterSettings struct {
	// Replicas is the desired number of replicas of each shard without its own.
	Replicas int
	// Served has the ranges of keys that are served, in order.
	Served []client.Range
}

func settingsFrom(m *pb.ClusterSettings) ClusterSettings {
	out := ClusterSettings{Replicas: int(m.GetReplicas())}
	for _, r := range m.GetServed() {
		out.Served = append(out.Served, rangeFrom(r.GetKey(), r.GetRangeEnd()))
	}
	return out
}

// Status requests the status of the node at an address, or of any node if it is empty.
func (c *Client) Status(ctx context.Context, address string) (NodeStatus, error) {
	var out NodeStatus
	ask := func(ctx context.Context, node grpc.ClientConnInterface) error {
		r, err := pb.NewClusterServiceClient(node).Status(ctx, &pb.StatusRequest{})
		out = nodeStatusFrom(r)
		return err //nolint:wrapcheck // wrapped below
	}
	if address == "" {
		if err := c.c.Call(ctx, 0, ask); err != nil {
			return NodeStatus{}, fmt.Errorf("status: %w", err)
		}
		return out, nil
	}
	if err := c.c.CallNode(ctx, address, 0, ask); err != nil {
		return NodeStatus{}, fmt.Errorf("status of %s: %w", address, err)
	}
	return out, nil
}

// maxStatusWait bounds how long a node waits for the status of members.
const maxStatusWait = 30 * time.Second

// ClusterStatus requests the status of every member from any node. A member that does not answer
// within wait (0: the node's default, 2 s; more than 30 s: 30 s) is returned with an error.
func (c *Client) ClusterStatus(ctx context.Context, wait time.Duration) (ClusterStatus, error) {
	var out ClusterStatus
	req := &pb.ClusterStatusRequest{}
	if wait = min(wait, maxStatusWait); wait > 0 {
		req.Timeout = durationpb.New(wait)
	}
	err := c.anyNode(ctx, wait, func(ctx context.Context, node pb.AdminServiceClient) error {
		r, err := node.ClusterStatus(ctx, req, grpc.MaxCallRecvMsgSize(maxMap))
		if err != nil {
			return err //nolint:wrapcheck // judged by Call, wrapped below
		}
		out = ClusterStatus{Map: shardMapFrom(r.GetMap()), Settings: settingsFrom(r.GetSettings())}
		for _, m := range r.GetMembers() {
			ms := MemberStatus{Member: memberFrom(m.GetMember()), Error: m.GetError()}
			if m.GetStatus() != nil {
				s := nodeStatusFrom(m.GetStatus())
				ms.Status = &s
			}
			out.Members = append(out.Members, ms)
		}
		return nil
	})
	if err != nil {
		return ClusterStatus{}, fmt.Errorf("cluster status: %w", err)
	}
	return out, nil
}

func nodeStatusFrom(r *pb.StatusResponse) NodeStatus {
	out := NodeStatus{
		Self: memberFrom(r.GetSelf()), ClusterID: r.GetClusterId(),
		Lineage: r.GetLineage(), MapVersion: r.GetMapVersion(),
		EtcdClusterID: r.GetEtcdClusterId(), EtcdRevision: r.GetEtcdRevision(), EtcdAge: r.GetEtcdAge().AsDuration(),
		NotReady: r.GetNotReady(), Refusal: r.GetRefusal(), Watches: r.GetWatches(), Connections: r.GetConnections(), Uptime: r.GetUptime().AsDuration(),
		Voters: r.GetVoters(), RaftIndex: r.GetRaftIndex(), RaftLeader: r.GetRaftLeader(),
		OverruledFlags: r.GetOverruledFlags(),
	}
	for _, l := range r.GetNewLevels() {
		out.NewLevels = append(out.NewLevels, FeatureLevel{Level: int(l.GetLevel()), Adds: l.GetAdds()})
	}
	for _, p := range r.GetReplicas() {
		out.Replicas = append(out.Replicas, ReplicaStatus{
			Shard: p.GetShardId(), Node: p.GetNode(), Ready: p.GetReady(),
			Source: ReplicaSource(p.GetSource()), SourceNode: p.GetSourceNode(),
			Progress: p.GetProgress(), Floor: p.GetFloor(), Age: p.GetAge().AsDuration(),
			DeltaFloor: p.GetDeltaFloor(), Tombstones: p.GetTombstones(), TombstoneBytes: p.GetTombstoneBytes(),
			Keys: p.GetKeys(), StateBytes: p.GetStateBytes(), Roots: p.GetRoots(), RootsBytes: p.GetRootsBytes(),
			WindowBatches: p.GetWindowBatches(), WindowBytes: p.GetWindowBytes(), WindowSpan: p.GetWindowSpan().AsDuration(),
			Watchers: p.GetWatchers(), Relay: p.GetRelay(),
		})
	}
	return out
}
