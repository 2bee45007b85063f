package client

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/shardwatch/shardwatch/client/internal/connect"
	"github.com/shardwatch/shardwatch/client/internal/nodes"
	"github.com/shardwatch/shardwatch/client/internal/outcome"
)

// Put writes a key through to etcd and returns the position of the change, which
// WaitFor of a mirror takes. When the node that it was sent to does not confirm it, it
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

// Delete deletes all keys of a range in etcd, in one revision. It returns its
// position and how many keys there were. As for errors, see [Client.Put].
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

// write sends a write to a node whose connection stands. Looking for one, and
// logging in there, may take several attempts, as may a node that refuses it.
// Sending takes Config.AttemptTimeout, and is not repeated when its outcome is
// not known.
func (c *Client) write(ctx context.Context, r Range, send func(context.Context, etcdserverpb.KVClient) error) error {
	a, err := c.calls.Begin(ctx, r.keys())
	if err != nil {
		return err
	}
	for {
		n, err := a.Node()
		if err == nil {
			err = c.prepare(ctx, n)
		}
		if err == nil {
			attempt, cancel := context.WithTimeout(ctx, c.cfg.AttemptTimeout)
			err = send(attempt, etcdserverpb.NewKVClient(n.Conn))
			cancel()
			if outcome.Unconfirmed(err) {
				a.Observe(err)
				return c.unknown(ctx, a.Addr(), err)
			}
		}
		a.Observe(err)
		if err == nil {
			c.pool.Praise(a.Addr())
			return nil
		}
		if err := a.Failed(ctx, err); err != nil {
			return err
		}
	}
}

// prepare waits until a write can be sent to a node.
func (c *Client) prepare(ctx context.Context, n *nodes.Node) error {
	attempt, cancel := context.WithTimeoutCause(ctx, c.cfg.Silence, outcome.ErrSlow)
	defer cancel()
	if err := connect.Connected(attempt, n.Conn, n.Addr); err != nil {
		return err
	}
	if err := c.connect.Login.Ready(ctx, n.Conn, c.cfg.AttemptTimeout); err != nil {
		return err
	}
	return ctx.Err()
}

// unknown returns the error of a write that was sent and not confirmed.
func (c *Client) unknown(ctx context.Context, addr string, err error) error {
	v := judge(err)
	switch {
	case c.ctx.Err() != nil:
		v.Err = ErrClosed
	case ctx.Err() != nil:
		v.Err = context.Cause(ctx)
	case v.Penalise:
		c.pool.Penalise(addr, 0)
	}
	return &OutcomeUnknownError{Node: addr, Err: v.Err}
}
