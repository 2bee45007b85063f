package clienttest

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
)

// BumpLineage begins a new lineage with the current history.
func (s *adminServer) BumpLineage(_ context.Context, r *pb.BumpLineageRequest) (*pb.BumpLineageResponse, error) {
	c := s.n.c
	c.mu.Lock()
	now, revision := c.lineage, c.hist.revision()
	c.mu.Unlock()
	if r.GetLineage() != now {
		return nil, status.Errorf(codes.FailedPrecondition, "the position belongs to lineage %d, the cluster is at lineage %d", r.GetLineage(), now) //nolint:wrapcheck // gRPC's own
	}
	c.Restore(revision)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shardMap = proto.CloneOf(c.shardMap) // streams still send the old one
	c.shardMap.Origin = &pb.LineageOrigin{Cause: "operator", Reason: r.GetReason(), Node: s.n.Name, RevisionBefore: revision, Revision: revision}
	return &pb.BumpLineageResponse{Lineage: c.lineage}, nil
}
