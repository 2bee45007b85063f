package admin

import (
	"errors"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
)

// RefusedError reports why a shard map change was rejected.
type RefusedError struct {
	// Field is the rejected part of the request, by its name in the API; empty if there is none.
	Field, Reason string
	// Force: [ChangeOptions].Force overrides the rejection.
	Force bool
}

func (e *RefusedError) Error() string {
	if e.Field == "" {
		return e.Reason
	}
	return e.Field + ": " + e.Reason
}

// errProtocol reports that a node ended a stream too early.
var errProtocol = errors.New("node broke the protocol")

// refused converts err to the [*RefusedError] that it carries, else returns err.
func refused(err error) error {
	st, _ := status.FromError(err)
	for _, detail := range st.Details() {
		info, ok := detail.(*errdetails.ErrorInfo)
		if !ok || info.GetDomain() != "shardwatch.dev" {
			continue
		}
		switch meta := info.GetMetadata(); {
		case info.GetReason() == "STALE_MAP":
			return &RefusedError{Field: "if_version", Reason: st.Message()}
		case info.GetReason() == "REFUSED" && meta["field"] != "":
			return &RefusedError{Field: meta["field"], Reason: meta["reason"], Force: meta["force"] == "true"}
		case info.GetReason() == "REFUSED":
			return &RefusedError{Reason: st.Message()}
		}
	}
	return err
}
