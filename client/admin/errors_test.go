package admin

import (
	"errors"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A change for another version of the map is refused with a specific reason.
func TestAStaleMapIsARefusal(t *testing.T) {
	from := func(domain string) error {
		s, err := status.New(codes.FailedPrecondition, "the map has version 8").WithDetails(&errdetails.ErrorInfo{Domain: domain, Reason: "STALE_MAP"})
		if err != nil {
			t.Fatal(err)
		}
		return refused(s.Err())
	}
	var stale *RefusedError
	if err := from("shardwatch.dev"); !errors.As(err, &stale) || stale.Field != "if_version" || stale.Reason != "the map has version 8" || stale.Force {
		t.Errorf("%v: %+v", err, stale)
	}
	if err := from("example.org"); errors.As(err, &stale) {
		t.Errorf("a foreign error is treated as a refusal: %v", err)
	}
}
