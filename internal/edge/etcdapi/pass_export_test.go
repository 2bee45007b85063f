package etcdapi

import (
	"fmt"

	"github.com/shardwatch/shardwatch/internal/auth/policy"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// IsDeadly reports whether an encoded transaction would crash etcd.
func IsDeadly(txn []byte) bool {
	s := scanTxn(txn)
	return s.deadly && !s.malformed
}

// IsSplit reports whether an operation of an encoded transaction has several parts.
func IsSplit(txn []byte) bool { return scanTxn(txn).split }

// IsLarge reports whether the answer to an encoded transaction may be large.
func IsLarge(txn []byte) bool {
	s := scanTxn(txn)
	return s.large()
}

// IsMalformed reports whether the scanned part of an encoded transaction is malformed.
func IsMalformed(txn []byte) bool { return scanTxn(txn).malformed }

// CountOperations returns the number of policy checks for a transaction.
func CountOperations(txn []byte) (n int) {
	o := &operations{may: func(policy.Verb, kv.Range) error {
		n++
		return nil
	}}
	o.txn(txn)
	return n
}

// Operations returns the policy checks for the operations of an encoded transaction,
// in order; false: it cannot be decoded.
func Operations(txn []byte) (did []string, ok bool) {
	o := &operations{may: func(v policy.Verb, r kv.Range) error {
		did = append(did, fmt.Sprintf("%v %v", v, r))
		return nil
	}}
	o.txn(txn)
	return did, !o.malformed && !o.split
}
