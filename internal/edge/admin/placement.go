package admin

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"google.golang.org/grpc"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/control/mapchange"
	"github.com/shardwatch/shardwatch/internal/edge/callers"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// Bounds of ChangePlacement.
const (
	maxRequestID = 128 // bytes; the voters store it
	maxOrders    = 64  // followed at a time
)

// ChangePlacement implements shardwatchv1.AdminServiceServer.
func (s *adminService) ChangePlacement(r *shardwatchv1.ChangePlacementRequest, out grpc.ServerStreamingServer[shardwatchv1.ChangePlacementResponse]) error {
	return wire.Status(s.changePlacement(out.Context(), r, out.Send))
}

func (s *adminService) changePlacement(ctx context.Context, r *shardwatchv1.ChangePlacementRequest, send func(*shardwatchv1.ChangePlacementResponse) error) error {
	if s.srv.cfg.Operator == nil {
		return &kv.UnavailableError{Why: kv.NotReady, Detail: "this node cannot change the shard map"}
	}
	if id := r.GetRequestId(); len(id) > maxRequestID || !utf8.ValidString(id) {
		return &kv.InvalidError{Field: "request_id", Reason: fmt.Sprintf("must be text of at most %d bytes", maxRequestID)}
	}
	order, err := wire.Order(r)
	if err != nil {
		return err
	}
	who, err := s.mayAdminister(ctx)
	if err != nil {
		return err
	}
	if s.srv.orders.Add(1) > maxOrders {
		s.srv.orders.Add(-1)
		return &kv.LimitError{Limit: "shard map changes", Max: maxOrders, Detail: fmt.Sprintf("this node follows %d shard map changes: wait for some to end, or use another node", maxOrders)}
	}
	defer s.srv.orders.Add(-1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-s.srv.cfg.Stopping:
			cancel()
		case <-ctx.Done():
		}
	}()
	log := s.srv.cfg.Logger.With("audit", "placement", "change", order.Request.String(), "request", order.ID, "repeated", order.Repeated, "forced", order.Force, "identity", who)
	if from := callers.Address(ctx); from != nil {
		log = log.With("client", from.String())
	}
	agreed := false
	err = s.srv.cfg.Operator.ChangeMap(ctx, order, func(p *mapchange.Plan) error {
		agreed = true
		if !order.DryRun {
			log.Info("shard map change begun by an operator", "map_version", p.Version, "steps", len(p.Steps))
		}
		for _, part := range wire.PlanMessages(p) {
			if err := send(&shardwatchv1.ChangePlacementResponse{Part: &shardwatchv1.ChangePlacementResponse_Plan{Plan: part}}); err != nil {
				return err
			}
		}
		return nil
	}, func(p *mapchange.Progress) error {
		return send(&shardwatchv1.ChangePlacementResponse{Part: &shardwatchv1.ChangePlacementResponse_Progress{Progress: wire.ProgressMessage(p)}})
	})
	if err != nil && !agreed {
		log.Info("shard map change rejected", "error", err)
	}
	select {
	case <-s.srv.cfg.Stopping:
		if err != nil {
			return kv.ShuttingDown()
		}
	default:
	}
	return err
}

// mayAdminister returns the caller's name, for logs. While etcd's authentication is on, operators need etcd's
// root role: the right to read or write keys does not include changes of the cluster.
func (s *adminService) mayAdminister(ctx context.Context) (who string, err error) {
	caller, err := s.srv.cfg.Callers.Access.Caller(ctx)
	if err != nil {
		return "", err
	}
	if g := s.srv.cfg.Callers.Guard; g != nil {
		user, err := s.srv.cfg.Callers.User(ctx)
		if err == nil {
			err = g.MayAdminister(user)
		}
		if err != nil {
			err = callers.Error(err)
			if errors.As(err, new(*kv.DeniedError)) {
				err = &kv.DeniedError{Detail: fmt.Sprintf("etcd's user %q may not administer: log in as a user with etcd's root role", user)}
			}
			s.srv.cfg.Callers.Audit.Refused(ctx, user, err)
			return "", err
		}
	}
	return s.srv.cfg.Callers.Name(ctx, caller), nil
}
