package admin

import (
	"context"
	"fmt"
	"strconv"
	"unicode/utf8"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/edge/callers"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// maxReason bounds the reason for a new lineage: every node keeps it.
const maxReason = 1 << 10

// BumpLineage implements shardwatchv1.AdminServiceServer.
func (s *adminService) BumpLineage(ctx context.Context, r *shardwatchv1.BumpLineageRequest) (*shardwatchv1.BumpLineageResponse, error) {
	lineage, err := s.bumpLineage(ctx, r)
	if err != nil {
		return nil, wire.Status(err)
	}
	return &shardwatchv1.BumpLineageResponse{Lineage: lineage}, nil
}

func (s *adminService) bumpLineage(ctx context.Context, r *shardwatchv1.BumpLineageRequest) (uint64, error) {
	reason := r.GetReason()
	switch {
	case s.srv.cfg.Lineage == nil:
		return 0, &kv.UnavailableError{Why: kv.NotReady, Detail: "this node cannot begin a lineage"}
	case r.GetLineage() == 0:
		return 0, &kv.InvalidError{Field: "lineage", Reason: "name the lineage to end"}
	case reason == "":
		return 0, &kv.InvalidError{Field: "reason", Reason: "give a reason: every watch is ended or sent the whole state"}
	case len(reason) > maxReason || !utf8.ValidString(reason):
		return 0, &kv.InvalidError{Field: "reason", Reason: fmt.Sprintf("must be text of at most %d bytes", maxReason)}
	}
	var accept uint64
	if id := r.GetEtcdClusterId(); id != "" {
		var err error
		if accept, err = strconv.ParseUint(id, 16, 64); err != nil || accept == 0 {
			return 0, &kv.InvalidError{Field: "etcd_cluster_id", Reason: fmt.Sprintf("%q is not a cluster ID as etcdctl prints it, in hex", id)}
		}
	}
	who, err := s.mayAdminister(ctx)
	if err != nil {
		return 0, err
	}
	log := s.srv.cfg.Logger.With("audit", "lineage bump", "lineage", r.GetLineage(), "reason", reason, "identity", who)
	if from := callers.Address(ctx); from != nil {
		log = log.With("client", from.String())
	}
	lineage, err := s.srv.cfg.Lineage.BumpLineage(ctx, r.GetLineage(), reason, accept)
	if err != nil {
		log.Warn("new lineage rejected", "error", err)
		return 0, err
	}
	log.Warn("new lineage begun by an operator", "new_lineage", lineage)
	return lineage, nil
}
