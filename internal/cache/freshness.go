package cache

import (
	"sync"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// freshness tracks how old the data may be; see Age. Only this shows that a node
// is cut off from etcd: otherwise the node looks healthy.
type freshness struct {
	mu      sync.Mutex
	known   bool          // guarded by mu
	freshAt time.Duration // guarded by mu; since the cache's start
	reach   kv.Revision   // guarded by mu; the newest progress
	// Observations of etcd above progress: the lowest revision, so that one
	// observation is reached even if progress always lags, and the newest of the
	// others. They come from several nodes, and not in order.
	first, newest *observation // guarded by mu
}

// observation is a revision that etcd had at a time.
type observation struct {
	at       time.Duration
	revision kv.Revision
}

// confirmLocked records that the data is not older than at.
func (f *freshness) confirmLocked(at time.Duration) {
	if !f.known || at > f.freshAt {
		f.known, f.freshAt = true, at
	}
}

// reached records progress.
func (f *freshness) reached(progress kv.Revision) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reach = progress
	if f.first != nil && f.first.revision <= progress {
		f.confirmLocked(f.first.at)
		f.first, f.newest = f.newest, nil
	}
	if f.first != nil && f.first.revision <= progress {
		f.confirmLocked(f.first.at)
		f.first = nil
	}
}

// observe records that etcd had the revision at that time. It reports whether
// progress is still below it.
func (f *freshness) observe(at time.Duration, revision kv.Revision) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if revision <= f.reach {
		f.confirmLocked(at)
		return false
	}
	o := &observation{at: at, revision: revision}
	switch {
	case f.first == nil:
		f.first = o
	case revision < f.first.revision:
		if f.newest == nil {
			f.newest = f.first
		}
		f.first = o
	case revision == f.first.revision:
		f.first.at = max(f.first.at, at)
	default:
		f.newest = o
	}
	return true
}

// since returns the newest time for which the cache has all changes that etcd had
// acknowledged; zero while none is known. The cache started at start.
func (f *freshness) since(start time.Time) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.known {
		return time.Time{}
	}
	return start.Add(f.freshAt)
}

// Observe records that etcd, read linearizably after the time at, was at revision.
// Once the cache has all events up to it, the data is not older than at. Observe
// reports whether the cache is still behind the revision; see Demand.
func (c *Cache) Observe(at time.Time, revision kv.Revision) (behind bool) {
	return c.freshness.observe(at.Sub(c.start), revision)
}

// Age returns how old the data may be, and false while its age is unknown.
func (c *Cache) Age() (time.Duration, bool) {
	c.freshness.mu.Lock()
	defer c.freshness.mu.Unlock()
	if !c.freshness.known {
		return 0, false
	}
	return max(0, time.Since(c.start)-c.freshness.freshAt), true
}
