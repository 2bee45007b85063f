package admin

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/edge/callers"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wire"
)

type clusterService struct {
	shardwatchv1.UnimplementedClusterServiceServer
	srv *Service
	// callers authorizes the call.
	callers *callers.Checker
}

// ListMembers implements shardwatchv1.ClusterServiceServer.
func (s *clusterService) ListMembers(context.Context, *shardwatchv1.ListMembersRequest) (*shardwatchv1.ListMembersResponse, error) {
	return &shardwatchv1.ListMembersResponse{Members: s.srv.cfg.Node.Members()}, nil
}

// Status implements shardwatchv1.ClusterServiceServer.
func (s *clusterService) Status(context.Context, *shardwatchv1.StatusRequest) (*shardwatchv1.StatusResponse, error) {
	return s.srv.cfg.Status(), nil
}

type adminService struct {
	shardwatchv1.UnimplementedAdminServiceServer
	srv *Service
}

// Bounds of ClusterStatus.
const (
	statusTimeout    = 2 * time.Second
	maxStatusTimeout = 30 * time.Second
	statusFanOut     = 32
)

// ClusterStatus implements shardwatchv1.AdminServiceServer.
func (s *adminService) ClusterStatus(ctx context.Context, r *shardwatchv1.ClusterStatusRequest) (*shardwatchv1.ClusterStatusResponse, error) {
	timeout := statusTimeout
	if t := r.GetTimeout(); t != nil && t.AsDuration() != 0 {
		timeout = t.AsDuration()
		if !t.IsValid() || timeout < 0 || timeout > maxStatusTimeout {
			return nil, wire.Status(&kv.InvalidError{Field: "timeout", Reason: fmt.Sprintf("must lie between 0 and %v", maxStatusTimeout)})
		}
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	members := s.srv.cfg.Node.Members()
	out := &shardwatchv1.ClusterStatusResponse{Members: make([]*shardwatchv1.MemberStatus, len(members))}
	if m := s.srv.cfg.Node.Map(); m != nil {
		out.Map, out.Settings = wire.MapMessage(m), wire.SettingsMessage(m)
	}
	var g errgroup.Group
	g.SetLimit(statusFanOut)
	for i, m := range members {
		out.Members[i] = &shardwatchv1.MemberStatus{Member: m}
		g.Go(func() error {
			var err error
			switch name := shard.NodeID(m.GetName()); {
			case name == s.srv.cfg.Self:
				out.Members[i].Status = s.srv.cfg.Status()
			case m.GetState() == shardwatchv1.MemberState_MEMBER_STATE_LEFT, m.GetState() == shardwatchv1.MemberState_MEMBER_STATE_DEAD:
				out.Members[i].Error = "gossip reports it as gone"
			default:
				out.Members[i].Status, err = s.srv.cfg.Node.StatusOf(ctx, name)
			}
			if err != nil {
				out.Members[i].Error = wire.Plain(err)
			}
			return nil
		})
	}
	_ = g.Wait() // each failure is reported with its member
	for _, m := range out.GetMembers() {
		if self := m.GetStatus().GetSelf(); self != nil { // only voters know the voters and the leader
			m.Member.Voter, m.Member.Leader = self.GetVoter(), self.GetLeader()
		}
	}
	return out, nil
}
