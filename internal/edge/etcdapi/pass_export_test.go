package etcdapi

import (
	"fmt"

	"github.com/shardwatch/shardwatch/internal/auth/policy"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// IsDeadly reports whether etcd would not survive an encoded transaction.
func IsDeadly(txn []byte) bool {
	s := scanTxn(txn)
	return s.deadly && !s.malformed
}

// IsSplit reports whether an operation of an encoded transaction has several parts.
func IsSplit(txn []byte) bool { return scanTxn(txn).split }

// IsMalformed reports whether what was looked at of an encoded transaction is none.
func IsMalformed(txn []byte) bool { return scanTxn(txn).malformed }

// CountOperations returns how often the policy is asked about a transaction.
func CountOperations(txn []byte) (n int) {
	o := &operations{may: func(policy.Verb, kv.Range) error {
		n++
		return nil
	}}
	o.txn(txn)
	return n
}

// Operations returns what an encoded transaction does, in its order, as the
// policy is asked about it; false: it cannot be read.
func Operations(txn []byte) (did []string, ok bool) {
	o := &operations{may: func(v policy.Verb, r kv.Range) error {
		did = append(did, fmt.Sprintf("%v %v", v, r))
		return nil
	}}
	o.txn(txn)
	return did, !o.malformed && !o.split
}
