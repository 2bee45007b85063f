package authz

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/shardwatch/shardwatch/internal/auth/policy"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wait"
)

// Caller is the identity of the calls on a connection. Each check uses the current policy. A nil Caller has all
// rights.
type Caller struct {
	a     *Authorizer
	names policy.Names
	use   *usage

	resolved atomic.Pointer[resolved]
}

// resolved is the caller's part of a policy.
type resolved struct {
	state *state
	id    *policy.Identity
}

func (c *Caller) resolve(s *state) *policy.Identity {
	if r := c.resolved.Load(); r != nil && r.state == s {
		return r.id
	}
	id := s.policy.Identity(c.names)
	c.resolved.Store(&resolved{s, id})
	return id
}

func (c *Caller) identity() *policy.Identity { return c.resolve(c.a.state.Load()) }

// Name returns the caller's name, for logs; "" for a nil Caller.
func (c *Caller) Name() string {
	if c == nil {
		return ""
	}
	return c.identity().Name
}

// Named reports whether the caller has proved a name, by a certificate or a token. A nil Caller has not.
func (c *Caller) Named() bool { return c != nil && len(c.names) > 0 }

// May fails with a *kv.DeniedError unless the caller may use the verb on all keys of r. Denials are counted and
// audited: call it only for actual requests.
func (c *Caller) May(ctx context.Context, v policy.Verb, r kv.Range) error {
	if c == nil || c.identity().May(v, r) {
		return nil
	}
	what := "use " + v.String()
	if v.OfKeys() {
		what = fmt.Sprintf("%s %v", v, r)
	}
	return c.denied(ctx, v, what)
}

// MaySome is May for calls without keys: the caller must have the verb on at least one range.
func (c *Caller) MaySome(ctx context.Context, v policy.Verb) error {
	if c == nil || c.identity().Some(v) {
		return nil
	}
	return c.denied(ctx, v, fmt.Sprintf("%s anything", v))
}

// Known fails with a *kv.DeniedError unless the caller has some right.
func (c *Caller) Known(ctx context.Context) error {
	if c == nil || c.identity().Known() {
		return nil
	}
	return c.denied(ctx, policy.Read, "do anything here")
}

// Allows is May without an audit record and without metrics.
func (c *Caller) Allows(v policy.Verb, r kv.Range) bool { return c == nil || c.identity().May(v, r) }

func (c *Caller) denied(ctx context.Context, v policy.Verb, what string) error {
	c.a.count.denied[v].Add(1)
	err := &kv.DeniedError{Detail: fmt.Sprintf("the policy does not let %s %s", c.Name(), what)}
	c.a.cfg.Audit.refused(ctx, c.Name(), err)
	return err
}

// comeAgain is the retry delay after a limit that is not a rate.
const comeAgain = time.Second

// exceeded counts a refusal by a limit, and returns its error.
func (c *Caller) exceeded(l limit, most int64, after time.Duration) error {
	c.a.count.limited[l].Add(1)
	return &kv.LimitError{
		Limit: "the policy's " + l.String(), Max: most, RetryAfter: after,
		Detail: fmt.Sprintf("%s has too much open at this node", c.Name()),
	}
}

func (c *Caller) most(l limit) int64 {
	m := c.identity().Limits
	return [...]int64{m.Connections, m.Streams, m.Watches, m.CreatesPerSecond, m.ListBytes, m.WatchKeyBytes, m.RequestBytes}[l]
}

// take takes n of a limit, or fails with a *kv.LimitError.
func (c *Caller) take(l limit, n int64) error {
	if most := c.most(l); !c.use.take(l, n, most) {
		return c.exceeded(l, most, comeAgain)
	}
	return nil
}

// Bounded reports whether the caller's messages have a bound besides the node's own.
func (c *Caller) Bounded() bool { return c != nil && c.most(requestBytes) > 0 }

// Fits fails with a *kv.InvalidError if a request message of this size is larger than the caller may send. A
// retry does not help.
func (c *Caller) Fits(bytes int) error {
	if c == nil {
		return nil
	}
	most := c.most(requestBytes)
	if most == 0 || int64(bytes) <= most {
		return nil
	}
	c.a.count.limited[requestBytes].Add(1)
	return &kv.InvalidError{Field: "request", Reason: fmt.Sprintf("%d bytes: the policy's request_bytes lets %s send %d in a message", bytes, c.Name(), most)}
}

// Call counts an open call, until done. It fails with a *kv.LimitError.
func (c *Caller) Call() (done func(), err error) {
	if c == nil {
		return func() {}, nil
	}
	if err := c.take(streams, 1); err != nil {
		return nil, err
	}
	return func() { c.use.give(streams, 1) }, nil
}

// Refused delays the refusal of a call, so that an identity receives a bounded number per second
// (Config.RefusalsPerSecond): each costs the node as much CPU as a read. The call counts as open while it
// waits. It does not wait beyond the limit of open calls or the end of ctx.
func (c *Caller) Refused(ctx context.Context) {
	if c == nil || !c.use.take(streams, 1, c.most(streams)) {
		return
	}
	defer c.use.give(streams, 1)
	turn := c.use.refused.Reserve()
	d := turn.Delay()
	if d == 0 {
		return
	}
	c.a.count.delayed.Add(1)
	if !wait.Sleep(ctx, d) {
		turn.Cancel()
	}
}

// Watch counts an open watch, until WatchesEnded. It fails with a *kv.LimitError.
func (c *Caller) Watch() error {
	if c == nil {
		return nil
	}
	return c.take(watches, 1)
}

// WatchesEnded records that n watches have ended.
func (c *Caller) WatchesEnded(n int) {
	if c != nil && n > 0 {
		c.use.give(watches, int64(n))
	}
}

// Create fails with a *kv.LimitError if watches are created too fast.
func (c *Caller) Create() error {
	if c == nil {
		return nil
	}
	turn := c.use.rate(c.most(creates)).Reserve()
	if d := turn.Delay(); d > 0 {
		turn.Cancel()
		return c.exceeded(creates, c.most(creates), max(d, comeAgain))
	}
	return nil
}

// WaitCreate waits until another watch may be created, for clients that cannot be told to retry. It fails if
// ctx ends.
func (c *Caller) WaitCreate(ctx context.Context) error {
	if c == nil {
		return nil
	}
	return c.use.rate(c.most(creates)).Wait(ctx)
}

// List counts the bytes of an open list, until done. It fails with a *kv.LimitError.
func (c *Caller) List(bytes int64) (done func(), err error) {
	if c == nil {
		return func() {}, nil
	}
	if err := c.take(listBytes, bytes); err != nil {
		return nil, err
	}
	return func() { c.use.give(listBytes, bytes) }, nil
}
