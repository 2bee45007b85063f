package memetcd

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// maintenanceServer is etcd's Maintenance service: Status alone.
type maintenanceServer struct {
	pb.UnimplementedMaintenanceServer
	*Server
}

func (s *maintenanceServer) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rev := s.store.rev()
	return &pb.StatusResponse{
		Header:           s.headerLocked(rev),
		Version:          s.config.Version,
		StorageVersion:   s.config.Version,
		DbSize:           1 << 20,
		DbSizeInUse:      1 << 20,
		Leader:           s.config.MemberID,
		RaftIndex:        uint64(rev),
		RaftAppliedIndex: uint64(rev),
		RaftTerm:         s.term,
	}, nil
}

// clusterServer is etcd's Cluster service: MemberList alone, of one member.
type clusterServer struct {
	pb.UnimplementedClusterServer
	*Server
}

func (s *clusterServer) MemberList(context.Context, *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &pb.MemberListResponse{
		Header:  s.headerLocked(0),
		Members: []*pb.Member{{ID: s.config.MemberID, Name: "memetcd"}},
	}, nil
}
