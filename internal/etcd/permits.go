package etcd

import (
	"context"
	"fmt"
)

// Permits bounds the requests that are expensive for etcd: lists, leaps, and reads of
// a long part of its log.
type Permits interface {
	// Acquire waits for a permit; purpose is for logs. release returns it and must be
	// called once. Acquire fails only when ctx ends.
	Acquire(ctx context.Context, purpose string) (release func(), err error)
}

// Permits returns the permits in use.
func (c *Client) Permits() Permits { return c.permits }

// SetPermits replaces the client's own permits, MaxConcurrentLists of them, by permits
// that several clients share. Call it before the client is used.
func (c *Client) SetPermits(p Permits) { c.permits = p }

// LocalPermits are permits of this process alone; their number is the capacity.
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
