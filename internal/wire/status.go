package wire

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/shardwatch/shardwatch/internal/control/mapchange"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// Domain is the domain of all google.rpc.ErrorInfo from this server.
const Domain = "shardwatch.dev"

// Reasons of google.rpc.ErrorInfo, as documented in cache.proto, in addition to those
// of kv.Unavailable.
const (
	reasonCompacted = "COMPACTED"
	reasonFuture    = "FUTURE_REVISION"
	reasonInvalid   = "INVALID_REQUEST"
	reasonLineage   = "WRONG_LINEAGE"
	reasonNotServed = "RANGE_NOT_SERVED"
	reasonNotHere   = "NOT_HERE"
	reasonLimit     = "LIMIT"
	reasonNotLeader = "NOT_LEADER"
	reasonRefused   = "REFUSED"
	reasonStaleMap  = "STALE_MAP"
	reasonUnknown   = "UNAUTHENTICATED"
	reasonDenied    = "DENIED"
)

// Status returns the gRPC error for err: the code and details that cache.proto
// promises. An error that already is a gRPC status (passed through from etcd) is
// returned unchanged. nil stays nil.
func Status(err error) error {
	if err == nil {
		return nil
	}
	var (
		compacted   *kv.CompactedError
		future      *kv.FutureError
		lineage     *kv.LineageError
		invalid     *kv.InvalidError
		notServed   *kv.NotServedError
		notHere     *kv.NotHereError
		unavailable *kv.UnavailableError
		limit       *kv.LimitError
		unknown     *kv.UnauthenticatedError
		denied      *kv.DeniedError
		leader      *shard.LeaderError
		stale       *shard.StaleError
		refused     *mapchange.RefusedError
	)
	switch {
	case errors.As(err, &compacted):
		return build(codes.OutOfRange, err, reasonCompacted, 0,
			"requested", revision(compacted.Requested), "floor", revision(compacted.Floor))
	case errors.As(err, &future):
		return build(codes.OutOfRange, err, reasonFuture, 0,
			"requested", revision(future.Requested), "current", revision(future.Current))
	case errors.As(err, &lineage):
		return build(codes.FailedPrecondition, err, reasonLineage, 0,
			"requested", number(lineage.Requested), "current", number(lineage.Current), "foreign", lineage.Foreign)
	case errors.As(err, &invalid):
		return build(codes.InvalidArgument, err, reasonInvalid, 0, "field", invalid.Field, "reason", invalid.Reason)
	case errors.As(err, &notServed):
		return build(codes.FailedPrecondition, err, reasonNotServed, 0)
	case errors.As(err, &notHere):
		return build(codes.Unavailable, err, reasonNotHere, time.Millisecond,
			"shard", number(notHere.Shard), "epoch", number(notHere.Epoch), "endpoints", strings.Join(notHere.Endpoints, ","))
	case errors.As(err, &unavailable):
		return build(codes.Unavailable, err, string(unavailable.Why), unavailable.RetryAfter)
	case errors.As(err, &limit):
		return build(codes.ResourceExhausted, err, reasonLimit, limit.RetryAfter,
			"limit", limit.Limit, "max", strconv.FormatInt(limit.Max, 10), "detail", limit.Detail)
	case errors.As(err, &unknown):
		return build(codes.Unauthenticated, err, reasonUnknown, 0)
	case errors.As(err, &denied):
		return build(codes.PermissionDenied, err, reasonDenied, 0)
	case errors.As(err, &leader):
		return build(codes.Unavailable, err, reasonNotLeader, 0, "leader", string(leader.Leader))
	case errors.As(err, &stale):
		return build(codes.FailedPrecondition, err, reasonStaleMap, 0,
			"if_version", number(stale.IfVersion), "current", number(stale.Current))
	case errors.As(err, &refused):
		return build(codes.FailedPrecondition, err, reasonRefused, 0,
			"field", refused.Field, "reason", refused.Reason, "force", strconv.FormatBool(refused.Force))
	case errors.Is(err, shard.ErrRefused):
		return build(codes.FailedPrecondition, err, reasonRefused, 0)
	}
	if s, ok := status.FromError(err); ok {
		return s.Err()
	}
	switch {
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, err.Error())
	}
	return status.Error(codes.Internal, err.Error())
}

// pairs are alternating names and values; see google.rpc.ErrorInfo.metadata.
func build(code codes.Code, err error, reason string, retry time.Duration, pairs ...string) error {
	info := &errdetails.ErrorInfo{Domain: Domain, Reason: reason, Metadata: make(map[string]string, len(pairs)/2)}
	for pair := range slices.Chunk(pairs, 2) {
		info.Metadata[pair[0]] = pair[1]
	}
	details := []protoadapt.MessageV1{info}
	if retry > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(retry)})
	}
	s := status.New(code, err.Error())
	if with, err := s.WithDetails(details...); err == nil {
		s = with
	}
	return s.Err()
}

func revision(r kv.Revision) string { return strconv.FormatInt(int64(r), 10) }
func number(n uint64) string        { return strconv.FormatUint(n, 10) }

// Error returns the error that Status has converted, as far as the status carries it, so that
// errors keep their type between nodes. Other errors are returned unchanged.
func Error(err error) error {
	s, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	var info *errdetails.ErrorInfo
	var retry time.Duration
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			if d.GetDomain() == Domain {
				info = d
			}
		case *errdetails.RetryInfo:
			retry = d.GetRetryDelay().AsDuration()
		}
	}
	if info == nil {
		return err
	}
	m := info.GetMetadata()
	rev := func(key string) kv.Revision {
		n, _ := strconv.ParseInt(m[key], 10, 64)
		return kv.Revision(n)
	}
	num := func(key string) uint64 {
		n, _ := strconv.ParseUint(m[key], 10, 64)
		return n
	}
	switch info.GetReason() {
	case reasonCompacted:
		return &kv.CompactedError{Requested: rev("requested"), Floor: rev("floor")}
	case reasonFuture:
		return &kv.FutureError{Requested: rev("requested"), Current: rev("current")}
	case reasonLineage:
		return &kv.LineageError{Requested: num("requested"), Current: num("current"), Foreign: m["foreign"]}
	case reasonInvalid:
		return &kv.InvalidError{Field: m["field"], Reason: m["reason"]}
	case reasonNotHere:
		var endpoints []string
		if m["endpoints"] != "" {
			endpoints = strings.Split(m["endpoints"], ",")
		}
		return &kv.NotHereError{Shard: num("shard"), Epoch: num("epoch"), Endpoints: endpoints}
	case string(kv.NotReady), string(kv.Stale), string(kv.EtcdUnavailable), string(kv.Draining):
		return &kv.UnavailableError{Why: kv.Unavailable(info.GetReason()), Detail: s.Message(), RetryAfter: retry}
	case reasonUnknown:
		return &kv.UnauthenticatedError{Detail: s.Message()}
	case reasonDenied:
		return &kv.DeniedError{Detail: s.Message()}
	case reasonNotLeader:
		return &shard.LeaderError{Leader: shard.NodeID(m["leader"])}
	case reasonStaleMap:
		return &shard.StaleError{IfVersion: num("if_version"), Current: num("current")}
	case reasonRefused:
		if m["field"] != "" {
			return &mapchange.RefusedError{Field: m["field"], Reason: m["reason"], Force: m["force"] == "true"}
		}
		return fmt.Errorf("%w (%s)", shard.ErrRefused, s.Message())
	case reasonLimit:
		n, _ := strconv.ParseInt(m["max"], 10, 64)
		return &kv.LimitError{Limit: m["limit"], Max: n, Detail: m["detail"], RetryAfter: retry}
	}
	return err
}

// IsUnavailable reports whether err, from another process, means that the process or
// the network is unavailable.
func IsUnavailable(err error) bool {
	return status.Code(err) == codes.Unavailable
}

// IsTimeout reports whether err, from another process or the network, means that the
// call's deadline is exceeded: the other side may notice before our own clock.
func IsTimeout(err error) bool {
	return status.Code(err) == codes.DeadlineExceeded
}

// IsCanceled reports whether err, from another process or the network, means that the
// caller has given up.
func IsCanceled(err error) bool {
	return status.Code(err) == codes.Canceled
}

// CodeName returns the name of the status code that a caller gets for err.
func CodeName(err error) string { return status.Code(Status(err)).String() }

// IsExhausted reports whether err, from another process or the network, means that a
// bound was reached, including the bound of a message's size.
func IsExhausted(err error) bool {
	return status.Code(err) == codes.ResourceExhausted
}

// TooLarge returns the size of an answer that exceeded the size limit of its call and
// was not read. gRPC reports it only as text.
func TooLarge(err error) (size int, ok bool) {
	if !IsExhausted(err) {
		return 0, false
	}
	var most int
	n, _ := fmt.Sscanf(status.Convert(err).Message(), "grpc: received message larger than max (%d vs. %d)", &size, &most)
	return size, n > 0
}

// Unimplemented returns an error for an unsupported call; what names it and the reason.
func Unimplemented(what string) error { return status.Error(codes.Unimplemented, what) }

// IsDenied reports whether err, from or for another process, means that the caller
// lacks the right.
func IsDenied(err error) bool { return status.Code(err) == codes.PermissionDenied }

// Denied returns etcd's error for a missing right, with the reason.
func Denied(why string) error {
	return status.Error(codes.PermissionDenied, rpctypes.ErrorDesc(rpctypes.ErrGRPCPermissionDenied)+": "+why)
}
