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

// ReplicaSource says where a replica gets its events from.
type ReplicaSource int

// The sources of a replica. The values are those of the API.
const (
	SourceNone ReplicaSource = 0
	SourceEtcd ReplicaSource = 1
	SourcePeer ReplicaSource = 2
)

// String returns the source in small letters.
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
	// SourceNode is the node the events come from, with SourcePeer.
	SourceNode string
	// Progress: everything up to this revision is there.
	Progress int64
	// Floor is the oldest revision a watch may start from.
	Floor int64
	// DeltaFloor is the oldest revision from which on the node knows what was
	// deleted, by Tombstones in TombstoneBytes: a watch from there on is brought
	// up to date by what has changed. 0: none.
	DeltaFloor, Tombstones, TombstoneBytes int64
	// Age is how old the data may be.
	Age time.Duration
	// Keys are held in StateBytes, with their values and the indexes over them.
	// While the replica is not Ready, StateBytes, WindowBytes and TombstoneBytes are
	// what has come so far.
	Keys, StateBytes int64
	// Roots are states of older revisions, kept for reads at exactly these, in
	// RootsBytes beside the newest state.
	Roots, RootsBytes int64
	// WindowBatches are the revisions in the window, in WindowBytes.
	WindowBatches, WindowBytes int64
	// WindowSpan is the time between the window's oldest batch and now.
	WindowSpan time.Duration
	Watchers   int64
	// Relay: a window without state, kept for clients of the node.
	Relay bool
}

// NodeStatus is a node's own account of itself.
type NodeStatus struct {
	Self                Member
	ClusterID           string
	Lineage, MapVersion uint64
	EtcdClusterID       string
	// EtcdRevision is etcd's revision as the node saw it last, EtcdAge ago.
	EtcdRevision int64
	EtcdAge      time.Duration
	// NotReady is empty when the node serves; otherwise what it waits for.
	NotReady []string
	// Refusal is why the node refuses reads and watches though it is ready: etcd
	// has another history than that of the lineage. Empty: it does not.
	Refusal              string
	Watches, Connections int64
	Uptime               time.Duration
	Replicas             []ReplicaStatus
	// Voters are the voters as the node's raft log has them, RaftIndex is its newest
	// entry, and RaftLeader the node that leads them, as far as the node knows. Nodes
	// that do not vote know nothing of that.
	Voters     []string
	RaftIndex  uint64
	RaftLeader string
	// OverruledFlags are flags that the node was started with and that are not in
	// force, because the settings of the cluster are others: "--replicas 5".
	OverruledFlags []string
	// NewLevels are feature levels that the node's software understands and that are
	// not finalized.
	NewLevels []FeatureLevel
}

// FeatureLevel is what can be used once a level is finalized.
type FeatureLevel struct {
	Level int
	// Adds is what it adds, for people.
	Adds string
}

// MemberStatus is a member and its answer.
type MemberStatus struct {
	Member Member
	// Status is nil when the member gave no answer; Error says why.
	Status *NodeStatus
	Error  string
}

// ClusterStatus is every member's status, and the map of the node that asked
// them.
type ClusterStatus struct {
	Map      ShardMap
	Members  []MemberStatus
	Settings ClusterSettings
}

// ClusterSettings are the settings that all nodes share: see [ChangeSettings].
type ClusterSettings struct {
	// Replicas is how many nodes should have each shard that says nothing else.
	Replicas int
	// Served are the keys that are served, in order.
	Served []client.Range
}

func settingsFrom(m *pb.ClusterSettings) ClusterSettings {
	out := ClusterSettings{Replicas: int(m.GetReplicas())}
	for _, r := range m.GetServed() {
		out.Served = append(out.Served, rangeFrom(r.GetKey(), r.GetRangeEnd()))
	}
	return out
}

// Status asks the node at one address, or any node when it is empty, about
// itself.
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

// maxStatusWait is how long nodes wait for the status of members at most.
const maxStatusWait = 30 * time.Second

// ClusterStatus asks any node for the status of every member. A member that
// does not answer within wait (0: the node's default, 2 s; more than 30 s: 30 s)
// is returned with an error.
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
