package wire_test

import (
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/shardwatch/shardwatch/internal/wire"
)

func TestErrorsReadWell(t *testing.T) {
	broken := status.Error(codes.Unavailable, "error reading from server: EOF")
	for want, err := range map[string]error{
		"Unavailable: error reading from server: EOF":                            broken,
		"shard 3: Unavailable: error reading from server: EOF":                   fmt.Errorf("shard 3: %w", broken),
		"Unavailable: error reading from server: EOF\nPermissionDenied: not you": errors.Join(broken, status.Error(codes.PermissionDenied, "not you")),
		"no certificate": errors.New("no certificate"),
	} {
		if got := wire.Plain(err); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
