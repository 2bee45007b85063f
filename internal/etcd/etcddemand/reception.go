package etcddemand

import (
	"sync/atomic"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// Reception measures for how long a stream has brought nothing, or nothing new, though its
// consumer was ready for it. All times are since the stream began. One goroutine calls
// Ready and Got; any may call the others.
type Reception struct {
	ready atomic.Int64 // when the current wait for a response began; 0: the consumer is busy with the last one
	news  atomic.Int64 // when the wait after the last response with something new began

	// Owned by the goroutine that receives.
	newest kv.Revision // of all responses
	isNew  bool        // the last response told something new
}

// Ready notes that the consumer waits for the next response from at on.
func (r *Reception) Ready(at time.Duration) {
	at = max(1, at)
	if r.isNew {
		r.news.Store(int64(at))
	}
	r.ready.Store(int64(at))
}

// Got notes that a response has come, with etcd's revision. Events are new, and so is a
// revision above all before: an answer with the same one is not.
func (r *Reception) Got(revision kv.Revision, events bool) {
	r.ready.Store(0)
	r.isNew = events || revision > r.newest
	r.newest = max(r.newest, revision)
}

// Waits returns for how long, at a time, the consumer has waited for the next response.
func (r *Reception) Waits(at time.Duration) time.Duration {
	ready := time.Duration(r.ready.Load())
	if ready == 0 {
		return 0
	}
	return at - ready
}

// Quiet returns for how long nothing has come though the consumer was ready for it, and
// needed it since a time.
func (r *Reception) Quiet(at, since time.Duration) time.Duration {
	return min(r.Waits(at), at-since)
}

// Stale returns for how long nothing new has come though the consumer was ready for it, and
// needed it since a time.
func (r *Reception) Stale(at, since time.Duration) time.Duration {
	if r.ready.Load() == 0 {
		return 0
	}
	return min(at-time.Duration(r.news.Load()), at-since)
}
