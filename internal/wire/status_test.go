package wire_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/shardwatch/shardwatch/internal/control/mapchange"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// Each error type that packages share is equal after a round trip over the wire.
func TestErrorsSurviveARoundTrip(t *testing.T) {
	for _, c := range []struct {
		err  error
		code codes.Code
	}{
		{&kv.CompactedError{Requested: 3, Floor: 9}, codes.OutOfRange},
		{&kv.FutureError{Requested: 30, Current: 9}, codes.OutOfRange},
		{&kv.LineageError{Requested: 1, Current: 2}, codes.FailedPrecondition},
		{&kv.LineageError{Requested: 1, Current: 1, Foreign: "page token"}, codes.FailedPrecondition},
		{&kv.InvalidError{Field: "range_end", Reason: "lies before key"}, codes.InvalidArgument},
		{&kv.NotHereError{Shard: 4, Epoch: 7, Endpoints: []string{"a:1", "b:2"}}, codes.Unavailable},
		{&kv.UnavailableError{Why: kv.Stale, Detail: "data is 7s old", RetryAfter: time.Second}, codes.Unavailable},
		{&kv.UnavailableError{Why: kv.NotReady, Detail: "loading", RetryAfter: time.Second}, codes.Unavailable},
		{&kv.UnavailableError{Why: kv.EtcdUnavailable, Detail: "away", RetryAfter: time.Second}, codes.Unavailable},
		{&kv.UnavailableError{Why: kv.Draining, Detail: "bye", RetryAfter: time.Second}, codes.Unavailable},
		{&shard.LeaderError{Leader: "n1"}, codes.Unavailable},
		{&shard.StaleError{IfVersion: 3, Current: 5}, codes.FailedPrecondition},
		{&mapchange.RefusedError{Field: "nodes", Reason: "no node would be left", Force: true}, codes.FailedPrecondition},
		{&kv.LimitError{Limit: "--max-watches-per-stream", Max: 5, Detail: "too many watches", RetryAfter: time.Second}, codes.ResourceExhausted},
	} {
		over := wire.Status(fmt.Errorf("shard 3: %w", c.err))
		if status.Code(over) != c.code {
			t.Errorf("%T: code %v, want %v", c.err, status.Code(over), c.code)
		}
		back := wire.Error(over)
		u := &kv.UnavailableError{}
		if errors.As(back, &u) { // the text of the wrapper is transferred, too
			u.Detail = func() *kv.UnavailableError {
				target := &kv.UnavailableError{}
				_ = errors.As(c.err, &target)
				return target
			}().Detail
		}
		if !equal(back, c.err) {
			t.Errorf("%T is %#v after a round trip", c.err, back)
		}
	}
	for err, code := range map[error]codes.Code{
		&kv.UnauthenticatedError{Detail: "who are you"}: codes.Unauthenticated,
		&kv.DeniedError{Detail: "not you"}:              codes.PermissionDenied,
	} {
		over := wire.Status(err)
		if back := wire.Error(over); status.Code(over) != code || !equal(back, err) {
			t.Errorf("%T: code %v, %#v after a round trip", err, status.Code(over), back)
		}
	}
	if back := wire.Error(wire.Status(shard.ErrUnknownShard)); !errors.Is(back, shard.ErrRefused) {
		t.Errorf("ErrRefused is %v after a round trip", back)
	}
	if got := status.Code(wire.Status(&kv.NotServedError{Range: kv.Single("a")})); got != codes.FailedPrecondition {
		t.Errorf("NotServed: %v", got)
	}
	if got := status.Code(wire.Status(context.DeadlineExceeded)); got != codes.DeadlineExceeded {
		t.Errorf("deadline: %v", got)
	}
	if got := status.Code(wire.Status(errors.New("x"))); got != codes.Internal {
		t.Errorf("unknown: %v", got)
	}
	theirs := status.Error(codes.PermissionDenied, "etcdserver: permission denied")
	if got := wire.Status(theirs); got.Error() != theirs.Error() {
		t.Errorf("etcd's own status: %v", got)
	}
	if wire.Status(nil) != nil || wire.Error(nil) != nil {
		t.Error("nil is an error after a round trip")
	}
}

// equal compares type and content.
func equal(a, b error) bool {
	return fmt.Sprintf("%T %+v", a, reflect.Indirect(reflect.ValueOf(a))) == fmt.Sprintf("%T %+v", b, reflect.Indirect(reflect.ValueOf(b)))
}

// etcd's clients recognize the error by its code, users recognize it by its text.
func TestDenied(t *testing.T) {
	err := wire.Denied("no account")
	if status.Code(err) != codes.PermissionDenied || status.Convert(err).Message() != "etcdserver: permission denied: no account" || !errors.Is(wire.Status(err), err) ||
		!wire.IsDenied(err) || wire.IsDenied(nil) {
		t.Error(err)
	}
}
