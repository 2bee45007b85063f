package admin

import (
	"errors"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
)

// RefusedError reports why a change of the shard map is not made.
type RefusedError struct {
	// Field is the part of the request that it is about, as the API names it;
	// empty when it is about none.
	Field, Reason string
	// Force: with [ChangeOptions].Force it is made all the same.
	Force bool
}

func (e *RefusedError) Error() string {
	if e.Field == "" {
		return e.Reason
	}
	return e.Field + ": " + e.Reason
}

// errProtocol reports that a node ended a stream before it had sent all of it.
var errProtocol = errors.New("node broke the protocol")

// refused returns the [*RefusedError] that err is about, if it is, else err.
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
