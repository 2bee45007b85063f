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

// Domain marks the error details that Shardwatch itself sets; see CacheService in api/proto.
const Domain = "shardwatch.dev"

// Verdict is the meaning of an RPC's error for the next step.
type Verdict struct {
	// Err is the error for the caller: [*Compacted], [*Future] and [*Invalid] stand for
	// the types of package client.
	Err error
	// Retry: another node, or a later attempt, may succeed.
	Retry bool
	// Refused: the node rejected the token of the call, and did nothing.
	Refused bool
	// Penalise: the node itself fails, for all clients.
	Penalise bool
	// Hints has addresses that the node named, best first.
	Hints []string
	// After is the delay that the node requested.
	After time.Duration
}

// Judge interprets an RPC's error. The caller's own context must not have ended.
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
		n, _ := strconv.ParseInt(meta[name], 10, 64) // 0 if it is missing
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
	case codes.Canceled: // not by the caller: the connection was dropped
		v.Retry = true
	case codes.DeadlineExceeded, codes.Internal:
		v.Retry, v.Penalise = true, true
	case codes.ResourceExhausted: // without a delay the message is too large
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
		switch { // calls passed through to etcd fail with its errors
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

// Lineage returns the error for a position of another history; foreign: the part that
// another cluster issued.
func Lineage(foreign string) error {
	if foreign != "" {
		return ErrCluster
	}
	return ErrLineage
}

// Unconfirmed reports whether a write that failed with err may have been made.
func Unconfirmed(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Internal, codes.Unknown, codes.Aborted, codes.DataLoss:
		return true
	default: // rejected before any change
		return false
	}
}

// Brief returns the readable text of an error: for a gRPC error, without the name of its code.
func Brief(err error) string {
	if st, ok := status.FromError(err); ok && st.Code() != codes.OK {
		return st.Message()
	}
	return err.Error()
}
