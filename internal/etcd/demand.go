package etcd

import (
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// demand decides when etcd is asked for progress. It is a value without a
// clock.
//
// etcd answers only when all watches of the stream are synced and its revision
// has reached the watch's first (watchable_store.go, progressIfSync); else it
// drops the question. So it is put again: soon at first, since the member that
// we watch is often a few milliseconds behind the one that told the revision,
// then every `every`.
type demand struct {
	coalesce, every, idle time.Duration

	want  kv.Revision   // the highest revision that a caller waits for
	since time.Time     // since when it is waited for
	asked time.Time     // the last question
	pause time.Duration // from it to the next
}

// add notes that a caller waits for revision, and reports whether it is the highest so far.
func (d *demand) add(revision, progress kv.Revision, now time.Time) bool {
	if revision <= d.want {
		return false
	}
	if !d.unmet(progress) {
		d.since = now
	}
	d.want, d.pause = revision, d.coalesce
	return true
}

// unmet reports whether a caller still waits.
func (d *demand) unmet(progress kv.Revision) bool { return d.want > progress }

// due returns when to ask next. Watches without waiting callers ask at the same
// moments, those that are multiples of idle: to wake a process that sleeps costs
// more than its work after that.
func (d *demand) due(progress kv.Revision) time.Time {
	if d.unmet(progress) {
		return d.asked.Add(d.pause)
	}
	return d.asked.Add(d.asked.Truncate(d.idle).Add(d.idle).Sub(d.asked))
}

// sent notes that etcd was asked.
func (d *demand) sent(now time.Time) {
	d.asked = now
	d.pause = min(2*d.pause, d.every)
}
