package client_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/clienttest"
)

func address(t testing.TB, node grpc.ClientConnInterface) string {
	t.Helper()
	conn, ok := node.(interface{ Target() string })
	if !ok {
		t.Fatalf("connection of type %T", node)
	}
	return conn.Target()
}

// Call limits a node to AttemptTimeout. If the node does not answer in time, Call asks
// another one, whichever error f returns then.
func TestCallLeavesANodeThatHangs(t *testing.T) {
	c := connect(t, start(t, clienttest.Config{}), func(c *client.Config) { c.AttemptTimeout = 50 * time.Millisecond })
	var asked []string
	err := c.Call(deadline(t), 0, func(ctx context.Context, node grpc.ClientConnInterface) error {
		if asked = append(asked, address(t, node)); len(asked) > 1 {
			return nil
		}
		<-ctx.Done()
		return status.Error(codes.InvalidArgument, "what f made of it")
	})
	if err != nil || len(asked) != 2 || asked[0] == asked[1] {
		t.Errorf("%v, asked %q", err, asked)
	}
}

// An error that another node would also return ends a Call at once, as an error of this
// package. CallNode asks the node at one address, once.
func TestCallsEndWithErrorsOfThisPackage(t *testing.T) {
	cluster := start(t, clienttest.Config{})
	c := connect(t, cluster)
	var asked []string
	denied := func(_ context.Context, node grpc.ClientConnInterface) error {
		asked = append(asked, address(t, node))
		return status.Error(codes.PermissionDenied, "x")
	}
	if err := c.Call(deadline(t), 0, denied); !errors.Is(err, client.ErrDenied) || len(asked) != 1 {
		t.Errorf("Call: %v, asked %q", err, asked)
	}
	third := cluster.Endpoints()[2]
	if err := c.CallNode(deadline(t), third, 0, denied); !errors.Is(err, client.ErrDenied) || !slices.Equal(asked[1:], []string{third}) {
		t.Errorf("CallNode: %v, asked %q", err, asked)
	}
	if _, retry := client.ErrorFrom(status.Error(codes.Unavailable, "x")); !retry {
		t.Error("an unavailable node is final")
	}
	if err, retry := client.ErrorFrom(status.Error(codes.PermissionDenied, "x")); retry || !errors.Is(err, client.ErrDenied) {
		t.Errorf("denied: %v, retry %t", err, retry)
	}
}
