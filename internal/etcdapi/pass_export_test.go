package etcdapi

import (
	"fmt"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/policy"
)

// IsDeadly is isDeadly, for tests.
func IsDeadly(txn []byte) bool { return isDeadly(txn) }

// Operations returns what an encoded transaction does, in its order, as the
// policy is asked about it; false: it cannot be read.
func Operations(txn []byte) (did []string, ok bool) {
	o := &operations{may: func(v policy.Verb, r kv.Range) error {
		did = append(did, fmt.Sprintf("%v %v", v, r))
		return nil
	}}
	o.txn(txn)
	return did, !o.malformed
}
