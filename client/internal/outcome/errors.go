package outcome

import (
	"errors"
	"fmt"
)

// The errors that package client exports under the same names.
var (
	ErrLineage = errors.New("the position belongs to another history of etcd (restored or replaced, or of another cluster): " +
		"discard the local state and read it again (client.WithState)")
	ErrCluster         error = clusterError{}
	ErrInvalid               = errors.New("invalid request")
	ErrUnauthenticated       = errors.New("not authenticated")
	ErrClosed                = errors.New("closed")
	ErrUnavailable           = errors.New("no node could answer")
	ErrDenied                = errors.New("not allowed")
)

// Compacted implements client.CompactedError.
type Compacted struct{ Requested, Floor int64 }

func (e *Compacted) Error() string {
	what, oldest := "the requested revision", ""
	if e.Requested > 0 {
		what = fmt.Sprintf("revision %d", e.Requested)
	}
	if e.Floor > 0 {
		oldest = fmt.Sprintf(", the oldest available is %d", e.Floor)
	}
	return what + " is gone" + oldest + ": read the state again (client.WithState, or List and watch from its revision plus one)"
}

// Future implements client.FutureRevisionError.
type Future struct{ Requested, Current int64 }

func (e *Future) Error() string {
	if e.Current == 0 {
		return fmt.Sprintf("revision %d does not exist yet", e.Requested)
	}
	return fmt.Sprintf("revision %d does not exist yet: the newest is %d", e.Requested, e.Current)
}

// Invalid stands for client.InvalidError.
type Invalid struct{ Field, Reason string }

func (*Invalid) Error() string { return "invalid request" }

// Unwrap returns ErrInvalid.
func (*Invalid) Unwrap() error { return ErrInvalid }

type clusterError struct{}

func (clusterError) Error() string {
	return "the position was issued by another cluster: check the endpoints, or discard the local state and read it again (client.WithState)"
}

// Unwrap returns ErrLineage.
func (clusterError) Unwrap() error { return ErrLineage }
