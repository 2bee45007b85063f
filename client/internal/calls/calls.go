// Package calls retries a call at one node after another.
//
// Read [Caller] first. It is safe for use by several goroutines; an [Attempts] serves one.
package calls

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/shardwatch/shardwatch/client/internal/connect"
	"github.com/shardwatch/shardwatch/client/internal/keyrange"
	"github.com/shardwatch/shardwatch/client/internal/nodes"
	"github.com/shardwatch/shardwatch/client/internal/outcome"
	"github.com/shardwatch/shardwatch/client/internal/retry"
)

// Config configures a [Caller]. All fields but Observe must be set.
type Config struct {
	Pool    *nodes.Pool
	Pulse   *retry.Pulse // the clock for the silence of nodes
	Connect *connect.Options
	// AttemptTimeout is how long one node may take, RetryFor how long a call is retried,
	// and Silence how long a connection may take before a write is sent.
	AttemptTimeout, RetryFor, Silence time.Duration
	Ready                             <-chan struct{} // closed once nodes can be chosen
	Closed                            context.Context //nolint:containedctx // of the client; ends with Close
	// Judge interprets the error of a node.
	Judge func(error) outcome.Verdict
	// Unknown returns the error for a write that was sent but, because of err, not confirmed.
	Unknown func(node string, err error) error
	// Pick returns the address of the node to ask next.
	Pick func(r keyrange.Range, hints []string, tried retry.Tried) string
	// Observe is called after each attempt; nil: it is not.
	Observe func(r keyrange.Range, node string, took time.Duration, err error)
}

// Caller makes the calls of a client.
type Caller struct{ cfg Config }

// New returns a caller.
func New(cfg Config) *Caller { return &Caller{cfg} }

// Read tries one node after another until one answers. An attempt may take
// Config.AttemptTimeout plus extra.
func (c *Caller) Read(ctx context.Context, r keyrange.Range, extra time.Duration, ask func(context.Context, *nodes.Node) error) error {
	a, err := c.Begin(ctx, r)
	if err != nil {
		return err
	}
	for {
		n, err := a.Node()
		if err == nil {
			attempt, cancel := context.WithTimeoutCause(ctx, c.cfg.AttemptTimeout+extra, outcome.ErrSlow)
			err = ask(attempt, n)
			cancel()
		}
		a.Observe(err)
		if err == nil {
			a.Worked()
			return nil
		}
		if err := a.Failed(ctx, err); err != nil {
			return err
		}
	}
}

// At sends a call to the node at an address, once.
func (c *Caller) At(ctx context.Context, addr string, extra time.Duration, ask func(context.Context, *nodes.Node) error) error {
	n, err := c.cfg.Pool.Get(addr)
	if err == nil {
		attempt, cancel := context.WithTimeoutCause(ctx, c.cfg.AttemptTimeout+extra, outcome.ErrSlow)
		defer cancel()
		err = ask(attempt, n)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return Ended(ctx)
	}
	return c.cfg.Judge(err).Err
}

// Attempts has the state of one call, which tries the nodes that may serve a range.
type Attempts struct {
	cfg      *Config
	rng      keyrange.Range
	addr     string     // of the attempt
	began    retry.Wait // of the attempt
	answer   answer     // the last one
	tried    retry.Tried
	hints    []string
	failures int
	deadline time.Duration // on the pulse
}

// answer is the error of an attempt that the end of the call did not interrupt.
type answer struct {
	addr string // of the node
	err  error
}

// Begin starts a call for a range. It waits for the shard map, or for the first failure to get it.
func (c *Caller) Begin(ctx context.Context, r keyrange.Range) (*Attempts, error) {
	select {
	case <-c.cfg.Ready:
	case <-ctx.Done():
		return nil, Ended(ctx)
	}
	return &Attempts{cfg: &c.cfg, rng: r, deadline: c.cfg.Pulse.Ran() + c.cfg.RetryFor}, nil
}

// Node returns the connection for the next attempt.
func (a *Attempts) Node() (*nodes.Node, error) {
	a.addr = a.cfg.Pick(a.rng, a.hints, a.tried)
	a.hints, a.began = nil, a.cfg.Pulse.Wait()
	return a.cfg.Pool.Get(a.addr) //nolint:wrapcheck // it names the address
}

// Worked records that the node has answered.
func (a *Attempts) Worked() {
	a.cfg.Pool.Praise(a.addr)
	a.tried, a.failures, a.deadline = nil, 0, a.cfg.Pulse.Ran()+a.cfg.RetryFor
}

// Failed waits for the next attempt, or returns the error for the caller if there is none.
func (a *Attempts) Failed(ctx context.Context, err error) error {
	switch {
	case a.cfg.Closed.Err() != nil:
		return outcome.ErrClosed
	case ctx.Err() == nil:
		a.answer = answer{a.addr, err}
	default:
		return a.ended(ctx, err)
	}
	v := a.cfg.Judge(err)
	if v.Penalise && !a.cfg.Pulse.Stalled(a.began) {
		a.cfg.Pool.Penalise(a.addr, 0)
	}
	again := a.cfg.Connect.Renewed(v, a.began.Began)
	if !v.Retry && !again {
		return v.Err
	}
	a.failures++
	a.tried.Add(a.addr)
	a.hints = v.Hints
	d := retry.Backoff(a.failures, v.After)
	if late := a.cfg.Pulse.Ran()+d > a.deadline; late && again {
		return v.Err
	} else if late {
		return fmt.Errorf("%w within %v: %s: %w", outcome.ErrUnavailable, a.cfg.RetryFor, a.addr, err)
	}
	if !retry.Sleep(ctx, d) {
		return a.ended(ctx, err)
	}
	return nil
}

// ended returns the error of a call whose context ended in or after an attempt that failed
// with err. If the deadline interrupted the attempt, the error has the previous answer.
func (a *Attempts) ended(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return Ended(ctx)
	}
	last := answer{a.addr, err}
	if a.answer.err != nil && (errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded) {
		last = a.answer
	}
	return fmt.Errorf("%w (last answer, of %s: %s)", Ended(ctx), last.addr, outcome.Brief(last.err))
}

// Ended returns the error of a call whose context ended: the cause, and after a
// deadline also that no node answered in time.
func Ended(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(ctx.Err(), context.Canceled) {
		return cause //nolint:wrapcheck // the caller's own
	}
	return fmt.Errorf("%w: %w", outcome.ErrUnavailable, cause)
}

// Addr returns the address of the node of the attempt.
func (a *Attempts) Addr() string { return a.addr }

// Observe reports that an attempt has ended.
func (a *Attempts) Observe(err error) {
	if f := a.cfg.Observe; f != nil {
		if err != nil {
			err = a.cfg.Judge(err).Err
		}
		f(a.rng, a.addr, time.Since(a.began.Began), err)
	}
}
