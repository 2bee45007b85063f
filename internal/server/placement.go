package server

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"google.golang.org/grpc"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/control/mapchange"
	"github.com/shardwatch/shardwatch/internal/data/peerapi"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// Operator changes the shard map for operators.
type Operator interface {
	peerapi.Voting
	// Operate carries out an order. It calls planned once the voters have agreed,
	// or for a dry run, at once; then progress now and then, until all is done. It
	// fails with a *mapchange.RefusedError, *kv.InvalidError or
	// *kv.UnavailableError, with what planned and progress return, and when ctx
	// ends. An accepted change continues.
	Operate(ctx context.Context, o mapchange.Order, planned func(*mapchange.Plan) error, progress func(*mapchange.Progress) error) error
	// RecoverVoters returns the plan of a recovery of the voters, and unless it is a dry
	// run, carries it out: version is that of the map that the only voter begins with.
	// It fails with a *mapchange.RefusedError or a *kv.UnavailableError.
	RecoverVoters(ctx context.Context, o mapchange.RecoverOrder) (plan *mapchange.Recovery, version uint64, err error)
}

// Bounds of ChangePlacement.
const (
	maxRequestID = 128 // bytes: voters remember it
	maxOrders    = 64  // that are followed at a time
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
	who, err := s.mayOperate(ctx)
	if err != nil {
		return err
	}
	if s.srv.orders.Add(1) > maxOrders {
		s.srv.orders.Add(-1)
		return &kv.LimitError{Limit: "orders", Max: maxOrders, Detail: fmt.Sprintf("this node follows %d changes of the shard map: wait for some to end, or use another node", maxOrders)}
	}
	defer s.srv.orders.Add(-1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-s.srv.stopping:
			cancel()
		case <-ctx.Done():
		}
	}()
	log := s.srv.cfg.Logger.With("audit", "placement", "change", order.Request.String(), "request", order.ID, "repeated", order.Repeated, "forced", order.Force, "identity", who)
	if from := clientOf(ctx); from != nil {
		log = log.With("client", from.String())
	}
	agreed := false
	err = s.srv.cfg.Operator.Operate(ctx, order, func(p *mapchange.Plan) error {
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
	case <-s.srv.stopping:
		if err != nil {
			return kv.ShuttingDown()
		}
	default:
	}
	return err
}

// mayOperate returns who the caller of ctx is, for logs. While etcd's authentication
// is on, operators need etcd's root role: a right to keys gives none to change the
// cluster.
func (s *adminService) mayOperate(ctx context.Context) (who string, err error) {
	caller, err := s.srv.cfg.Access.Caller(ctx)
	if err != nil {
		return "", err
	}
	if g := s.srv.cfg.Guard; g != nil {
		user, err := s.srv.user(ctx)
		if err == nil {
			err = g.MayAdminister(user)
		}
		if err != nil {
			err = native(err)
			if errors.As(err, new(*kv.DeniedError)) {
				err = &kv.DeniedError{Detail: fmt.Sprintf("etcd's user %q may not administer: log in as a user with etcd's root role", user)}
			}
			s.srv.cfg.Audit.Refused(ctx, user, err)
			return "", err
		}
	}
	return s.srv.who(ctx, caller), nil
}
