package client

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/shardwatch/shardwatch/client/internal/nodes"
)

// Put writes a key through to etcd and returns the position of the change, which
// WaitFor of a mirror accepts. If the node that it was sent to does not confirm it, it
// fails with [*OutcomeUnknownError]. After any other error nothing was changed.
func (c *Client) Put(ctx context.Context, key string, value []byte) (Position, error) {
	if err := Key(key).validate(); err != nil {
		return Position{}, fmt.Errorf("put: %w", err)
	}
	var at Position
	err := c.write(ctx, Key(key), func(ctx context.Context, kv etcdserverpb.KVClient) error {
		var header metadata.MD
		r, err := kv.Put(ctx, &etcdserverpb.PutRequest{Key: []byte(key), Value: value}, grpc.Header(&header))
		at = positionFrom(header, r.GetHeader().GetRevision())
		return err //nolint:wrapcheck // wrapped below
	})
	if err != nil {
		return Position{}, fmt.Errorf("put %q: %w", key, err)
	}
	return at, nil
}

// Delete deletes all keys of a range in etcd, in one revision. It returns the position
// and the number of deleted keys. For errors, see [Client.Put].
func (c *Client) Delete(ctx context.Context, r Range) (at Position, deleted int64, err error) {
	if err := r.validate(); err != nil {
		return Position{}, 0, fmt.Errorf("delete: %w", err)
	}
	key, end := r.wire()
	err = c.write(ctx, r, func(ctx context.Context, kv etcdserverpb.KVClient) error {
		var header metadata.MD
		resp, err := kv.DeleteRange(ctx, &etcdserverpb.DeleteRangeRequest{Key: key, RangeEnd: end}, grpc.Header(&header))
		at, deleted = positionFrom(header, resp.GetHeader().GetRevision()), resp.GetDeleted()
		return err //nolint:wrapcheck // wrapped below
	})
	if err != nil {
		return Position{}, 0, fmt.Errorf("delete %v: %w", r, err)
	}
	return at, deleted, nil
}

// write sends a write to one node after another until one accepts it; see [calls.Caller.Write].
func (c *Client) write(ctx context.Context, r Range, send func(context.Context, etcdserverpb.KVClient) error) error {
	return c.calls.Write(ctx, r.keys(), func(ctx context.Context, n *nodes.Node) error { //nolint:wrapcheck // the caller does
		return send(ctx, etcdserverpb.NewKVClient(n.Conn))
	})
}
