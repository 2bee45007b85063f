package outcome

import "errors"

// The errors that package client shows to programs under the same names.
var (
	ErrLineage = errors.New("the position belongs to another history of etcd (restored or replaced, or of another cluster): " +
		"forget what you know and read the state again (client.WithState)")
	ErrCluster         error = clusterError{}
	ErrInvalid               = errors.New("invalid request")
	ErrUnauthenticated       = errors.New("not authenticated")
	ErrClosed                = errors.New("closed")
	ErrUnavailable           = errors.New("no node could answer")
	ErrDenied                = errors.New("not allowed")
)

// Compacted is client.CompactedError.
type Compacted struct{ Requested, Floor int64 }

func (*Compacted) Error() string { return "revision is gone" }

// Future is client.FutureRevisionError.
type Future struct{ Requested, Current int64 }

func (*Future) Error() string { return "revision does not exist yet" }

// Invalid is client.InvalidError.
type Invalid struct{ Field, Reason string }

func (*Invalid) Error() string { return "invalid request" }

// Unwrap returns ErrInvalid.
func (*Invalid) Unwrap() error { return ErrInvalid }

type clusterError struct{}

func (clusterError) Error() string {
	return "the position was issued by another cluster: check the endpoints, or forget what you know and read the state again (client.WithState)"
}

// Unwrap returns ErrLineage.
func (clusterError) Unwrap() error { return ErrLineage }
