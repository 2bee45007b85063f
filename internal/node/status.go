package node

import (
	"context"
	"sort"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/data/copies"
	"github.com/shardwatch/shardwatch/internal/data/lineage"
	"github.com/shardwatch/shardwatch/internal/edge/etcdapi"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// Members implements server.Node.
func (n *Node) Members() []*shardwatchv1.Member {
	leader, _ := n.placement.Leader()
	members := n.roster.All()
	out := make([]*shardwatchv1.Member, 0, len(members))
	for i := range members {
		m := &members[i]
		out = append(out, wire.MemberMessage(m, m.Voter, m.Name == leader))
	}
	return out
}

// etcdMembers returns the nodes for clients of etcd's API. It omits nodes that
// are gone, which would delay clients, and, if there are others, nodes that
// drain, which would send clients on.
func (n *Node) etcdMembers() []etcdapi.Member {
	var stay, drain []etcdapi.Member
	for _, m := range n.roster.All() {
		if m.State == shard.Dead || m.State == shard.Left {
			continue
		}
		to := &stay
		if m.Draining {
			to = &drain
		}
		*to = append(*to, etcdapi.Member{
			Name: m.Name, Client: m.ClientAddress, Peer: m.PeerAddress, TLS: n.cfg.ClientTLS != nil, // all nodes are alike
		})
	}
	if len(stay) == 0 {
		return drain
	}
	return stay
}

// Status implements server.Node.
func (n *Node) Status() *shardwatchv1.StatusResponse {
	out := &shardwatchv1.StatusResponse{NotReady: n.NotReady(), Uptime: durationpb.New(time.Since(n.started).Round(time.Millisecond))}
	for _, m := range n.Members() {
		if m.GetName() == string(n.self) {
			out.Self = m
		}
	}
	if m := n.placement.Map(); m != nil {
		out.ClusterId, out.Lineage, out.MapVersion = m.ClusterID, m.Lineage, m.Version
		out.RaftIndex = n.placement.RaftIndex()
		for level := m.FinalLevel() + 1; level <= shard.Level; level++ {
			out.NewLevels = append(out.NewLevels, &shardwatchv1.FeatureLevel{Level: int32(level), Adds: shard.Adds(level)}) //nolint:gosec // few
		}
		out.OverruledFlags = overruled(n.cfg.Asked, m.Spec)
	}
	for _, v := range n.placement.Voters() {
		out.Voters = append(out.Voters, string(v))
	}
	leader, _ := n.placement.Leader()
	out.RaftLeader = string(leader)
	if why := n.lineage.Refusal(); why != nil {
		out.Refusal = why.Error()
	}
	revision, at, id := n.clock.Last()
	if id != 0 {
		out.EtcdClusterId = lineage.ClusterName(id)
	}
	if !at.IsZero() {
		out.EtcdRevision, out.EtcdAge = int64(revision), durationpb.New(time.Since(at))
	}
	merged := n.router.Merged()
	for _, h := range n.copies.All() {
		out.Replicas = append(out.Replicas, n.replicaStatus(h, merged.Watches[h.Cache]))
	}
	sort.Slice(out.Replicas, func(i, j int) bool { return out.Replicas[i].ShardId < out.Replicas[j].ShardId })
	return out
}

// replicaStatus returns the status of a copy. merged is the number of watches that
// read it through merged windows.
func (n *Node) replicaStatus(h *copies.Copy, merged int) *shardwatchv1.ReplicaStatus {
	s := h.Cache.Status()
	out := &shardwatchv1.ReplicaStatus{
		ShardId: uint64(h.ID), Node: string(n.self), Ready: s.Ready,
		Progress: int64(s.Progress), Floor: int64(s.Floor), Keys: int64(s.Keys), StateBytes: s.StateBytes,
		WindowBatches: s.WindowBatches, WindowBytes: s.WindowBytes, WindowSpan: durationpb.New(s.WindowSpan),
		Watchers: int64(s.Watchers + merged), Relay: n.copies.IsRelay(h),
		DeltaFloor: int64(s.DeltaFloor), Tombstones: int64(s.Tombstones), TombstoneBytes: s.TombstoneBytes,
		Roots: int64(s.Roots), RootsBytes: s.RootsBytes, Events: s.Events,
	}
	if s.AgeKnown {
		out.Age = durationpb.New(s.Age)
	}
	if !out.GetRelay() {
		out.Quarantined = h.Renewed && !s.Ready
		if age, known := n.verifier.Age(h.ID); known {
			out.VerifiedAge = durationpb.New(age)
		}
	}
	switch name, direct := h.Source.Current(); {
	case direct:
		out.Source = shardwatchv1.ReplicaSource_REPLICA_SOURCE_ETCD
	case name != "":
		out.Source, out.SourceNode = shardwatchv1.ReplicaSource_REPLICA_SOURCE_PEER, name
	}
	return out
}

// StatusOf implements server.Node.
func (n *Node) StatusOf(ctx context.Context, node shard.NodeID) (*shardwatchv1.StatusResponse, error) {
	conn, err := n.peers.Conn(node)
	if err != nil {
		return nil, err
	}
	s, err := shardwatchv1.NewClusterServiceClient(conn).Status(ctx, &shardwatchv1.StatusRequest{})
	return s, wire.Error(err)
}
