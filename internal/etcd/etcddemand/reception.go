package etcddemand

import (
	"sync/atomic"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// Reception measures how long a stream has brought nothing, or nothing new, while its
// consumer was ready. All times count from the beginning of the stream. One goroutine
// calls Ready and Got; any may call the others.
type Reception struct {
	ready atomic.Int64 // start of the current wait for a response; 0: the consumer is busy with the last one
	news  atomic.Int64 // start of the wait after the last response with news

	// Owned by the goroutine that receives.
	newest kv.Revision // of all responses
	isNew  bool        // the last response had news
}

// Ready notes that the consumer waits for the next response from at on.
func (r *Reception) Ready(at time.Duration) {
	at = max(1, at)
	if r.isNew {
		r.news.Store(int64(at))
	}
	r.ready.Store(int64(at))
}

// Got notes that a response has come, with etcd's revision. Events are news, and so is
// a revision above all before it; an answer with the same revision is not.
func (r *Reception) Got(revision kv.Revision, events bool) {
	r.ready.Store(0)
	r.isNew = events || revision > r.newest
	r.newest = max(r.newest, revision)
}

// Waits returns how long the consumer has waited for the next response, at a given time.
func (r *Reception) Waits(at time.Duration) time.Duration {
	ready := time.Duration(r.ready.Load())
	if ready == 0 {
		return 0
	}
	return at - ready
}

// Quiet returns how long nothing has come while the consumer was ready, and needed a
// response since a given time.
func (r *Reception) Quiet(at, since time.Duration) time.Duration {
	return min(r.Waits(at), at-since)
}

// Stale returns how long no news have come while the consumer was ready, and needed them
// since a given time.
func (r *Reception) Stale(at, since time.Duration) time.Duration {
	if r.ready.Load() == 0 {
		return 0
	}
	return min(at-time.Duration(r.news.Load()), at-since)
}
