package clienttest

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// Range counts keys. The client uses the native API for all other reads.
func (s *kvServer) Range(_ context.Context, r *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	if !r.GetCountOnly() {
		return nil, rpctypes.ErrGRPCNotCapable
	}
	start, end, ok := span(r.GetKey(), r.GetRangeEnd())
	if !ok {
		return nil, rpctypes.ErrGRPCEmptyKey
	}
	s.n.c.mu.Lock()
	defer s.n.c.mu.Unlock()
	hist := &s.n.c.hist
	revision := hist.revision()
	switch asked := r.GetRevision(); {
	case asked > revision:
		return nil, rpctypes.ErrGRPCFutureRev
	case asked != 0 && asked < hist.floor:
		return nil, rpctypes.ErrGRPCCompacted
	case asked != 0:
		revision = asked
	}
	return &etcdserverpb.RangeResponse{
		Header: &etcdserverpb.ResponseHeader{Revision: hist.revision()}, Count: int64(len(hist.state(revision, start, end))),
	}, nil
}

// Txn compares mod revisions for equality, and puts and deletes single keys. It ignores leases.
func (s *kvServer) Txn(ctx context.Context, r *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
	if err := s.n.writable(); err != nil {
		return nil, err
	}
	s.tellHistory(ctx)
	c := s.n.c
	c.mu.Lock()
	defer c.mu.Unlock()
	out := &etcdserverpb.TxnResponse{Succeeded: true}
	for _, i := range r.GetCompare() {
		key := c.hist.keys[string(i.GetKey())]
		out.Succeeded = out.GetSucceeded() && key.GetModRevision() == i.GetModRevision()
		found := &etcdserverpb.RangeResponse{}
		if key != nil {
			found.Kvs = []*mvccpb.KeyValue{{Key: key.GetKey(), ModRevision: key.GetModRevision()}}
		}
		out.Responses = append(out.Responses, &etcdserverpb.ResponseOp{Response: &etcdserverpb.ResponseOp_ResponseRange{ResponseRange: found}})
	}
	if !out.GetSucceeded() {
		out.Header = &etcdserverpb.ResponseHeader{Revision: c.hist.revision()}
		return out, nil
	}
	var ops []Op
	for _, o := range r.GetSuccess() {
		if p := o.GetRequestPut(); p != nil {
			ops = append(ops, Op{Key: string(p.GetKey()), Value: string(p.GetValue())})
		} else {
			ops = append(ops, Op{Key: string(o.GetRequestDeleteRange().GetKey()), Delete: true})
		}
	}
	out.Responses = nil
	out.Header = &etcdserverpb.ResponseHeader{Revision: c.hist.apply(ops)}
	c.broadcastLocked()
	return out, nil
}
