package etcd

import (
	"context"
	"fmt"
)

// Permits bounds the requests that are expensive for etcd: lists, leaps, and reads of
// a long part of its log.
type Permits interface {
	// Acquire waits for a permit; purpose is for logs. release gives it back and
	// must be called once. It fails only when ctx ends.
	Acquire(ctx context.Context, purpose string) (release func(), err error)
}

// Permits returns those in use.
func (c *Client) Permits() Permits { return c.permits }

// SetPermits replaces the client's own permits, MaxConcurrentLists of them, by
// those that more clients share. Call it before the client is used.
func (c *Client) SetPermits(p Permits) { c.permits = p }

// LocalPermits are so many permits of this process alone.
type LocalPermits chan struct{}

// NewLocalPermits returns n permits.
func NewLocalPermits(n int) LocalPermits { return make(LocalPermits, n) }

// Acquire implements Permits.
func (l LocalPermits) Acquire(ctx context.Context, _ string) (release func(), err error) {
	select {
	case l <- struct{}{}:
		return func() { <-l }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for other large reads of etcd: %w", ctx.Err())
	}
}
