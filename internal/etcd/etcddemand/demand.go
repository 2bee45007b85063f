// Package etcddemand decides when to ask etcd for the progress of a watch stream, and measures
// how long the stream is silent.
package etcddemand

import (
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// Demand decides when to ask etcd for progress. It is a value without a clock.
//
// etcd answers only when all watches of the stream are synced and its revision has
// reached the watch's first (watchable_store.go, progressIfSync); else it drops the
// request. So the request is repeated: soon at first, since the member of the watch is
// often a few milliseconds behind the member that reported the revision, then at
// intervals of every.
type Demand struct {
	coalesce, every, idle time.Duration

	want  kv.Revision   // the highest revision that a caller waits for
	since time.Time     // when the wait for it began
	asked time.Time     // time of the last request
	pause time.Duration // from the last request to the next
}

// New returns a demand without callers, whose wait begins now. coalesce is the pause before the first
// repetition of a request; it doubles up to every. Without callers, etcd is asked at intervals of idle.
func New(coalesce, every, idle time.Duration, now time.Time) Demand {
	return Demand{coalesce: coalesce, every: every, idle: idle, since: now, pause: coalesce}
}

// Begin starts the time to the first request.
func (d *Demand) Begin(now time.Time) { d.asked = now }

// AtOnce makes the next request due.
func (d *Demand) AtOnce() { d.asked = time.Time{} }

// Add notes that a caller waits for revision, and reports whether it is the highest so far.
func (d *Demand) Add(revision, progress kv.Revision, now time.Time) bool {
	if revision <= d.want {
		return false
	}
	if !d.Unmet(progress) {
		d.since = now
	}
	d.want, d.pause = revision, d.coalesce
	return true
}

// Unmet reports whether a caller still waits.
func (d *Demand) Unmet(progress kv.Revision) bool { return d.want > progress }

// Since returns the time since which a caller waits for etcd.
func (d *Demand) Since() time.Time { return d.since }

// WaitAgain notes that etcd owed no answer until now.
func (d *Demand) WaitAgain(now time.Time) { d.since = now }

// Due returns the time of the next request. Watches without waiting callers ask at the
// same moments, the multiples of idle: waking a sleeping process costs more than its
// work afterwards.
func (d *Demand) Due(progress kv.Revision) time.Time {
	if d.Unmet(progress) {
		return d.asked.Add(d.pause)
	}
	return d.asked.Add(d.asked.Truncate(d.idle).Add(d.idle).Sub(d.asked))
}

// Sent notes that etcd was asked.
func (d *Demand) Sent(now time.Time) {
	d.asked = now
	d.pause = min(2*d.pause, d.every)
}
