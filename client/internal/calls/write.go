package calls

import (
	"context"

	"github.com/shardwatch/shardwatch/client/internal/connect"
	"github.com/shardwatch/shardwatch/client/internal/keyrange"
	"github.com/shardwatch/shardwatch/client/internal/nodes"
	"github.com/shardwatch/shardwatch/client/internal/outcome"
)

// Write sends a write to a node with an established connection. Connecting and logging
// in may take several attempts, as may nodes that reject the write. Sending may take
// Config.AttemptTimeout, and is not repeated if its outcome is unknown: Write then
// fails with Config.Unknown.
func (c *Caller) Write(ctx context.Context, r keyrange.Range, send func(context.Context, *nodes.Node) error) error {
	a, err := c.Begin(ctx, r)
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
			err = send(attempt, n)
			cancel()
			if outcome.Unconfirmed(err) {
				a.Observe(err)
				return c.unknown(ctx, a.addr, err)
			}
		}
		a.Observe(err)
		if err == nil {
			c.cfg.Pool.Praise(a.addr)
			return nil
		}
		if err := a.Failed(ctx, err); err != nil {
			return err
		}
	}
}

// prepare waits until a write can be sent to a node.
func (c *Caller) prepare(ctx context.Context, n *nodes.Node) error {
	attempt, cancel := context.WithTimeoutCause(ctx, c.cfg.Silence, outcome.ErrSlow)
	defer cancel()
	if err := connect.Connected(attempt, n.Conn, n.Addr); err != nil {
		return err //nolint:wrapcheck // Failed judges it
	}
	if err := c.cfg.Connect.Login.Ready(ctx, n.Conn, c.cfg.AttemptTimeout); err != nil {
		return err //nolint:wrapcheck // Failed judges it
	}
	return ctx.Err()
}

// unknown returns the error of a write that was sent but not confirmed.
func (c *Caller) unknown(ctx context.Context, addr string, err error) error {
	v := c.cfg.Judge(err)
	switch {
	case c.cfg.Closed.Err() != nil:
		v.Err = outcome.ErrClosed
	case ctx.Err() != nil:
		v.Err = context.Cause(ctx)
	case v.Penalise:
		c.cfg.Pool.Penalise(addr, 0)
	}
	return c.cfg.Unknown(addr, v.Err)
}
