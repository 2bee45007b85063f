package admin

import (
	"slices"
	"time"

	"google.golang.org/grpc"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/auth/policy"
	"github.com/shardwatch/shardwatch/internal/edge/callers"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// maxVerifies bounds the concurrent Verify calls: they share a twentieth of a CPU with the periodic
// comparisons, and the permits for large reads of etcd with nodes that load shards.
const maxVerifies = 4

var errNoVerifier = &kv.UnavailableError{Why: kv.NotReady, Detail: "this node compares no copies"}

// Verify implements shardwatchv1.AdminServiceServer.
func (s *adminService) Verify(r *shardwatchv1.VerifyRequest, out grpc.ServerStreamingServer[shardwatchv1.VerifyResponse]) error {
	return wire.Status(s.verify(r, out))
}

// verify reports only keys that the caller may read. A comparison with etcd reads all of etcd, and needs the
// right to.
func (s *adminService) verify(r *shardwatchv1.VerifyRequest, out grpc.ServerStreamingServer[shardwatchv1.VerifyResponse]) error {
	v := s.srv.cfg.Verifier
	if v == nil {
		return errNoVerifier
	}
	ctx, g, user := out.Context(), s.srv.cfg.Callers.Guard, ""
	caller, err := s.srv.cfg.Callers.Access.Caller(ctx)
	if err != nil {
		return err
	}
	if !callers.Open(g, kv.Range{}) {
		if user, err = s.srv.cfg.Callers.User(ctx); err == nil && r.GetEtcd() {
			err = g.MayRead(user, kv.Range{})
		}
		if err != nil {
			return callers.Error(err)
		}
	}
	defer s.srv.verifies.Add(-1)
	if s.srv.verifies.Add(1) > maxVerifies {
		return &kv.LimitError{Limit: "verifications", Max: maxVerifies, Detail: "too many comparisons run at this node: wait for one to end, or use another node", RetryAfter: time.Second}
	}
	var ids []shard.ID
	for _, id := range r.GetShardIds() {
		ids = append(ids, shard.ID(id))
	}
	return v.Verify(ctx, ids, r.GetEtcd(), func(m *shardwatchv1.VerifyResponse) error {
		all := len(m.GetDifferences())
		m.Differences = slices.DeleteFunc(m.GetDifferences(), func(d *shardwatchv1.KeyDifference) bool {
			key := kv.Single(string(d.GetKey()))
			return !caller.Allows(policy.Read, key) || g != nil && g.MayRead(user, key) != nil
		})
		m.More = m.GetMore() || len(m.GetDifferences()) < all
		return out.Send(m)
	})
}
