package memetcd

import (
	"bytes"
	"cmp"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// A transaction decides every comparison, of nested ones too, on the state before it; then it
// checks, then it writes. choice is the result of the comparisons.
type choice struct {
	succeeded bool
	ops       []*pb.RequestOp
	nested    map[int]*choice // of the ops that are transactions
}

func (s *store) choose(r *pb.TxnRequest) *choice {
	c := &choice{succeeded: true, ops: r.Success, nested: map[int]*choice{}}
	for _, cmp := range r.Compare {
		c.succeeded = c.succeeded && s.holds(cmp)
	}
	if !c.succeeded {
		c.ops = r.Failure
	}
	for i, op := range c.ops {
		if t := op.GetRequestTxn(); t != nil {
			c.nested[i] = s.choose(t)
		}
	}
	return c
}

// holds compares every key of the range. Without any key it compares an empty
// key, and never by value.
func (s *store) holds(c *pb.Compare) bool {
	kvs := s.scan(rangeOf(c.Key, c.RangeEnd), s.rev())
	if len(kvs) == 0 {
		return c.Target != pb.Compare_VALUE && compare(c, &mvccpb.KeyValue{})
	}
	for _, kv := range kvs {
		if !compare(c, kv) {
			return false
		}
	}
	return true
}

func compare(c *pb.Compare, kv *mvccpb.KeyValue) bool {
	var result int
	switch c.Target {
	case pb.Compare_VALUE:
		result = bytes.Compare(kv.Value, c.GetValue())
	case pb.Compare_CREATE:
		result = cmp.Compare(kv.CreateRevision, c.GetCreateRevision())
	case pb.Compare_MOD:
		result = cmp.Compare(kv.ModRevision, c.GetModRevision())
	case pb.Compare_VERSION:
		result = cmp.Compare(kv.Version, c.GetVersion())
	case pb.Compare_LEASE:
		result = cmp.Compare(kv.Lease, c.GetLease())
	}
	switch c.Result {
	case pb.Compare_NOT_EQUAL:
		return result != 0
	case pb.Compare_GREATER:
		return result > 0
	case pb.Compare_LESS:
		return result < 0
	default:
		return result == 0
	}
}

// check fails if the chosen operations cannot be executed.
func (s *store) check(c *choice) error {
	for i, op := range c.ops {
		var err error
		switch v := op.Request.(type) {
		case *pb.RequestOp_RequestRange:
			err = s.readable(v.RequestRange.Revision, s.rev())
		case *pb.RequestOp_RequestPut:
			err = s.checkIgnored(v.RequestPut)
		case *pb.RequestOp_RequestTxn:
			err = s.check(c.nested[i])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkIgnored refuses to keep the value or lease of a key that is not there.
func (s *store) checkIgnored(r *pb.PutRequest) error {
	if (r.IgnoreValue || r.IgnoreLease) && s.get(string(r.Key), s.rev()) == nil {
		return rpctypes.ErrGRPCKeyNotFound
	}
	return nil
}

// txn executes the chosen operations.
func (w *write) txn(c *choice) (*pb.TxnResponse, error) {
	resp := &pb.TxnResponse{Header: &pb.ResponseHeader{}, Succeeded: c.succeeded}
	for i, op := range c.ops {
		out := &pb.ResponseOp{}
		switch v := op.Request.(type) {
		case *pb.RequestOp_RequestRange:
			r, err := w.read(v.RequestRange, w.seen())
			if err != nil {
				return nil, err
			}
			out.Response = &pb.ResponseOp_ResponseRange{ResponseRange: r}
		case *pb.RequestOp_RequestPut:
			out.Response = &pb.ResponseOp_ResponsePut{ResponsePut: w.put(v.RequestPut)}
		case *pb.RequestOp_RequestDeleteRange:
			out.Response = &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: w.deleteRange(v.RequestDeleteRange)}
		case *pb.RequestOp_RequestTxn:
			r, err := w.txn(c.nested[i])
			if err != nil {
				return nil, err
			}
			out.Response = &pb.ResponseOp_ResponseTxn{ResponseTxn: r}
		}
		resp.Responses = append(resp.Responses, out)
	}
	return resp, nil
}
