package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/client/clienttest"
)

// connectedTo returns a client that has the map and a connection to the only node of its cluster.
func connectedTo(t *testing.T, change ...func(*client.Config)) (*clienttest.Cluster, *client.Client) {
	t.Helper()
	cluster := start(t, clienttest.Config{Nodes: 1})
	c := connect(t, cluster, change...)
	if _, err := c.Put(deadline(t), "/demo/a", nil); err != nil {
		t.Fatal(err)
	}
	return cluster, c
}

// A write that was sent but not confirmed may have been applied: the error has a separate
// type, and names the node.
func TestUnconfirmedWriteHasAnUnknownOutcome(t *testing.T) {
	cluster, c := connectedTo(t, func(c *client.Config) { c.AttemptTimeout = 200 * time.Millisecond })
	node := cluster.Nodes()[0]
	node.Stall()
	for name, write := range map[string]func(context.Context) error{
		"put":    func(ctx context.Context) error { _, err := c.Put(ctx, "/demo/b", []byte("1")); return err },
		"delete": func(ctx context.Context) error { _, _, err := c.Delete(ctx, client.Key("/demo/a")); return err },
	} {
		var unknown *client.OutcomeUnknownError
		if err := write(deadline(t)); !errors.As(err, &unknown) || unknown.Node != node.Addr() {
			t.Errorf("%s: %v", name, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, cancel)
		if err := write(ctx); !errors.As(err, &unknown) || !errors.Is(err, context.Canceled) || errors.Is(err, client.ErrUnavailable) {
			t.Errorf("%s, cancelled by the caller: %v", name, err)
		}
	}
	node.Continue()
}

// The error of a write that was not applied does not report an unknown outcome.
func TestWriteThatWasNotSentHasAKnownOutcome(t *testing.T) {
	cluster, c := connectedTo(t, func(c *client.Config) { c.RetryFor = 200 * time.Millisecond })
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, errCancelled := c.Put(cancelled, "/demo/b", nil)
	cluster.Nodes()[0].RefuseWrites(rpctypes.ErrGRPCRequestTooManyRequests)
	_, errRefused := c.Put(deadline(t), "/demo/b", nil)
	cluster.Nodes()[0].Kill()
	_, errGone := connect(t, cluster, func(c *client.Config) { c.RetryFor = 200 * time.Millisecond }).Put(deadline(t), "/demo/b", nil)
	for name, err := range map[string]error{"cancelled": errCancelled, "refused": errRefused, "gone": errGone} {
		var unknown *client.OutcomeUnknownError
		if err == nil || errors.As(err, &unknown) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A caller that cancels its call does not get ErrUnavailable.
func TestCallersCancellationIsNoOutage(t *testing.T) {
	cluster, c := connectedTo(t)
	node := cluster.Nodes()[0]
	node.Stall()
	addr := node.Addr()
	calls := map[string]func(context.Context) error{
		"get":     func(ctx context.Context) error { _, err := c.Get(ctx, "/demo/a"); return err },
		"put":     func(ctx context.Context) error { _, err := c.Put(ctx, "/demo/a", nil); return err },
		"members": func(ctx context.Context) error { _, err := admin.New(c).Members(ctx); return err },
		"status":  func(ctx context.Context) error { _, err := admin.New(c).Status(ctx, addr); return err },
		"watchers": func(ctx context.Context) error {
			_, err := admin.New(c).Watchers(ctx, addr, admin.WatcherFilter{})
			return err
		},
		"trace": func(ctx context.Context) error { _, err := admin.New(c).TraceRevision(ctx, addr, 2); return err },
		"verify": func(ctx context.Context) error {
			return admin.New(c).Verify(ctx, admin.VerifyRequest{}, func(admin.VerifiedShard) error { return nil })
		},
		"list": func(ctx context.Context) error {
			for _, err := range c.List(ctx, demo).All() {
				return err
			}
			return nil
		},
		"before the map": func(ctx context.Context) error { _, err := connect(t, cluster).Get(ctx, "/demo/a"); return err },
	}
	for name, call := range calls {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Millisecond, cancel)
		if err := call(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, client.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
	node.Continue()
}
