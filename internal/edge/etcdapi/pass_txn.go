package etcdapi

import (
	"bytes"
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/protofields"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// guardedTxn forwards transactions to etcd, except for transactions that crash it.
//
// etcd refuses a transaction that both deletes and puts a key, as
// ErrGRPCDuplicateKey. It overlooks deletes with an open end, because their range_end
// "\x00" compares as below their key (v3rpc/key.go, checkIntervals).
//
// After such a delete, a put that keeps the key's value or lease finds no key
// (txn/put.go, put). It panics on every member, and again on each start of a member,
// since the transaction is in the raft log. Any other put creates the key twice
// in one revision. When that revision is compacted, etcd drops the second value but
// keeps it in the index, and the next read of the key is fatal
// (mvcc/kvstore_txn.go, rangeKeys). etcd 3.5.33 to 3.7.3 are affected. We refuse
// both, as etcd intends to. An operation in several parts is refused, too; see txnScan.operation.
func (a *API) guardedTxn() method {
	return answered(func(ctx context.Context, request *wire.Encoded) (*wire.Encoded, error) {
		b := request.Buffers.MaterializeToBuffer(mem.DefaultBufferPool())
		s := scanTxn(b.ReadOnlyData())
		b.Free()
		switch {
		case s.split:
			return nil, wire.Status(errSplit())
		case s.deep:
			return nil, wire.Status(errDeepTxn)
		case s.malformed:
			return nil, wire.Status(errMalformedTxn)
		case s.deadly:
			return nil, rpctypes.ErrGRPCDuplicateKey
		}
		send := a.once
		switch {
		case !s.writes:
			send = a.ask
		case s.large():
			send = a.onceWide
		}
		return a.passBy(ctx, etcdserverpb.KV_Txn_FullMethodName, request, send)
	})
}

// The errors of etcd 3.7 for a request that cannot be decoded. etcd 3.5 and 3.6 accept some requests that scanTxn
// cannot decode, such as field numbers beyond 32 bits: they could contain a deadly transaction.
var (
	errMalformedTxn = errors.New("grpc: failed to unmarshal the received message: proto: cannot parse invalid wire-format data")
	errDeepTxn      = errors.New("grpc: failed to unmarshal the received message: proto: exceeded maximum recursion depth")
)

// errSplit returns the error for an operation with more than one request in its encoding.
func errSplit() error {
	return &kv.InvalidError{Field: "request", Reason: "an operation of the transaction holds more than one request: send each request as a separate operation"}
}

// scanTxn finds the operations of an encoded TxnRequest that crash etcd. It scans the encoding,
// because a decoded transaction of many small operations takes forty times its size.
func scanTxn(txn []byte) txnScan {
	var s txnScan
	s.txn(txn, nil, 0)
	return s
}

// Tags of the scanned fields: number and wire type. A test compares them with the
// generated code.
const (
	length = uint64(protowire.BytesType)

	txnSuccess, txnFailure         = 2<<3 | length, 3<<3 | length
	opRange, opPut, opDelete, opTx = 1<<3 | length, 2<<3 | length, 3<<3 | length, 4<<3 | length
	putKey                         = 1<<3 | length
	putPrevious                    = 4<<3 | uint64(protowire.VarintType)
	deleteKey, deleteEnd           = 1<<3 | length, 2<<3 | length
	rangeUpTo                      = 2<<3 | length
	deletePrevious                 = 3<<3 | uint64(protowire.VarintType)
)

// maxTxnDepth is more than etcd accepts: messages are nested at most 10,000 levels
// deep, and each nested transaction is two levels.
const maxTxnDepth = 5_000

// txnScan is the result of a scan. Of the deletes with an open end before an operation, only the
// lowest key counts; nil: none. (No key is empty: etcd refuses that.)
type txnScan struct {
	deadly    bool
	malformed bool
	deep      bool // malformed, because transactions are nested too deeply
	split     bool // an operation has several parts
	writes    bool // it has a put or a delete
	wide      bool // an operation returns the keys of a range
	results   int  // operations that return keys, if the branches with most of them are taken
}

// large reports whether the answer may be large, because it may have more than one key: etcd bounds a single key.
func (s *txnScan) large() bool { return s.wide || s.results > 1 }

// txn checks a TxnRequest after the given deletes, and returns them with the
// deletes of both branches: either one may be taken.
func (s *txnScan) txn(b []byte, deleted []byte, depth int) []byte {
	if depth > maxTxnDepth {
		s.malformed, s.deep = true, true
		return deleted
	}
	success, failure := deleted, deleted
	before, succeeded, failed := s.results, 0, 0 // results of the branches
	s.fields(b, func(tag uint64, f protofields.Field) {
		switch tag {
		case txnSuccess:
			s.results = succeeded
			success = s.op(f.Bytes, success, depth)
			succeeded = s.results
		case txnFailure:
			s.results = failed
			failure = s.op(f.Bytes, failure, depth)
			failed = s.results
		}
	})
	s.results = before + max(succeeded, failed)
	return lower(success, failure)
}

// operation returns the tag of a RequestOp's operation, and its encoding. In proto an operation
// may come in several parts, which the receiver joins. No client encodes it like that, and joining
// costs the size of the operation on each level of nested transactions, so such an operation is
// only noted as split.
func (s *txnScan) operation(b []byte) (kind uint64, body []byte) {
	s.fields(b, func(tag uint64, f protofields.Field) {
		switch tag {
		case opRange, opPut, opDelete, opTx:
			s.split = s.split || kind != 0
			kind, body = tag, f.Bytes
		}
	})
	return kind, body
}

// op checks a RequestOp.
func (s *txnScan) op(b []byte, deleted []byte, depth int) []byte {
	switch kind, body := s.operation(b); kind {
	case opRange:
		s.results++
		s.fields(body, func(tag uint64, f protofields.Field) { s.wide = s.wide || tag == rangeUpTo && len(f.Bytes) > 0 })
	case opPut:
		s.writes = true
		s.put(body, deleted)
	case opDelete:
		previous, wide := deleteResults(body)
		s.writes, s.wide = true, s.wide || wide
		if previous {
			s.results++
		}
		return s.del(body, deleted)
	case opTx:
		return s.txn(body, deleted, depth+1)
	}
	return deleted
}

func (s *txnScan) put(b []byte, deleted []byte) {
	var key []byte
	var previous bool
	s.fields(b, func(tag uint64, f protofields.Field) {
		switch tag {
		case putKey:
			key = f.Bytes
		case putPrevious:
			previous = f.Uint != 0
		}
	})
	if previous {
		s.results++
	}
	if len(deleted) > 0 && bytes.Compare(key, deleted) >= 0 {
		s.deadly = true
	}
}

func (s *txnScan) del(b []byte, deleted []byte) []byte {
	var key, end []byte
	s.fields(b, func(tag uint64, f protofields.Field) {
		switch tag {
		case deleteKey:
			key = f.Bytes
		case deleteEnd:
			end = f.Bytes
		}
	})
	if string(end) != "\x00" {
		return deleted
	}
	return lower(deleted, key)
}

// lower returns the lower one of two keys; empty keys do not count.
func lower(a, b []byte) []byte {
	if len(a) == 0 || (len(b) > 0 && bytes.Compare(b, a) < 0) {
		return b
	}
	return a
}

// fields calls fn with the fields of an encoded message, and their tags. It stops after a split
// operation, because the transaction is refused then.
func (s *txnScan) fields(b []byte, fn func(tag uint64, f protofields.Field)) {
	var f protofields.Field
	for !s.split {
		more, err := f.Next(b, kv.ErrMalformed)
		s.malformed = s.malformed || err != nil
		if !more {
			return
		}
		fn(protowire.EncodeTag(f.Number, f.Type), f)
	}
}
