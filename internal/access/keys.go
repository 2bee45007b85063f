package access

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// MaxWatchKey bounds each end of a watch's range, in bytes. etcd has no such bound but
// that of a request; keys that programs use have some hundred bytes.
const MaxWatchKey = 8 << 10

// WatchKeys bounds the bytes of the keys of all watches of a node, with and without a
// policy. A nil WatchKeys bounds only what the policy does. Its methods may be called
// from any goroutine.
type WatchKeys struct {
	// Max is the bound.
	Max  int64
	held atomic.Int64
}

// Held returns the bytes of the keys of open watches.
func (k *WatchKeys) Held() int64 { return k.held.Load() }

// CheckWatchKey fails with a *kv.InvalidError when a key is too long for a watch. Ask
// before anything is kept.
func CheckWatchKey(field string, key []byte) error {
	if len(key) <= MaxWatchKey {
		return nil
	}
	return &kv.InvalidError{Field: field, Reason: fmt.Sprintf("%d bytes: a watch takes keys of at most %d", len(key), MaxWatchKey)}
}

// sizeOf is what the keys of a watch take.
func sizeOf(r kv.Range) int64 { return int64(len(r.Start) + len(r.End)) }

// Open counts a watch in, until Close, for the node and for its caller. It fails with
// a *kv.LimitError.
func (k *WatchKeys) Open(c *Caller, r kv.Range) error {
	n := sizeOf(r)
	if k != nil {
		if k.held.Add(n) > k.Max {
			k.held.Add(-n)
			return &kv.LimitError{
				Limit: "the bytes of watch keys", Max: k.Max, RetryAfter: time.Second,
				Detail: "the keys of all watches of this node are too large: watch prefixes in place of keys, or use another node",
			}
		}
	}
	err := c.Watch()
	if err == nil && c != nil {
		if err = c.take(watchKeyBytes, n); err != nil {
			c.WatchesEnded(1)
		}
	}
	if err != nil && k != nil {
		k.held.Add(-n)
	}
	return err
}

// Close says that a watch has ended.
func (k *WatchKeys) Close(c *Caller, r kv.Range) {
	n := sizeOf(r)
	if k != nil {
		k.held.Add(-n)
	}
	if c != nil {
		c.WatchesEnded(1)
		c.use.give(watchKeyBytes, n)
	}
}
