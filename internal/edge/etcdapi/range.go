package etcdapi

import (
	"bytes"
	"context"
	"errors"
	"unsafe"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/shardwatch/shardwatch/internal/auth/authz"
	"github.com/shardwatch/shardwatch/internal/auth/policy"
	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/edge/etcdview"
	"github.com/shardwatch/shardwatch/internal/fair"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// reads has the state of Range and RangeStream.
type reads struct {
	chunks *chunks
	// detours limits the lists that etcd answers because this node cannot.
	detours *fair.Gate
	// wide limits the writes to etcd whose answers may be large.
	wide *fair.Gate
}

// maxDetours bounds the concurrent lists that etcd answers because this node cannot:
// while a shard is unavailable, all its waiting lists must not reach etcd at once.
const maxDetours = 16

func newReads(b *budget.Budget) reads {
	return reads{chunks: newChunks(b), detours: fair.NewGate(maxDetours, 0), wide: fair.NewGate(maxWide, 0)}
}

// Range implements etcd's KV.Range.
//
// It is answered from memory if the whole range is served. etcd answers all other requests:
// ranges that are not served, revisions that are no longer kept, and shards that do not reach the
// revision in time.
func (a *API) Range(ctx context.Context, r *etcdserverpb.RangeRequest) (*wire.Encoded, error) {
	if err := checkRange(r); err != nil {
		return nil, err
	}
	release, err := a.carry(a.holder(ctx), 2*proto.Size(r)) // decoded, and encoded for etcd
	if err != nil {
		return nil, err
	}
	defer release()
	rng, ok := rangeOf(r)
	if !ok {
		return a.forward(ctx, r)
	}
	if err := a.mayRead(ctx, rng); err != nil {
		return nil, err
	}
	reading, now, err := a.read(ctx, r, rng)
	if err == nil {
		var answer *wire.Encoded
		if answer, err = a.answer(ctx, r, reading, now); err == nil {
			tellAge(r, reading, func(md metadata.MD) error { return grpc.SetHeader(ctx, md) })
			return answer, nil
		}
	}
	if err := a.refusal(ctx, err); err != nil {
		return nil, err
	}
	leave, err := a.detour(ctx, rng, err)
	if err != nil {
		return nil, err
	}
	defer leave()
	return a.forward(ctx, r)
}

// checkRange fails as etcd does (v3rpc/key.go).
func checkRange(r *etcdserverpb.RangeRequest) error {
	if len(r.GetKey()) == 0 {
		return rpctypes.ErrGRPCEmptyKey
	}
	if _, ok := etcdserverpb.RangeRequest_SortOrder_name[int32(r.GetSortOrder())]; !ok {
		return rpctypes.ErrGRPCInvalidSortOption
	}
	if _, ok := etcdserverpb.RangeRequest_SortTarget_name[int32(r.GetSortTarget())]; !ok {
		return rpctypes.ErrGRPCInvalidSortOption
	}
	return nil
}

// rangeOf returns the requested range; false if it cannot contain a key. etcd answers such a
// request, because it is valid there, and decides which rights it needs.
func rangeOf(r *etcdserverpb.RangeRequest) (kv.Range, bool) {
	if end := r.GetRangeEnd(); len(end) > 0 && !bytes.Equal(end, []byte{0}) && bytes.Compare(r.GetKey(), end) >= 0 {
		return kv.Range{}, false
	}
	rng, err := kv.RangeFromEtcd(shared(r.GetKey()), shared(r.GetRangeEnd()))
	return rng, err == nil
}

// shared returns the bytes of a request as a string, without a copy: a client's keys may have 2 MiB.
// Nothing changes a request.
func shared(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) } //nolint:gosec // see above

// holderKey is the context key of a forwarded call's holder: the forwarded context lacks the
// policy's token.
type holderKey struct{}

// holder returns a function that returns the client whose share of the budget a call uses.
func (a *API) holder(ctx context.Context) func() budget.Client {
	return func() budget.Client {
		if h, ok := ctx.Value(holderKey{}).(budget.Client); ok {
			return h
		}
		caller, err := a.cfg.Access.Caller(ctx)
		if err != nil {
			caller = nil // the token has expired meanwhile: use the address
		}
		return authz.Holder(ctx, caller)
	}
}

// mayRead fails unless the caller may read all of rng.
func (a *API) mayRead(ctx context.Context, rng kv.Range) error {
	caller, err := a.view.Caller(ctx)
	if err == nil {
		err = etcdview.InEtcdsWords(caller.May(ctx, policy.Read, rng))
	}
	if err == nil {
		_, err = a.view.Permit(ctx, rng, false)
	}
	return err
}

// final is an error that is the final answer: the request is not forwarded to etcd.
type final struct{ error }

// read fixes the revision of the read. now is the revision of the answer's header; 0: the reading's
// revision.
func (a *API) read(ctx context.Context, r *etcdserverpb.RangeRequest, rng kv.Range) (reading *router.Reading, now kv.Revision, err error) {
	req := router.ReadRequest{Range: rng, Serializable: r.GetSerializable(), MaxStaleness: a.cfg.MaxStaleness}
	if req.MaxStaleness == 0 {
		req.MaxStaleness = router.AnyAge
	}
	if r.GetRevision() > 0 { // below 0 means now, too (mvcc/kvstore_txn.go)
		return a.readAt(ctx, req, kv.Revision(r.GetRevision()))
	}
	reading, err = a.cfg.Router.Read(ctx, req)
	return reading, 0, err
}

// readAt is read at an older revision. etcd decides whether the revision exists;
// etcd's current revision goes into the header.
func (a *API) readAt(ctx context.Context, req router.ReadRequest, revision kv.Revision) (*router.Reading, kv.Revision, error) {
	now, err := a.cfg.Etcd.CheckRevision(ctx, revision)
	switch {
	case errors.As(err, new(*kv.CompactedError)):
		return nil, 0, final{rpctypes.ErrGRPCCompacted}
	case errors.As(err, new(*kv.FutureError)):
		return nil, 0, final{rpctypes.ErrGRPCFutureRev}
	case err != nil && !req.Serializable:
		return nil, 0, err
	case err != nil:
		// The state of this node decides, as at a member that has lost its quorum.
		present, err := a.cfg.Router.Read(ctx, req)
		if err != nil {
			return nil, 0, err
		}
		if now = present.Revision; now > 0 && revision > now {
			return nil, 0, final{rpctypes.ErrGRPCFutureRev}
		}
	}
	req.Revision, req.Exists = revision, true
	reading, err := a.cfg.Router.Read(ctx, req)
	return reading, now, err
}

// refusal returns the error for the client, or nil if the request must be forwarded to
// etcd.
func (a *API) refusal(ctx context.Context, err error) error {
	var answer final
	if errors.As(err, &answer) {
		return answer.error
	}
	if ctx.Err() != nil {
		return context.Cause(ctx) // gRPC converts it into a status, as at etcd
	}
	var unavailable *kv.UnavailableError
	if !errors.As(err, &unavailable) {
		return nil
	}
	switch unavailable.Why {
	case kv.Stale:
		return rpctypes.ErrGRPCNoLeader
	case kv.EtcdUnavailable:
		if etcdview.WantsLeader(ctx) {
			return rpctypes.ErrGRPCNoLeader
		}
		return rpctypes.ErrGRPCTimeout
	case kv.NotReady, kv.Draining:
	}
	return nil
}

// answer reads the keys and encodes the answer. now is the result of read.
func (a *API) answer(ctx context.Context, r *etcdserverpb.RangeRequest, reading *router.Reading, now kv.Revision) (*wire.Encoded, error) {
	how := selectionOf(r)
	l := a.reads.chunks.list(how.form(), a.holder(ctx))
	l.turns, l.ctx = a.cfg.Turns, ctx
	count, more, err := how.scan(ctx, reading, l)
	if err == nil {
		err = l.finish()
	}
	l.leave()
	if err != nil {
		l.buffers.Free()
		return nil, err
	}
	if now == 0 {
		now = reading.Revision
	}
	h := a.view.WireHeader(now)
	answer := wire.RangeAnswer{Header: &h, Encoded: l.buffers, Items: l.items, Form: l.form, More: more, Count: count}
	return answer.Encode(), nil
}

// detour waits for the caller's turn among the lists that etcd answers instead of this node; leave ends
// the turn. Reads of single keys cost etcd little, and reads of ranges that are not served
// are forwarded like all other calls: neither needs a turn.
func (a *API) detour(ctx context.Context, rng kv.Range, why error) (leave func(), err error) {
	if rng.IsSingle() || errors.As(why, new(*kv.NotServedError)) {
		return func() {}, nil
	}
	a.cfg.Logger.Debug("list forwarded to etcd", "range", rng, "error", why)
	return a.reads.detours.Wait(ctx, a.holder(ctx)().Name)
}

// forward forwards the request to etcd.
func (a *API) forward(ctx context.Context, r *etcdserverpb.RangeRequest) (*wire.Encoded, error) {
	return a.passBy(ctx, etcdserverpb.KV_Range_FullMethodName, r, a.ask)
}
