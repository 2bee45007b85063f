package etcdapi

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/shardwatch/shardwatch/internal/auth/authz"
	"github.com/shardwatch/shardwatch/internal/auth/policy"
	"github.com/shardwatch/shardwatch/internal/edge/etcdview"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/protofields"
	"github.com/shardwatch/shardwatch/internal/wait"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// The policy applies to this API as to the native one. etcd checks its own rights in addition for
// forwarded calls.

// judge fails unless the policy allows the caller's forwarded call. An unknown
// method requires the rights of an administrator.
func (a *API) judge(ctx context.Context, c *authz.Caller, method string, request any) error {
	if c == nil {
		return nil
	}
	return etcdview.InEtcdsWords(a.weigh(ctx, c, method, request))
}

func (a *API) weigh(ctx context.Context, c *authz.Caller, method string, request any) error {
	on := func(v policy.Verb, r kv.Range) error { return c.May(ctx, v, r) }
	// etcd attaches the key to the lease, and keeps the lease alive meanwhile.
	leased := func(r kv.Range, lease int64) error {
		if err := on(policy.Write, r); err != nil || lease == 0 {
			return err
		}
		return a.weighLease(ctx, c, policy.Write, lease)
	}
	switch method {
	case etcdserverpb.KV_Put_FullMethodName:
		return a.weighed(ctx, c, request, (*operations).put)
	case etcdserverpb.KV_DeleteRange_FullMethodName:
		return a.weighed(ctx, c, request, (*operations).del)
	case etcdserverpb.KV_Txn_FullMethodName:
		return a.weighed(ctx, c, request, (*operations).txn)
	case etcdserverpb.KV_Range_FullMethodName, etcdserverpb.KV_RangeStream_FullMethodName:
		return read(request, func(m *etcdserverpb.RangeRequest) error {
			return on(policy.Read, spanned(m.GetKey(), m.GetRangeEnd()))
		})

	case etcdserverpb.Lease_LeaseGrant_FullMethodName:
		return c.MaySome(ctx, policy.Write)
	case etcdserverpb.Lease_LeaseKeepAlive_FullMethodName:
		return read(request, func(m *etcdserverpb.LeaseKeepAliveRequest) error {
			return a.weighLease(ctx, c, policy.Write, m.GetID())
		})
	case etcdserverpb.Lease_LeaseRevoke_FullMethodName:
		// A revocation deletes the keys of the lease.
		return read(request, func(m *etcdserverpb.LeaseRevokeRequest) error {
			return a.weighLease(ctx, c, policy.Write, m.GetID())
		})
	case etcdserverpb.Lease_LeaseTimeToLive_FullMethodName:
		return read(request, func(m *etcdserverpb.LeaseTimeToLiveRequest) error {
			if !m.GetKeys() {
				return c.Known(ctx)
			}
			return a.weighLease(ctx, c, policy.Read, m.GetID())
		})

	case v3lockpb.Lock_Lock_FullMethodName:
		return read(request, func(m *v3lockpb.LockRequest) error { return leased(within(m.GetName()), m.GetLease()) })
	case v3lockpb.Lock_Unlock_FullMethodName:
		return read(request, func(m *v3lockpb.UnlockRequest) error { return on(policy.Write, kv.Single(string(m.GetKey()))) })
	case v3electionpb.Election_Campaign_FullMethodName:
		return read(request, func(m *v3electionpb.CampaignRequest) error { return leased(within(m.GetName()), m.GetLease()) })
	case v3electionpb.Election_Proclaim_FullMethodName:
		return read(request, func(m *v3electionpb.ProclaimRequest) error {
			return leased(kv.Single(string(m.GetLeader().GetKey())), m.GetLeader().GetLease())
		})
	case v3electionpb.Election_Resign_FullMethodName:
		return read(request, func(m *v3electionpb.ResignRequest) error {
			return leased(kv.Single(string(m.GetLeader().GetKey())), m.GetLeader().GetLease())
		})
	case v3electionpb.Election_Leader_FullMethodName:
		return read(request, func(m *v3electionpb.LeaderRequest) error { return on(policy.Read, within(m.GetName())) })
	case v3electionpb.Election_Observe_FullMethodName:
		return read(request, func(m *v3electionpb.LeaderRequest) error { return on(policy.Watch, within(m.GetName())) })

	case etcdserverpb.Auth_Authenticate_FullMethodName, etcdserverpb.Auth_AuthStatus_FullMethodName,
		etcdserverpb.Cluster_MemberList_FullMethodName, etcdserverpb.Maintenance_Status_FullMethodName:
		return c.Known(ctx)
	}
	return on(policy.OperatorWrite, kv.Range{})
}

// within returns the key range of the locks or elections with a name (etcd's
// client/v3/concurrency).
func within(name []byte) kv.Range { return kv.Prefix(string(name) + "/") }

// observed ends the Observe call of an election, which is a watch at etcd, when
// the policy no longer allows it.
func (a *API) observed(ctx context.Context, c *authz.Caller, request *wire.Encoded, end context.CancelCauseFunc) {
	var m v3electionpb.LeaderRequest
	if !peek(request, &m) {
		return // judge has refused it
	}
	keys := within(m.GetName())
	// Ends with the call.
	go func() {
		for {
			changed := a.cfg.Access.Changed()
			if !c.Allows(policy.Watch, keys) {
				if err := c.May(ctx, policy.Watch, keys); err != nil { // the policy may have changed back
					end(etcdview.InEtcdsWords(err))
					return
				}
			}
			if !wait.For(ctx, changed) {
				return
			}
		}
	}()
}

// weighLease fails unless the caller may use the verb on all keys of a lease, as etcd
// checks its own rights (apply/auth.go, checkLeasePutsKeys): the holder could not end a
// lease that other callers keep alive, or that has their keys. etcd reports the keys of
// the lease. If it fails, because the lease does not exist or the caller lacks the
// right, etcd does not serve the call either. For a caller with the right to all keys,
// etcd is not asked.
func (a *API) weighLease(ctx context.Context, c *authz.Caller, v policy.Verb, lease int64) error {
	if c.Allows(v, kv.Range{}) {
		return nil
	}
	if err := c.MaySome(ctx, v); err != nil {
		return err
	}
	t, err := etcdserverpb.NewLeaseClient(a.cfg.Etcd.ProxyConn()).LeaseTimeToLive(a.cfg.Access.Forward(ctx), &etcdserverpb.LeaseTimeToLiveRequest{ID: lease, Keys: true})
	if err != nil {
		return err
	}
	for _, key := range t.GetKeys() {
		if err := c.May(ctx, v, kv.Single(string(key))); err != nil {
			// The error does not reveal the keys of the lease to a caller without the right
			// to them; the audit log has them.
			return &kv.DeniedError{Detail: fmt.Sprintf("the policy does not let %s %s all keys of the lease", c.Name(), v)}
		}
	}
	return nil
}

// errRequest is the error for requests that cannot be decoded, so that their rights
// cannot be checked.
var errRequest = &kv.InvalidError{Field: "request", Reason: "cannot be read"}

// read decodes a request for weigh.
func read[M any](request any, weigh func(*M) error) error {
	m := new(M)
	switch r := request.(type) {
	case *wire.Encoded:
		if !peek(r, m) {
			return errRequest
		}
	case *M:
		m = r
	default:
		return errRequest
	}
	return weigh(m)
}

// maxLeases bounds the leases of one request: each costs a call to etcd. It equals etcd's
// default limit of operations (--max-txn-ops).
const maxLeases = 128

// weighed fails unless the caller has the rights for all operations of an encoded request.
func (a *API) weighed(ctx context.Context, c *authz.Caller, request any, look func(*operations, []byte)) error {
	e, ok := request.(*wire.Encoded)
	if !ok {
		return errRequest
	}
	o := &operations{may: func(v policy.Verb, r kv.Range) error { return c.May(ctx, v, r) }}
	b := e.Buffers.MaterializeToBuffer(mem.DefaultBufferPool())
	defer b.Free()
	look(o, b.ReadOnlyData())
	switch {
	case o.split:
		return errSplit()
	case o.malformed:
		return errRequest
	case o.err != nil:
		return o.err
	case len(o.leases) > maxLeases:
		return &kv.InvalidError{Field: "request", Reason: fmt.Sprintf("a transaction that attaches keys to more than %d leases: split it", maxLeases)}
	}
	for lease := range o.leases {
		if err := a.weighLease(ctx, c, policy.Write, lease); err != nil {
			return err
		}
	}
	return nil
}

// operations checks the operations of an encoded request. Like txnScan, it skips values and
// decodes nothing, so that many small operations need no memory.
type operations struct {
	txnScan // scans the encoding
	may     func(policy.Verb, kv.Range) error
	err     error              // the first error
	leases  map[int64]struct{} // leases of puts; at most maxLeases+1
}

// Tags of further fields; see txnSuccess.
const (
	txnCompare             = 1<<3 | length
	compareKey, compareEnd = 3<<3 | length, 64<<3 | length
	rangeKey, rangeEnd     = 1<<3 | length, 2<<3 | length
	putLease               = 3<<3 | uint64(protowire.VarintType)
	putPrev, deletePrev    = 4<<3 | uint64(protowire.VarintType), 3<<3 | uint64(protowire.VarintType)
)

// on checks the right to the verb on a range, and keeps the first error.
func (o *operations) on(v policy.Verb, key, end []byte) {
	if o.err == nil {
		o.err = o.may(v, spanned(key, end))
	}
}

// spanned returns the range of a request at etcd. For a range that etcd regards as empty, the caller
// needs the right to its key. The result shares the request's bytes, which may return to a pool
// after the check.
func spanned(key, end []byte) kv.Range {
	r, err := kv.RangeFromEtcd(shared(key), shared(end))
	if err != nil {
		return kv.Single(shared(key))
	}
	return r
}

func (o *operations) put(b []byte) {
	var key []byte
	prev, lease := false, uint64(0)
	o.fields(b, func(tag uint64, f protofields.Field) {
		switch tag {
		case putKey:
			key = f.Bytes
		case putLease:
			lease = f.Uint
		case putPrev:
			prev = true
		}
	})
	if lease != 0 && len(o.leases) <= maxLeases {
		if o.leases == nil {
			o.leases = make(map[int64]struct{})
		}
		o.leases[int64(lease)] = struct{}{}
	}
	o.on(policy.Write, key, nil)
	if prev { // the put returns the previous value
		o.on(policy.Read, key, nil)
	}
}

func (o *operations) del(b []byte) {
	prev := false
	key, end := o.span(b, deleteKey, deleteEnd, func(tag uint64) { prev = prev || tag == deletePrev })
	o.on(policy.Write, key, end)
	if prev {
		o.on(policy.Read, key, end)
	}
}

// span returns the key and range end in a message.
func (o *operations) span(b []byte, keyTag, endTag uint64, other func(tag uint64)) (key, end []byte) {
	o.fields(b, func(tag uint64, f protofields.Field) {
		switch tag {
		case keyTag:
			key = f.Bytes
		case endTag:
			end = f.Bytes
		default:
			other(tag)
		}
	})
	return key, end
}

func (o *operations) txn(b []byte) { o.within(b, 0) }

// within checks a transaction, and the transactions nested in it.
func (o *operations) within(b []byte, depth int) {
	if depth > maxTxnDepth {
		o.malformed = true
		return
	}
	none := func(uint64) {}
	o.fields(b, func(tag uint64, f protofields.Field) {
		switch tag {
		case txnCompare:
			key, end := o.span(f.Bytes, compareKey, compareEnd, none)
			o.on(policy.Read, key, end)
		case txnSuccess, txnFailure:
			o.unknown(f.Bytes)
			switch kind, body := o.operation(f.Bytes); kind {
			case opRange:
				key, end := o.span(body, rangeKey, rangeEnd, none)
				o.on(policy.Read, key, end)
			case opPut:
				o.put(body)
			case opDelete:
				o.del(body)
			case opTx:
				o.within(body, depth+1)
			}
		}
	})
}

// unknown requires the rights of an administrator for unknown operations, which a newer
// etcd may have.
func (o *operations) unknown(op []byte) {
	o.fields(op, func(tag uint64, _ protofields.Field) {
		switch tag {
		case opRange, opPut, opDelete, opTx:
		default:
			if o.err == nil {
				o.err = o.may(policy.OperatorWrite, kv.Range{})
			}
		}
	})
}
