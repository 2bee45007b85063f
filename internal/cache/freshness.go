package cache

import (
	"sync"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// freshness knows how old the data may be. A node that is cut from etcd looks
// healthy to every observer; only this shows it. See Age.
type freshness struct {
	mu      sync.Mutex
	known   bool          // guarded by mu
	freshAt time.Duration // guarded by mu; since the cache's start
	reach   kv.Revision   // guarded by mu; the newest progress
	// Observations of etcd that progress has not reached yet: the one that it will
	// reach first, so that one is reached even when progress always lags, and the
	// newest of the others. They come from several nodes, and not in order.
	first, newest *observation // guarded by mu
}

// observation: at that time, etcd was at that revision.
type observation struct {
	at       time.Duration
	revision kv.Revision
}

// confirmLocked notes that the data is not older than at.
func (f *freshness) confirmLocked(at time.Duration) {
	if !f.known || at > f.freshAt {
		f.known, f.freshAt = true, at
	}
}

// reached notes progress.
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

// observe notes that etcd was at revision at that time. It reports whether
// progress has to catch up first.
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

// since returns when all that etcd had acknowledged by then was known to be here,
// for a cache that started at start; zero while that is not known.
func (f *freshness) since(start time.Time) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.known {
		return time.Time{}
	}
	return start.Add(f.freshAt)
}

// Observe reports to the cache that etcd, read linearizably after the time at, was
// at revision. Once the cache has everything up to it, the data is as fresh as
// that. It reports whether the cache has to get there first: see Demand.
func (c *Cache) Observe(at time.Time, revision kv.Revision) (behind bool) {
	return c.freshness.observe(at.Sub(c.start), revision)
}

// Age returns how old the data may be, and false while that is not known.
func (c *Cache) Age() (time.Duration, bool) {
	c.freshness.mu.Lock()
	defer c.freshness.mu.Unlock()
	if !c.freshness.known {
		return 0, false
	}
	return max(0, time.Since(c.start)-c.freshness.freshAt), true
}
