package client

import (
	"errors"
	"fmt"

	"github.com/shardwatch/shardwatch/client/internal/outcome"
)

// CompactedError reports that the history a watch or read needs is gone. A watch
// ends with it only if it was started with [WithoutResync].
type CompactedError struct {
	// Requested is the revision asked for; 0: not known, as after a token.
	Requested int64
	// Floor is the oldest revision that can be asked for; 0 when the server
	// did not tell.
	Floor int64
}

func (e *CompactedError) Error() string { return (*outcome.Compacted)(e).Error() }

// FutureRevisionError reports that a read asked for a revision that does not
// exist yet. Current is the newest revision; 0 when the server did not tell.
type FutureRevisionError struct {
	Requested, Current int64
}

func (e *FutureRevisionError) Error() string { return (*outcome.Future)(e).Error() }

// OutcomeUnknownError reports that a write was sent to a node which did not confirm
// it: etcd may have made the change, or may still make it. Read the key to learn
// which, or repeat the write if doing it twice does no harm.
type OutcomeUnknownError struct {
	// Node is the address that the write was sent to.
	Node string
	// Err is the reason why there is no answer. When the caller's context ended
	// first, it is the cause of that.
	Err error
}

func (e *OutcomeUnknownError) Error() string {
	return fmt.Sprintf("sent to %s, which did not confirm it; it may have been done: %s", e.Node, outcome.Brief(e.Err))
}

// Unwrap returns Err.
func (e *OutcomeUnknownError) Unwrap() error { return e.Err }

// InvalidError reports which part of a request is wrong. It wraps [ErrInvalid].
type InvalidError struct {
	// Field is its name in the API; Reason what is wrong with it, and what is
	// allowed.
	Field, Reason string
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("%v: %s: %s", ErrInvalid, e.Field, e.Reason)
}

// Unwrap returns ErrInvalid.
func (e *InvalidError) Unwrap() error { return ErrInvalid }

var (
	// ErrLineage reports that a position, be it a revision or a token, belongs to
	// another history: etcd was restored from a backup or replaced, or another
	// cluster issued it. Nothing learned before holds. A watch ends with it only if
	// it was started with [WithoutResync].
	ErrLineage = outcome.ErrLineage
	// ErrCluster is the [ErrLineage] of a position that another cluster issued: a program
	// has perhaps been given other endpoints than those that the position is of.
	ErrCluster = outcome.ErrCluster
	// ErrInvalid reports that a request was wrong; the error says how. Trying
	// again does not help.
	ErrInvalid = outcome.ErrInvalid
	// ErrUnauthenticated reports that the nodes require authentication, and do not accept
	// what the call said: no token or none that is good, or with etcd's
	// authentication on, no user and password that it knows.
	ErrUnauthenticated = outcome.ErrUnauthenticated
	// ErrDenied reports that the caller is authenticated, but lacks the right: by etcd's
	// users and roles, or by the nodes' policy.
	ErrDenied = outcome.ErrDenied
	// ErrUnavailable reports that no node could answer in time. A call whose context
	// was cancelled fails with the cause of that instead.
	ErrUnavailable = outcome.ErrUnavailable
	// ErrTooBig reports that a watch was sent a unit that is bigger than
	// [Config.MaxUnit]. The watch continues after its position only if that is
	// raised.
	ErrTooBig = errors.New("the unit is bigger than Config.MaxUnit")
	// ErrClosed reports that the client, watcher or mirror was closed.
	ErrClosed = outcome.ErrClosed
)

// judge reads the error of an RPC as [outcome.Judge] does. The caller's own context has
// not ended.
func judge(err error) outcome.Verdict {
	v := outcome.Judge(err)
	v.Err = public(v.Err)
	return v
}

// public returns the error of this package for one of package outcome.
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
