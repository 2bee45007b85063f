package admin

import (
	"context"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/control/mapchange"
	"github.com/shardwatch/shardwatch/internal/edge/callers"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// RecoverVoters implements shardwatchv1.AdminServiceServer.
func (s *adminService) RecoverVoters(ctx context.Context, r *shardwatchv1.RecoverVotersRequest) (*shardwatchv1.RecoverVotersResponse, error) {
	plan, version, err := s.recoverVoters(ctx, r)
	if err != nil {
		return nil, wire.Status(err)
	}
	return &shardwatchv1.RecoverVotersResponse{
		Node: string(plan.Node), MapVersion: plan.MapVersion, AnnouncedVersion: plan.Announced, NewVersion: version,
		Voters: texts(plan.Voters), Reachable: texts(plan.Reachable),
	}, nil
}

func (s *adminService) recoverVoters(ctx context.Context, r *shardwatchv1.RecoverVotersRequest) (*mapchange.Recovery, uint64, error) {
	order := mapchange.RecoverOrder{DryRun: r.GetDryRun(), Node: shard.NodeID(r.GetNode()), MapVersion: r.GetMapVersion()}
	switch {
	case s.srv.cfg.Operator == nil:
		return nil, 0, errNoRecovery()
	case !order.DryRun && order.Node == "":
		return nil, 0, &kv.InvalidError{Field: "node", Reason: "name the node of the plan: ask for that with dry_run first"}
	}
	who, err := s.mayAdminister(ctx)
	if err != nil {
		return nil, 0, err
	}
	plan, version, err := s.srv.cfg.Operator.RecoverVoters(ctx, order)
	if order.DryRun {
		return plan, version, err
	}
	log := s.srv.cfg.Logger.With("audit", "recover voters", "first_voter", r.GetNode(), "from_version", r.GetMapVersion(), "identity", who)
	if from := callers.Address(ctx); from != nil {
		log = log.With("client", from.String())
	}
	if err != nil {
		log.Warn("recovery of the voters failed", "error", err)
		return nil, 0, err
	}
	log.Warn("voters recovered by an operator", "version", version)
	return plan, version, nil
}

func errNoRecovery() error {
	return &kv.UnavailableError{Why: kv.NotReady, Detail: "this node cannot recover the voters"}
}

func texts(nodes []shard.NodeID) []string {
	var out []string
	for _, n := range nodes {
		out = append(out, string(n))
	}
	return out
}
