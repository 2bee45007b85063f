package etcdapi

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/shardwatch/shardwatch/internal/wire"
)

// guardedTxn passes transactions on to etcd, but for those that kill it.
//
// etcd refuses a transaction that deletes a key and puts it, as
// ErrGRPCDuplicateKey. It overlooks deletes with an open end: their range_end,
// "\x00", looks to it like one below their key (v3rpc/key.go, checkIntervals).
// A put that is to keep the value or lease of a key so deleted finds none
// (txn/put.go, put) and panics on every member, and on each again when it
// starts, since the transaction is in the raft log (3.5.33 to 3.7.3). So we
// refuse it as etcd means to.
func (d *Door) guardedTxn() method {
	return answered(func(ctx context.Context, request *wire.Encoded) (*wire.Encoded, error) {
		var txn etcdserverpb.TxnRequest
		if peek(request, &txn) {
			for _, branch := range [][]*etcdserverpb.RequestOp{txn.GetSuccess(), txn.GetFailure()} {
				if _, deadly := deadlyOps(branch, openEnd{}); deadly {
					return nil, rpctypes.ErrGRPCDuplicateKey
				}
			}
		}
		return d.pass(ctx, etcdserverpb.KV_Txn_FullMethodName, request)
	})
}

// openEnd is the lowest key from which on everything was deleted, if any was.
type openEnd struct {
	some bool
	from string
}

func (e openEnd) and(o openEnd) openEnd {
	if !e.some || (o.some && o.from < e.from) {
		return o
	}
	return e
}

// deadlyOps reports whether one of ops, behind deletes so far, would keep
// something of a key that was deleted, and what they delete. Of a nested
// transaction, either branch may be taken.
func deadlyOps(ops []*etcdserverpb.RequestOp, deleted openEnd) (openEnd, bool) {
	for _, op := range ops {
		switch r := op.GetRequest().(type) {
		case *etcdserverpb.RequestOp_RequestDeleteRange:
			if end := r.RequestDeleteRange.GetRangeEnd(); len(end) == 1 && end[0] == 0 {
				deleted = deleted.and(openEnd{some: true, from: string(r.RequestDeleteRange.GetKey())})
			}
		case *etcdserverpb.RequestOp_RequestPut:
			keeps := r.RequestPut.GetIgnoreValue() || r.RequestPut.GetIgnoreLease()
			if keeps && deleted.some && string(r.RequestPut.GetKey()) >= deleted.from {
				return deleted, true
			}
		case *etcdserverpb.RequestOp_RequestTxn:
			then, deadlyThen := deadlyOps(r.RequestTxn.GetSuccess(), deleted)
			other, deadlyElse := deadlyOps(r.RequestTxn.GetFailure(), deleted)
			if deadlyThen || deadlyElse {
				return deleted, true
			}
			deleted = then.and(other)
		}
	}
	return deleted, false
}

// peek decodes a message that is passed on as it is. It reports whether that
// worked.
func peek(e *wire.Encoded, m any) bool { return wire.NewCodec().Unmarshal(e.Buffers, m) == nil }
