package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"github.com/shardwatch/shardwatch/client/internal/nodes"
	"github.com/shardwatch/shardwatch/client/internal/outcome"
	"github.com/shardwatch/shardwatch/client/internal/retry"
)

// attempts goes through the nodes that may serve a range, for one read.
type attempts struct {
	c        *Client
	rng      Range
	addr     string     // of the attempt
	began    retry.Wait // of the attempt
	tried    retry.Tried
	hints    []string
	failures int
	deadline time.Duration // as Client.pulse.Ran
}

// attempts starts a read. It waits until the map is known, or cannot be had.
func (c *Client) attempts(ctx context.Context, r Range) (*attempts, error) {
	select {
	case <-c.follower.First:
	case <-ctx.Done():
		return nil, ended(ctx)
	}
	return &attempts{c: c, rng: r, deadline: c.pulse.Ran() + c.cfg.RetryFor}, nil
}

// node returns the connection for the next attempt.
func (a *attempts) node() (*nodes.Node, error) {
	a.addr = a.c.pick(a.rng, a.hints, a.tried)
	a.hints, a.began = nil, a.c.pulse.Wait()
	return a.c.pool.Get(a.addr)
}

// worked says that the node answered.
func (a *attempts) worked() {
	a.c.pool.Praise(a.addr)
	a.tried, a.failures, a.deadline = nil, 0, a.c.pulse.Ran()+a.c.cfg.RetryFor
}

// failed waits for the next attempt. It returns the error for the caller when
// there is none.
func (a *attempts) failed(ctx context.Context, err error) error {
	switch {
	case a.c.ctx.Err() != nil:
		return ErrClosed
	case ctx.Err() != nil:
		return a.ended(ctx, err)
	}
	v := judge(err)
	if v.Penalise && !a.c.pulse.Stalled(a.began) {
		a.c.pool.Penalise(a.addr, 0)
	}
	again := a.c.connect.Renewed(v, a.began.Began)
	if !v.Retry && !again {
		return v.Err
	}
	a.failures++
	a.tried.Add(a.addr)
	a.hints = v.Hints
	d := retry.Backoff(a.failures, v.After)
	if late := a.c.pulse.Ran()+d > a.deadline; late && again {
		return v.Err
	} else if late {
		return fmt.Errorf("%w within %v: %s: %w", ErrUnavailable, a.c.cfg.RetryFor, a.addr, err)
	}
	if !retry.Sleep(ctx, d) {
		return a.ended(ctx, err)
	}
	return nil
}

// ended returns the error of a call whose context ended after the last attempt.
func (a *attempts) ended(ctx context.Context, last error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ended(ctx)
	}
	return fmt.Errorf("%w (last answer, of %s: %s)", ended(ctx), a.addr, outcome.Brief(last))
}

// ended returns the error of a call whose context ended: the cause, and after a
// deadline that no node could answer until then.
func ended(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(ctx.Err(), context.Canceled) {
		return cause //nolint:wrapcheck // the caller's own
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, cause)
}

// fault returns the error of a call to one node for its caller.
func fault(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ended(ctx)
	}
	return judge(err).Err
}

// read asks node after node until one answers. An attempt may take
// Config.AttemptTimeout, and extra.
func (c *Client) read(ctx context.Context, r Range, extra time.Duration, ask func(context.Context, *nodes.Node) error) error {
	a, err := c.attempts(ctx, r)
	if err != nil {
		return err
	}
	for {
		n, err := a.node()
		if err == nil {
			attempt, cancel := context.WithTimeoutCause(ctx, c.cfg.AttemptTimeout+extra, outcome.ErrSlow)
			err = ask(attempt, n)
			cancel()
		}
		a.observe(err)
		if err == nil {
			a.worked()
			return nil
		}
		if err := a.failed(ctx, err); err != nil {
			return err
		}
	}
}

// Call makes RPCs that this package has no method for; package admin is built on it.
// It calls f with one node after the other, until f returns nil or an error that
// another node would return too, or for [Config.RetryFor]. One call of f has
// [Config.AttemptTimeout] and extra. f returns the RPC's error as it is; Call returns
// what [ErrorFrom] makes of it.
func (c *Client) Call(ctx context.Context, extra time.Duration, f func(ctx context.Context, node grpc.ClientConnInterface) error) error {
	return c.read(ctx, Range{}, extra, func(ctx context.Context, n *nodes.Node) error {
		err := f(ctx, n.Conn)
		if err != nil && errors.Is(context.Cause(ctx), outcome.ErrSlow) {
			return outcome.ErrSlow
		}
		return err
	})
}

// CallNode is [Client.Call] for the node at an address (host:port): f is called once.
func (c *Client) CallNode(ctx context.Context, address string, extra time.Duration, f func(ctx context.Context, node grpc.ClientConnInterface) error) error {
	n, err := c.pool.Get(address)
	if err == nil {
		attempt, cancel := context.WithTimeoutCause(ctx, c.cfg.AttemptTimeout+extra, outcome.ErrSlow)
		defer cancel()
		err = f(attempt, n.Conn)
	}
	if err != nil {
		return fault(ctx, err)
	}
	return nil
}

// ErrorFrom returns the error of this package for that of an RPC, or err itself if
// there is none, and whether another node, or the same one later, may do better.
func ErrorFrom(err error) (fault error, retry bool) {
	v := judge(err)
	return v.Err, v.Retry
}
