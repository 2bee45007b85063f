package kv

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// CompactedError reports that a watch or read requested compacted history.
type CompactedError struct {
	// Requested is the revision asked for.
	Requested Revision
	// Floor is the oldest revision that a watch may start from, or that a
	// read may be taken at.
	Floor Revision
}

func (e *CompactedError) Error() string {
	return fmt.Sprintf("revision %d is gone: the oldest available is %d; list, then watch from the list's revision plus one", e.Requested, e.Floor)
}

// FutureError reports that a read asked for a revision that does not exist yet.
type FutureError struct {
	Requested Revision
	Current   Revision
}

func (e *FutureError) Error() string {
	return fmt.Sprintf("revision %d does not exist yet: the newest is %d", e.Requested, e.Current)
}

// LineageError reports that a position belongs to another history: etcd was
// restored from a backup, or another cluster issued the position.
type LineageError struct {
	Requested, Current uint64
	// Foreign names a position that another cluster issued, such as "resume token".
	// Requested is counted by that cluster. Empty: this cluster issued it.
	Foreign string
}

func (e *LineageError) Error() string {
	if e.Foreign != "" {
		return e.Foreign + " was issued by another cluster; start with WithState (state_first), or list first"
	}
	return fmt.Sprintf("the position belongs to lineage %d, the cluster is at lineage %d: list, then watch from the list's revision plus one", e.Requested, e.Current)
}

// ErrOtherHistory reports that the source cannot continue the cached history: a key has a lower
// revision than before, or another content at the same revision. etcd was restored from a backup.
var ErrOtherHistory = errors.New("the history differs from the one followed so far")

// Claim is the stored content of a key at a revision.
type Claim struct {
	Key      string
	Revision Revision
	// Held is the key/value; nil: the key does not exist, or, with Below, has not
	// changed from that revision on.
	Held  *KeyValue
	Below Revision
}

// ContradictionError is an [ErrOtherHistory] whose wrong side is not known: the cache, the
// source, or, if etcd was restored, neither.
type ContradictionError struct {
	Detail string
	// Claims are the stored contents, the contradicted keys first.
	Claims []Claim
	// Ahead: the stored content has a revision that etcd has not reached.
	Ahead bool
}

func (e *ContradictionError) Error() string { return ErrOtherHistory.Error() + ": " + e.Detail }

// Unwrap returns ErrOtherHistory.
func (e *ContradictionError) Unwrap() error { return ErrOtherHistory }

// InvalidError reports which part of a request is wrong, and how.
type InvalidError struct {
	Field  string
	Reason string
}

func (e *InvalidError) Error() string { return e.Field + ": " + e.Reason }

// NotServedError reports a request for keys that the cluster does not serve.
type NotServedError struct {
	Range  Range
	Served []Range
}

func (e *NotServedError) Error() string {
	served := make([]string, len(e.Served))
	for i, r := range e.Served {
		served[i] = r.String()
	}
	return fmt.Sprintf("%v is not served: this cluster serves %s (cachectl settings changes that)", e.Range, strings.Join(served, ", "))
}

// NotHereError reports that this node has no replica of a shard, and names the nodes that have one.
type NotHereError struct {
	Shard     uint64
	Epoch     uint64
	Endpoints []string
}

func (e *NotHereError) Error() string {
	return fmt.Sprintf("shard %d is not on this node; ask %s", e.Shard, strings.Join(e.Endpoints, ", "))
}

// Unavailable is the reason why a node cannot answer now.
type Unavailable string

// The reasons for an UnavailableError.
const (
	NotReady        Unavailable = "NOT_READY"        // the shard is still being loaded
	Stale           Unavailable = "STALE"            // the data is older than the read allows
	EtcdUnavailable Unavailable = "ETCD_UNAVAILABLE" // etcd does not answer
	Draining        Unavailable = "DRAINING"         // the node is draining
)

// RetrySoon is the default delay before a caller retries.
const RetrySoon = 200 * time.Millisecond

// ShuttingDown returns the error that ends streams when the node shuts down.
func ShuttingDown() error {
	return &UnavailableError{Why: Draining, RetryAfter: time.Millisecond, Detail: "the node is shutting down: use another one"}
}

// SentOn returns the error that ends streams when the node keeps running, without clients.
func SentOn() error {
	return &UnavailableError{Why: Draining, RetryAfter: time.Millisecond, Detail: "an operator has drained the node: use another one"}
}

// UnavailableError reports that the node cannot answer now. It may answer later, or
// another node may.
type UnavailableError struct {
	Why        Unavailable
	Detail     string
	RetryAfter time.Duration
}

func (e *UnavailableError) Error() string { return e.Detail }

// UnauthenticatedError reports that the caller is not authenticated; another token may
// succeed.
type UnauthenticatedError struct{ Detail string }

func (e *UnauthenticatedError) Error() string { return e.Detail }

// DeniedError reports that the caller has no right to make the request.
type DeniedError struct{ Detail string }

func (e *DeniedError) Error() string { return e.Detail }

// LimitError reports that a bound was reached.
type LimitError struct {
	Limit      string // the name of the flag or setting
	Max        int64
	Detail     string
	RetryAfter time.Duration
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%s: the limit is %d (%s)", e.Detail, e.Max, e.Limit)
}
