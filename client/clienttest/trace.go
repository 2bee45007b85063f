package clienttest

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
)

// TraceRevision reports the same path in every run, for each revision that exists: from etcd
// to the first node, from there to the others 200 µs later each, and from each to ten watches.
func (s *adminServer) TraceRevision(_ context.Context, r *pb.TraceRevisionRequest) (*pb.TraceRevisionResponse, error) {
	c := s.n.c
	c.mu.Lock()
	head := c.hist.revision()
	c.mu.Unlock()
	out := &pb.TraceRevisionResponse{Node: s.n.Name, Oldest: min(2, head), Newest: head}
	if r.GetRevision() < 2 || r.GetRevision() > head {
		return out, nil
	}
	micros := func(n int) *durationpb.Duration { return durationpb.New(time.Duration(n) * time.Microsecond) }
	began := time.Date(2026, 1, 2, 15, 4, 5, 123_456_000, time.UTC)
	for i, n := range c.nodes {
		if n != s.n {
			continue
		}
		out.Received = timestamppb.New(began.Add(time.Duration(i) * 200 * time.Microsecond))
		hop := &pb.RevisionHop{ShardId: 1, Source: pb.ReplicaSource_REPLICA_SOURCE_ETCD, Received: micros(0), Applied: micros(40)}
		if i > 0 {
			hop.Source, hop.SourceNode = pb.ReplicaSource_REPLICA_SOURCE_PEER, c.nodes[0].Name
		}
		out.Hops = append(out.Hops, hop)
		out.Watches = &pb.RevisionSent{Times: 10, First: micros(90), Last: micros(1500)}
		if i == 0 {
			out.Nodes = &pb.RevisionSent{Times: int64(len(c.nodes) - 1), First: micros(70), Last: micros(80)}
		}
	}
	return out, nil
}
