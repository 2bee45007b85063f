package etcdapi

import (
	"bytes"
	"context"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/shardwatch/shardwatch/internal/wire"
)

// guardedTxn passes transactions on to etcd, but for those that kill it.
//
// etcd refuses a transaction that deletes a key and puts it, as
// ErrGRPCDuplicateKey. It overlooks deletes with an open end: their range_end,
// "\x00", looks to it like one below their key (v3rpc/key.go, checkIntervals).
//
// A put that is to keep the value or lease of a key so deleted finds none
// (txn/put.go, put) and panics on every member, and on each again when it
// starts, since the transaction is in the raft log. Any other put leaves the key
// with two lives in one revision; when that is compacted, etcd drops the second
// one's value and keeps it in its index, and the next read of it is fatal
// (mvcc/kvstore_txn.go, rangeKeys). So it is in 3.5.33 to 3.7.3, and we refuse
// both as etcd means to.
func (d *Door) guardedTxn() method {
	return answered(func(ctx context.Context, request *wire.Encoded) (*wire.Encoded, error) {
		b := request.Buffers.MaterializeToBuffer(mem.DefaultBufferPool())
		deadly := isDeadly(b.ReadOnlyData())
		b.Free()
		if deadly {
			return nil, rpctypes.ErrGRPCDuplicateKey
		}
		return d.pass(ctx, etcdserverpb.KV_Txn_FullMethodName, request)
	})
}

// isDeadly reports whether an encoded TxnRequest is one that etcd does not
// survive. It reads the encoding itself: decoded, a transaction of many small
// operations takes forty times its size. What is no TxnRequest is not deadly:
// etcd refuses it.
func isDeadly(txn []byte) bool {
	var s txnScan
	s.txn(txn, nil, 0)
	return s.deadly && !s.malformed
}

// Tags of the fields that are looked at: the number and the wire type. A test
// holds them against the generated code.
const (
	length = uint64(protowire.BytesType)

	txnSuccess, txnFailure         = 2<<3 | length, 3<<3 | length
	opRange, opPut, opDelete, opTx = 1<<3 | length, 2<<3 | length, 3<<3 | length, 4<<3 | length
	putKey                         = 1<<3 | length
	deleteKey, deleteEnd           = 1<<3 | length, 2<<3 | length
)

// maxTxnDepth is more than etcd takes: messages within messages are 10,000 deep
// at most, and each transaction within one is two of them.
const maxTxnDepth = 10_000

// txnScan is what was found in a transaction. Of the deletes with an open end
// before an operation, what counts is the lowest of their keys; nil: none. (No
// key is empty: etcd refuses that.)
type txnScan struct{ deadly, malformed bool }

// txn looks at a TxnRequest behind deletes so far, and returns them with its
// own: either branch may be taken.
func (s *txnScan) txn(b []byte, deleted []byte, depth int) []byte {
	if depth > maxTxnDepth {
		s.malformed = true
		return deleted
	}
	success, failure := deleted, deleted
	s.fields(b, func(tag uint64, value []byte) {
		switch tag {
		case txnSuccess:
			success = s.op(value, success, depth)
		case txnFailure:
			failure = s.op(value, failure, depth)
		}
	})
	return lower(success, failure)
}

// operation returns what a RequestOp is: the tag of the operation, and its
// encoding. Of several operations in it the last one counts, and parts of the
// same are merged: in proto, that is to join their encodings.
func (s *txnScan) operation(b []byte) (kind uint64, body []byte) {
	joined := false
	s.fields(b, func(tag uint64, value []byte) {
		switch {
		case tag != opRange && tag != opPut && tag != opDelete && tag != opTx:
		case tag != kind:
			kind, body, joined = tag, value, false
		case !joined:
			body, joined = slices.Concat(body, value), true
		default:
			body = append(body, value...)
		}
	})
	return kind, body
}

// op looks at a RequestOp.
func (s *txnScan) op(b []byte, deleted []byte, depth int) []byte {
	switch kind, body := s.operation(b); kind {
	case opPut:
		s.put(body, deleted)
	case opDelete:
		return s.del(body, deleted)
	case opTx:
		return s.txn(body, deleted, depth+1)
	}
	return deleted
}

func (s *txnScan) put(b []byte, deleted []byte) {
	var key []byte
	s.fields(b, func(tag uint64, value []byte) {
		if tag == putKey {
			key = value
		}
	})
	if len(deleted) > 0 && bytes.Compare(key, deleted) >= 0 {
		s.deadly = true
	}
}

func (s *txnScan) del(b []byte, deleted []byte) []byte {
	var key, end []byte
	s.fields(b, func(tag uint64, value []byte) {
		switch tag {
		case deleteKey:
			key = value
		case deleteEnd:
			end = value
		}
	})
	if string(end) != "\x00" {
		return deleted
	}
	return lower(deleted, key)
}

// lower returns the lower one of two keys that are there.
func lower(a, b []byte) []byte {
	if len(a) == 0 || (len(b) > 0 && bytes.Compare(b, a) < 0) {
		return b
	}
	return a
}

// fields calls fn with the fields of an encoded message: their tags, and the
// bytes that they hold, if that is what they hold.
func (s *txnScan) fields(b []byte, fn func(tag uint64, value []byte)) {
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			s.malformed = true
			return
		}
		b = b[n:]
		var value []byte
		if kind == protowire.BytesType {
			value, n = protowire.ConsumeBytes(b)
		} else {
			n = protowire.ConsumeFieldValue(field, kind, b)
		}
		if n < 0 {
			s.malformed = true
			return
		}
		fn(protowire.EncodeTag(field, kind), value)
		b = b[n:]
	}
}
