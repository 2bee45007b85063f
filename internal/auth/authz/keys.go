package authz

import (
	"context"
	"fmt"

	"google.golang.org/grpc/peer"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/edge/netlimit"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// MaxWatchKey bounds each end of a watch's range, in bytes. etcd bounds only the whole request; keys in
// practice have some hundred bytes.
const MaxWatchKey = 8 << 10

// CheckWatchKey fails with a *kv.InvalidError if a key is too long for a watch. Call it before keeping the key.
func CheckWatchKey(field string, key []byte) error {
	if len(key) <= MaxWatchKey {
		return nil
	}
	return &kv.InvalidError{Field: field, Reason: fmt.Sprintf("%d bytes: a watch takes keys of at most %d", len(key), MaxWatchKey)}
}

// watchBytes is the memory of an open watch besides its keys, in either API: the measured growth
// of the process, with garbage and gRPC's buffers (docs/sizing.md).
const watchBytes = 5 << 10

// sizeOf returns the bytes of a watch's keys.
func sizeOf(r kv.Range) int64 { return int64(len(r.Start) + len(r.End)) }

// OpenWatch counts a watch and its keys, until CloseWatch, in holder's part of the node's budget and for the
// caller. Both may be nil. It fails with a *kv.LimitError.
func OpenWatch(b *budget.Budget, holder budget.Client, c *Caller, r kv.Range) error {
	if err := b.Take(holder, budget.Watches, watchBytes, 0); err != nil {
		return err
	}
	err := openKeys(b, holder, c, sizeOf(r))
	if err != nil {
		b.Give(holder, budget.Watches, watchBytes)
	}
	return err
}

// openKeys counts the n bytes of a watch's keys, and the caller's watch.
func openKeys(b *budget.Budget, holder budget.Client, c *Caller, n int64) error {
	if err := b.Take(holder, budget.WatchKeys, n, 0); err != nil {
		return err
	}
	err := c.Watch()
	if err == nil && c != nil {
		if err = c.take(watchKeyBytes, n); err != nil {
			c.WatchesEnded(1)
		}
	}
	if err != nil {
		b.Give(holder, budget.WatchKeys, n)
	}
	return err
}

// CloseWatch releases the counts of OpenWatch.
func CloseWatch(b *budget.Budget, holder budget.Client, c *Caller, r kv.Range) {
	n := sizeOf(r)
	b.Give(holder, budget.Watches, watchBytes)
	b.Give(holder, budget.WatchKeys, n)
	if c != nil {
		c.WatchesEnded(1)
		c.use.give(watchKeyBytes, n)
	}
}

// Holder returns the client whose part of the budget a call uses: the identity in the policy, or else the
// certificate's name, or the address, of IPv6 the /64. c may be nil.
func Holder(ctx context.Context, c *Caller) budget.Client {
	if c != nil {
		id := c.identity()
		return budget.Client{Name: id.Name, Max: id.Limits.PendingBytes}
	}
	name := ShownBy(ctx)
	if p, ok := peer.FromContext(ctx); ok && name == "" {
		if name = netlimit.SourceOf(p.Addr); name == "" {
			name = p.Addr.String() // not TCP: in tests
		}
	}
	return budget.Client{Name: name, Max: budget.HalfOfTotal}
}
