package memetcd

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// maxTxnOps is etcd's default of --max-txn-ops.
const maxTxnOps = 128

func validateRange(r *pb.RangeRequest) error {
	if len(r.Key) == 0 {
		return rpctypes.ErrGRPCEmptyKey
	}
	_, order := pb.RangeRequest_SortOrder_name[int32(r.SortOrder)]
	_, target := pb.RangeRequest_SortTarget_name[int32(r.SortTarget)]
	if !order || !target {
		return rpctypes.ErrGRPCInvalidSortOption
	}
	return nil
}

func validatePut(r *pb.PutRequest) error {
	switch {
	case len(r.Key) == 0:
		return rpctypes.ErrGRPCEmptyKey
	case r.IgnoreValue && len(r.Value) != 0:
		return rpctypes.ErrGRPCValueProvided
	case r.IgnoreLease && r.Lease != 0:
		return rpctypes.ErrGRPCLeaseProvided
	}
	return nil
}

func validateDelete(r *pb.DeleteRangeRequest) error {
	if len(r.Key) == 0 {
		return rpctypes.ErrGRPCEmptyKey
	}
	return nil
}

func validateTxn(r *pb.TxnRequest) error {
	if err := validateOps(r, maxTxnOps); err != nil {
		return err
	}
	if _, _, err := touched(r.Success); err != nil {
		return err
	}
	_, _, err := touched(r.Failure)
	return err
}

func validateOps(r *pb.TxnRequest, most int) error {
	n := max(len(r.Compare), len(r.Success), len(r.Failure))
	if n > most {
		return rpctypes.ErrGRPCTooManyOps
	}
	for _, c := range r.Compare {
		if len(c.Key) == 0 {
			return rpctypes.ErrGRPCEmptyKey
		}
	}
	for _, ops := range [][]*pb.RequestOp{r.Success, r.Failure} {
		for _, op := range ops {
			var err error
			switch v := op.Request.(type) {
			case *pb.RequestOp_RequestRange:
				err = validateRange(v.RequestRange)
			case *pb.RequestOp_RequestPut:
				err = validatePut(v.RequestPut)
			case *pb.RequestOp_RequestDeleteRange:
				err = validateDelete(v.RequestDeleteRange)
			case *pb.RequestOp_RequestTxn:
				err = validateOps(v.RequestTxn, most-n)
			default:
				err = rpctypes.ErrGRPCKeyNotFound
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// touched returns the keys and ranges that ops may change, and refuses to
// change a key twice. Like etcd it misses two cases: a key that one nested
// transaction puts and a later one deletes, and a key that is put next to the
// delete of a range without end. (With ignore_value or ignore_lease on that put,
// etcd 3.7.3 crashes; the model puts an empty value.)
func touched(ops []*pb.RequestOp) (puts map[string]bool, deletes []keyRange, err error) {
	puts = map[string]bool{}
	deleted := func(k string) bool {
		for _, r := range deletes {
			if r.contains(k) {
				return true
			}
		}
		return false
	}
	for _, op := range ops {
		if d := op.GetRequestDeleteRange(); d != nil {
			r := rangeOf(d.Key, d.RangeEnd)
			r.open = false // so that "\x00" is an end before everything
			deletes = append(deletes, r)
		}
	}
	for _, op := range ops {
		t := op.GetRequestTxn()
		if t == nil {
			continue
		}
		yes, yesDeletes, err := touched(t.Success)
		if err != nil {
			return nil, nil, err
		}
		no, noDeletes, err := touched(t.Failure)
		if err != nil {
			return nil, nil, err
		}
		for k := range no { // only one of the two branches is executed, so they may overlap
			if !yes[k] && puts[k] || deleted(k) {
				return nil, nil, rpctypes.ErrGRPCDuplicateKey
			}
		}
		for k := range yes {
			if puts[k] || deleted(k) {
				return nil, nil, rpctypes.ErrGRPCDuplicateKey
			}
		}
		for k := range no {
			puts[k] = true
		}
		for k := range yes {
			puts[k] = true
		}
		deletes = append(append(deletes, yesDeletes...), noDeletes...)
	}
	for _, op := range ops {
		p := op.GetRequestPut()
		if p == nil {
			continue
		}
		if puts[string(p.Key)] || deleted(string(p.Key)) {
			return nil, nil, rpctypes.ErrGRPCDuplicateKey
		}
		puts[string(p.Key)] = true
	}
	return puts, deletes, nil
}
