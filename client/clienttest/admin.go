package clienttest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
)

type clusterServer struct {
	pb.UnimplementedClusterServiceServer
	n *Node
}

func (s *clusterServer) WatchShardMap(_ *pb.WatchShardMapRequest, stream pb.ClusterService_WatchShardMapServer) error {
	c := s.n.c
	user, err := c.accounts.user(stream.Context())
	if err != nil {
		return err
	}
	for sent := uint64(0); ; {
		c.mu.Lock()
		m, members, changed := c.shardMap, c.membersLocked(), c.changed
		c.mu.Unlock()
		if c.accounts.removed(user) {
			return errNoUser()
		}
		if m.GetVersion() > sent {
			sent = m.GetVersion()
			if err := stream.Send(&pb.WatchShardMapResponse{Map: m, AllShards: true, Members: members, AllMembers: true, MembersVersion: m.GetVersion()}); err != nil {
				return err //nolint:wrapcheck // gRPC's own
			}
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (s *clusterServer) ListMembers(context.Context, *pb.ListMembersRequest) (*pb.ListMembersResponse, error) {
	s.n.c.mu.Lock()
	defer s.n.c.mu.Unlock()
	return &pb.ListMembersResponse{Members: s.n.c.membersLocked()}, nil
}

func (s *clusterServer) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	return s.n.status(), nil
}

// status returns a status that depends only on the history: it is the same in every run.
func (n *Node) status() *pb.StatusResponse {
	self := n.member()
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	head := n.c.hist.revision()
	visible := n.visible(head)
	out := &pb.StatusResponse{
		Self: self, ClusterId: n.c.shardMap.GetClusterId(), Lineage: n.c.lineage, MapVersion: n.c.shardMap.GetVersion(),
		EtcdClusterId: "cdf818194e3a8c32", EtcdRevision: head, EtcdAge: durationpb.New(40 * time.Millisecond),
		Watches: n.waiting.Load(), Connections: 1, Uptime: durationpb.New(90 * time.Minute),
		OverruledFlags: n.c.placing.flags[n.Name],
	}
	for level := n.c.shardMap.GetFeatureLevel() + 1; level <= self.GetFeatureLevel(); level++ {
		out.NewLevels = append(out.NewLevels, &pb.FeatureLevel{Level: level, Adds: fmt.Sprintf("the features of level %d", level)})
	}
	out.RaftLeader = n.c.leaderLocked()
	self.Leader, self.Voter = n.Name == out.GetRaftLeader(), n.c.votesLocked(n.Name)
	out.Voters, _ = n.c.votersLocked()
	self.Draining = self.GetDraining() || slices.Contains(n.c.shardMap.GetDrained(), n.Name)
	for _, s := range n.c.shardMap.GetShards() {
		for i, name := range s.GetReplicas() {
			if name != n.Name {
				continue
			}
			start, end, _ := span(s.GetKey(), s.GetRangeEnd())
			if start == "\x00" {
				start = ""
			}
			r := &pb.ReplicaStatus{
				ShardId: s.GetId(), Node: n.Name, Ready: true, Source: pb.ReplicaSource_REPLICA_SOURCE_ETCD,
				Progress: visible, Floor: max(n.c.hist.floor, 2), Age: durationpb.New(40 * time.Millisecond),
				WindowSpan: durationpb.New(10 * time.Minute),
				Roots:      3, RootsBytes: 3 << 10, Tombstones: 2, TombstoneBytes: 2 << 10,
			}
			if i > 0 {
				r.Source, r.SourceNode = pb.ReplicaSource_REPLICA_SOURCE_PEER, s.GetReplicas()[0]
			}
			for _, kv := range n.c.hist.state(visible, start, end) {
				r.Keys++
				r.StateBytes += int64(len(kv.GetKey()) + len(kv.GetValue()))
			}
			for rev := r.GetFloor(); rev <= visible; rev++ {
				if events := n.c.hist.events(rev, start, end, false); len(events) > 0 {
					r.WindowBatches++
					for _, e := range events {
						r.WindowBytes += int64(len(e.GetKv().GetKey()) + len(e.GetKv().GetValue()))
					}
				}
			}
			out.Replicas = append(out.Replicas, r)
		}
	}
	return out
}

type adminServer struct {
	pb.UnimplementedAdminServiceServer
	n *Node
}

func (s *adminServer) ClusterStatus(_ context.Context, r *pb.ClusterStatusRequest) (*pb.ClusterStatusResponse, error) {
	if r.GetTimeout().AsDuration() > 30*time.Second { // as nodes do
		return nil, failure(codes.InvalidArgument, "INVALID_REQUEST", "timeout: must lie between 0 and 30s", map[string]string{"field": "timeout", "reason": "must lie between 0 and 30s"})
	}
	c := s.n.c
	c.mu.Lock()
	out := &pb.ClusterStatusResponse{Map: c.shardMap, Settings: &pb.ClusterSettings{Replicas: c.shardMap.GetReplicas(), Served: c.placing.served}}
	if c.placing.served == nil {
		out.Settings.Served = []*pb.KeyRange{{Key: []byte{0}, RangeEnd: []byte{0}}}
	}
	c.mu.Unlock()
	for _, n := range c.nodes {
		n.mu.Lock()
		up := n.server != nil
		n.mu.Unlock()
		m := &pb.MemberStatus{Member: n.member()}
		if up {
			m.Status = n.status()
			m.Member = m.GetStatus().GetSelf()
		} else {
			m.Member.State, m.Error = pb.MemberState_MEMBER_STATE_DEAD, "connection refused"
		}
		out.Members = append(out.Members, m)
	}
	return out, nil
}

type kvServer struct {
	etcdserverpb.UnimplementedKVServer
	n *Node
}

// tellHistory reports the history of a write in the headers, as nodes do.
func (s *kvServer) tellHistory(ctx context.Context) {
	_ = grpc.SetHeader(ctx, metadata.Pairs("shardwatch-cluster", s.n.c.cfg.ID, "shardwatch-lineage", strconv.FormatUint(s.n.c.Lineage(), 10)))
}

func (s *kvServer) Put(ctx context.Context, r *etcdserverpb.PutRequest) (*etcdserverpb.PutResponse, error) {
	if err := s.n.writable(); err != nil {
		return nil, err
	}
	s.tellHistory(ctx)
	rev := s.n.c.Put(string(r.GetKey()), string(r.GetValue()))
	return &etcdserverpb.PutResponse{Header: &etcdserverpb.ResponseHeader{Revision: rev}}, nil
}

func (s *kvServer) DeleteRange(ctx context.Context, r *etcdserverpb.DeleteRangeRequest) (*etcdserverpb.DeleteRangeResponse, error) {
	if err := s.n.writable(); err != nil {
		return nil, err
	}
	start, end, ok := span(r.GetKey(), r.GetRangeEnd())
	if !ok {
		start, end = "", "\x00"
	}
	s.tellHistory(ctx)
	s.n.c.mu.Lock()
	var ops []Op
	for _, kv := range s.n.c.hist.state(s.n.c.hist.revision(), start, end) {
		ops = append(ops, Op{Key: string(kv.GetKey()), Delete: true})
	}
	rev := s.n.c.hist.apply(ops)
	s.n.c.broadcastLocked()
	s.n.c.mu.Unlock()
	return &etcdserverpb.DeleteRangeResponse{Header: &etcdserverpb.ResponseHeader{Revision: rev}, Deleted: int64(len(ops))}, nil
}
