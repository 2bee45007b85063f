package client

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/shardwatch/shardwatch/client/internal/outcome"
)

// errorDomain marks the details of errors that Shardwatch itself gave; see
// CacheService in api/proto.
const errorDomain = "shardwatch.dev"

// verdict is what an RPC's error means for the next step.
type verdict struct {
	// err is the error for the caller.
	err error
	// retry: another node, or a later time, may do better.
	retry bool
	// refused: the node did not take the token of the call, and did nothing.
	refused bool
	// penalise: the node itself is in trouble, for all clients.
	penalise bool
	// hints are addresses the node named, best first.
	hints []string
	// after is how long the node asked to wait.
	after time.Duration
}

// judge reads an RPC's error. The caller's own context has not ended.
func judge(err error) verdict {
	v := verdict{err: err}
	switch {
	case errors.Is(err, outcome.ErrLags):
		v.retry = true
		return v
	case errors.Is(err, outcome.ErrSlow), errors.Is(err, outcome.ErrRefused):
		v.retry, v.penalise = true, true
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
			if d.GetDomain() == errorDomain {
				reason, meta = d.GetReason(), d.GetMetadata()
			}
		case *errdetails.RetryInfo:
			v.after = d.GetRetryDelay().AsDuration()
		}
	}
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(meta[name], 10, 64) // 0 when it is not told
		return n
	}
	switch st.Code() {
	case codes.Unauthenticated:
		v.refused, v.err = true, fmt.Errorf("%w (%s)", ErrUnauthenticated, st.Message())
	case codes.PermissionDenied:
		v.err = fmt.Errorf("%w (%s)", ErrDenied, st.Message())
	case codes.Unavailable:
		v.retry = true
		switch reason {
		case "NOT_HERE":
			for a := range strings.SplitSeq(meta["endpoints"], ",") {
				if a = strings.TrimSpace(a); a != "" {
					v.hints = append(v.hints, a)
				}
			}
		case "", "DRAINING":
			v.penalise = true
		}
	case codes.Canceled: // the caller did not: the connection was given up
		v.retry = true
	case codes.DeadlineExceeded, codes.Internal:
		v.retry, v.penalise = true, true
	case codes.ResourceExhausted: // without a delay it is about the message's size
		v.retry = v.after > 0 || reason == "LIMIT"
	case codes.OutOfRange:
		switch reason {
		case "COMPACTED":
			v.err = &CompactedError{Requested: number("requested"), Floor: number("floor")}
		case "FUTURE_REVISION":
			v.err = &FutureRevisionError{Requested: number("requested"), Current: number("current")}
		}
	case codes.InvalidArgument:
		v.err = fmt.Errorf("%w: %s", ErrInvalid, st.Message())
		if meta["field"] != "" && meta["reason"] != "" {
			v.err = &InvalidError{Field: meta["field"], Reason: meta["reason"]}
		}
		switch { // what is passed through to etcd is answered in its words
		case errors.Is(err, rpctypes.ErrGRPCUserEmpty), errors.Is(err, rpctypes.ErrGRPCAuthOldRevision):
			v.refused, v.err = true, fmt.Errorf("%w (%s)", ErrUnauthenticated, st.Message())
		case errors.Is(err, rpctypes.ErrGRPCAuthFailed):
			v.err = fmt.Errorf("%w (%s)", ErrUnauthenticated, st.Message())
		}
	case codes.FailedPrecondition:
		if reason == "WRONG_LINEAGE" {
			v.err = lineageError(meta["foreign"])
		}
	}
	return v
}

// lineageError returns the error of a position of another history; foreign: what another
// cluster has issued.
func lineageError(foreign string) error {
	if foreign != "" {
		return ErrCluster
	}
	return ErrLineage
}

// unconfirmed says that a write, which failed with err, may have been done.
func unconfirmed(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Internal, codes.Unknown, codes.Aborted, codes.DataLoss:
		return true
	default: // refused before anything was done
		return false
	}
}

// brief is an error for people: a gRPC error without its code's name.
func brief(err error) string {
	if st, ok := status.FromError(err); ok && st.Code() != codes.OK {
		return st.Message()
	}
	return err.Error()
}

// receive receives the next message of a stream; false at its end.
func receive[T any](stream interface{ Recv() (T, error) }) (T, bool, error) {
	m, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		return m, false, nil
	}
	if err != nil {
		return m, false, err //nolint:wrapcheck // judged and wrapped by the caller
	}
	return m, true, nil
}
