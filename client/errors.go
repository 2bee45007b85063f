package client

import (
	"errors"
	"fmt"

	"github.com/shardwatch/shardwatch/client/internal/outcome"
)

// CompactedError reports that the history a watch or read needs is gone. A watch
// ends with it only if it was started with [WithoutResync].
type CompactedError struct {
	// Requested is the requested revision; 0: not known, as after a token.
	Requested int64
	// Floor is the oldest available revision; 0 if the server did not report it.
	Floor int64
}

func (e *CompactedError) Error() string { return (*outcome.Compacted)(e).Error() }

// FutureRevisionError reports that a read requested a revision that does not exist yet.
// Current is the newest revision; 0 if the server did not report it.
type FutureRevisionError struct {
	Requested, Current int64
}

func (e *FutureRevisionError) Error() string { return (*outcome.Future)(e).Error() }

// OutcomeUnknownError reports that a write was sent to a node that did not confirm it:
// etcd may have made the change, or may still make it. Read the key to find out, or
// repeat the write if doing it twice does no harm.
type OutcomeUnknownError struct {
	// Node is the address that the write was sent to.
	Node string
	// Err is the reason why there is no answer: if the caller's context ended first, its cause.
	Err error
}

func (e *OutcomeUnknownError) Error() string {
	return fmt.Sprintf("sent to %s but not confirmed; the change may have been made: %s", e.Node, outcome.Brief(e.Err))
}

// Unwrap returns Err.
func (e *OutcomeUnknownError) Unwrap() error { return e.Err }

// InvalidError reports which part of a request is wrong. It wraps [ErrInvalid].
type InvalidError struct {
	// Field is the name of the part in the API. Reason describes the mistake and the
	// allowed values.
	Field, Reason string
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("%v: %s: %s", ErrInvalid, e.Field, e.Reason)
}

// Unwrap returns ErrInvalid.
func (e *InvalidError) Unwrap() error { return ErrInvalid }

var (
	// ErrLineage reports that a position, whether a revision or a token, belongs to
	// another history: etcd was restored from a backup or replaced, or another cluster
	// issued it. All data read before is invalid. A watch ends with it only if it was
	// started with [WithoutResync].
	ErrLineage = outcome.ErrLineage
	// ErrCluster is the [ErrLineage] of a position that another cluster issued: the
	// program may use the endpoints of another cluster.
	ErrCluster = outcome.ErrCluster
	// ErrInvalid reports that a request was invalid; the error has the reason. A retry
	// does not help.
	ErrInvalid = outcome.ErrInvalid
	// ErrUnauthenticated reports that the nodes require authentication and rejected the
	// credentials of the call: no token or an invalid one, or with etcd's authentication,
	// no valid user and password.
	ErrUnauthenticated = outcome.ErrUnauthenticated
	// ErrDenied reports that the caller is authenticated but lacks the right, by etcd's
	// users and roles or by the nodes' policy.
	ErrDenied = outcome.ErrDenied
	// ErrUnavailable reports that no node answered in time. A call whose context was
	// cancelled fails with the cause of that instead.
	ErrUnavailable = outcome.ErrUnavailable
	// ErrTooBig reports that a unit for a watch exceeds [Config.MaxUnit]. The watch can
	// resume after its position only with a larger MaxUnit.
	ErrTooBig = errors.New("the unit is bigger than Config.MaxUnit")
	// ErrClosed reports that the client, watcher or mirror was closed.
	ErrClosed = outcome.ErrClosed
)

// judge interprets the error of an RPC as [outcome.Judge] does. The caller's own
// context must not have ended.
func judge(err error) outcome.Verdict {
	v := outcome.Judge(err)
	v.Err = public(v.Err)
	return v
}

// public converts an error of package outcome to this package's.
func public(err error) error {
	switch err := err.(type) { //nolint:errorlint // Judge does not wrap them
	case *outcome.Compacted:
		return (*CompactedError)(err)
	case *outcome.Future:
		return (*FutureRevisionError)(err)
	case *outcome.Invalid:
		return (*InvalidError)(err)
	}
	return err
}
