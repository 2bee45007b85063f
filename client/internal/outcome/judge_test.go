package outcome

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

func TestJudge(t *testing.T) {
	fail := func(code codes.Code, reason string, meta map[string]string, after time.Duration) error {
		s, err := status.New(code, "text").WithDetails(&errdetails.ErrorInfo{Domain: Domain, Reason: reason, Metadata: meta})
		if after > 0 {
			s, err = s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(after)})
		}
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Errorf("some deed: %w", s.Err())
	}
	for name, c := range map[string]struct {
		err             error
		retry, penalise bool
		hints           string
		after           time.Duration
		is              error
	}{
		"gone":       {status.Error(codes.Unavailable, "x"), true, true, "", 0, nil},
		"not here":   {fail(codes.Unavailable, "NOT_HERE", map[string]string{"endpoints": "a:1, b:1"}, 0), true, false, "a:1 b:1", 0, nil},
		"stale":      {fail(codes.Unavailable, "STALE", nil, time.Second), true, false, "", time.Second, nil},
		"draining":   {fail(codes.Unavailable, "DRAINING", nil, 0), true, true, "", 0, nil},
		"limit":      {fail(codes.ResourceExhausted, "LIMIT", nil, time.Second), true, false, "", time.Second, nil},
		"too big":    {status.Error(codes.ResourceExhausted, "x"), false, false, "", 0, nil},
		"closed":     {status.Error(codes.Canceled, "x"), true, false, "", 0, nil},
		"slow":       {status.Error(codes.DeadlineExceeded, "x"), true, true, "", 0, nil},
		"lineage":    {fail(codes.FailedPrecondition, "WRONG_LINEAGE", nil, 0), false, false, "", 0, ErrLineage},
		"cluster":    {fail(codes.FailedPrecondition, "WRONG_LINEAGE", map[string]string{"foreign": "page token"}, 0), false, false, "", 0, ErrCluster},
		"invalid":    {fail(codes.InvalidArgument, "INVALID_REQUEST", nil, 0), false, false, "", 0, ErrInvalid},
		"login":      {fmt.Errorf("log in: %w", ErrLogin), true, false, "", 0, ErrLogin},
		"not gRPC's": {errors.New("x"), false, false, "", 0, nil},
	} {
		v := Judge(c.err)
		if v.Retry != c.retry || v.Penalise != c.penalise || strings.Join(v.Hints, " ") != c.hints || v.After != c.after || c.is != nil && !errors.Is(v.Err, c.is) {
			t.Errorf("%s: %+v", name, v)
		}
	}
	var compacted *Compacted
	if !errors.As(Judge(fail(codes.OutOfRange, "COMPACTED", map[string]string{"requested": "3", "floor": "9"}, 0)).Err, &compacted) || *compacted != (Compacted{3, 9}) {
		t.Errorf("compacted: %+v", compacted)
	}
}
