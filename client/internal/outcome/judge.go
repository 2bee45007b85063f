package outcome

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Domain marks the details of errors that Shardwatch itself gave; see
// CacheService in api/proto.
const Domain = "shardwatch.dev"

// Verdict is what an RPC's error means for the next step.
type Verdict struct {
	// Err is the error for the caller: [*Compacted], [*Future] and [*Invalid] stand for
	// those of package client.
	Err error
	// Retry: another node, or a later time, may do better.
	Retry bool
	// Refused: the node did not take the token of the call, and did nothing.
	Refused bool
	// Penalise: the node itself is in trouble, for all clients.
	Penalise bool
	// Hints are addresses the node named, best first.
	Hints []string
	// After is how long the node asked to wait.
	After time.Duration
}

// Judge reads an RPC's error. The caller's own context has not ended.
func Judge(err error) Verdict {
	v := Verdict{Err: err}
	switch {
	case errors.Is(err, ErrLags), errors.Is(err, ErrLogin):
		v.Retry = true
		return v
	case errors.Is(err, ErrSlow), errors.Is(err, ErrRefused):
		v.Retry, v.Penalise = true, true
		return v
	}
	st, ok := status.FromError(err)
	if !ok {
		return v
	}
	var reason string
	meta := map[string]string{}
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			if d.GetDomain() == Domain {
				reason, meta = d.GetReason(), d.GetMetadata()
			}
		case *errdetails.RetryInfo:
			v.After = d.GetRetryDelay().AsDuration()
		}
	}
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(meta[name], 10, 64) // 0 when it is not told
		return n
	}
	switch st.Code() {
	case codes.Unauthenticated:
		v.Refused, v.Err = true, fmt.Errorf("%w (%s)", ErrUnauthenticated, st.Message())
	case codes.PermissionDenied:
		v.Err = fmt.Errorf("%w (%s)", ErrDenied, st.Message())
	case codes.Unavailable:
		v.Retry = true
		switch reason {
		case "NOT_HERE":
			for a := range strings.SplitSeq(meta["endpoints"], ",") {
				if a = strings.TrimSpace(a); a != "" {
					v.Hints = append(v.Hints, a)
				}
			}
		case "", "DRAINING":
			v.Penalise = true
		}
	case codes.Canceled: // the caller did not: the connection was given up
		v.Retry = true
	case codes.DeadlineExceeded, codes.Internal:
		v.Retry, v.Penalise = true, true
	case codes.ResourceExhausted: // without a delay it is about the message's size
		v.Retry = v.After > 0 || reason == "LIMIT"
	case codes.OutOfRange:
		switch reason {
		case "COMPACTED":
			v.Err = &Compacted{Requested: number("requested"), Floor: number("floor")}
		case "FUTURE_REVISION":
			v.Err = &Future{Requested: number("requested"), Current: number("current")}
		}
	case codes.InvalidArgument:
		v.Err = fmt.Errorf("%w: %s", ErrInvalid, st.Message())
		if meta["field"] != "" && meta["reason"] != "" {
			v.Err = &Invalid{Field: meta["field"], Reason: meta["reason"]}
		}
		switch { // what is passed through to etcd is answered in its words
		case errors.Is(err, rpctypes.ErrGRPCUserEmpty), errors.Is(err, rpctypes.ErrGRPCAuthOldRevision):
			v.Refused, v.Err = true, fmt.Errorf("%w (%s)", ErrUnauthenticated, st.Message())
		case errors.Is(err, rpctypes.ErrGRPCAuthFailed):
			v.Err = fmt.Errorf("%w (%s)", ErrUnauthenticated, st.Message())
		}
	case codes.FailedPrecondition:
		if reason == "WRONG_LINEAGE" {
			v.Err = Lineage(meta["foreign"])
		}
	}
	return v
}

// Lineage returns the error of a position of another history; foreign: what another
// cluster has issued.
func Lineage(foreign string) error {
	if foreign != "" {
		return ErrCluster
	}
	return ErrLineage
}

// Unconfirmed reports whether a write, which failed with err, may have been done.
func Unconfirmed(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Internal, codes.Unknown, codes.Aborted, codes.DataLoss:
		return true
	default: // refused before anything was done
		return false
	}
}

// Brief returns the text of an error for people: of a gRPC error without its code's name.
func Brief(err error) string {
	if st, ok := status.FromError(err); ok && st.Code() != codes.OK {
		return st.Message()
	}
	return err.Error()
}
