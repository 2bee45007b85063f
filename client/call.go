package client

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"

	"github.com/shardwatch/shardwatch/client/internal/calls"
	"github.com/shardwatch/shardwatch/client/internal/keyrange"
	"github.com/shardwatch/shardwatch/client/internal/nodes"
	"github.com/shardwatch/shardwatch/client/internal/outcome"
	"github.com/shardwatch/shardwatch/client/internal/retry"
)

// read tries one node after another until one answers. An attempt may take
// Config.AttemptTimeout plus extra.
func (c *Client) read(ctx context.Context, r Range, extra time.Duration, ask func(context.Context, *nodes.Node) error) error {
	return c.calls.Read(ctx, r.keys(), extra, ask) //nolint:wrapcheck // the caller does
}

// callConfig returns the configuration of calls.
func (c *Client) callConfig() calls.Config {
	cfg := calls.Config{
		Pool: c.pool, Pulse: c.pulse, Connect: &c.connect, AttemptTimeout: c.cfg.AttemptTimeout, Silence: c.cfg.Silence, RetryFor: c.cfg.RetryFor,
		Ready: c.follower.First, Closed: c.ctx, Judge: judge,
		Unknown: func(node string, err error) error { return &OutcomeUnknownError{Node: node, Err: err} },
		Pick: func(r keyrange.Range, hints []string, tried retry.Tried) string {
			return c.pick(Range(r), hints, tried)
		},
	}
	if f := c.cfg.Observer.Attempt; f != nil {
		cfg.Observe = func(r keyrange.Range, node string, took time.Duration, err error) {
			f(Attempt{Range: Range(r), Node: node, Took: took, Err: err})
		}
	}
	return cfg
}

// Call makes RPCs that this package has no method for; package admin is built on it. It calls f
// with one node after another, for [Config.RetryFor] at most, until f returns nil or an error
// that any node would return. One call of f may take [Config.AttemptTimeout] plus extra. f
// returns the RPC's error unchanged; Call converts it as [ErrorFrom] does. A stream that f opens
// breaks when its node is silent for about 5 s plus [Config.Silence], also after f has returned.
func (c *Client) Call(ctx context.Context, extra time.Duration, f func(ctx context.Context, node grpc.ClientConnInterface) error) error {
	return c.read(ctx, Range{}, extra, func(ctx context.Context, n *nodes.Node) error {
		err := f(ctx, c.pool.Probed(n))
		if err != nil && errors.Is(context.Cause(ctx), outcome.ErrSlow) {
			return outcome.ErrSlow
		}
		return err
	})
}

// CallNode is [Client.Call] for the node at an address (host:port): f is called once.
func (c *Client) CallNode(ctx context.Context, address string, extra time.Duration, f func(ctx context.Context, node grpc.ClientConnInterface) error) error {
	return c.calls.At(ctx, address, extra, func(ctx context.Context, n *nodes.Node) error { return f(ctx, n.Conn) }) //nolint:wrapcheck // the caller does
}

// ErrorFrom converts the error of an RPC to this package's error for it, or returns err itself
// if there is none, and reports whether a retry, at another node or later, may succeed.
func ErrorFrom(err error) (fault error, retry bool) {
	v := judge(err)
	return v.Err, v.Retry
}
