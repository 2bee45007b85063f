package copies

import (
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// lag distinguishes a source that sends nothing from one that is only behind.
type lag struct {
	progress kv.Revision // at the last look
	seen     time.Time   // time of the last look
	since    time.Time   // when progress last moved, or had reached etcd's revision
}

// LookEvery is how often etcd's revision is compared with the progress of the copies.
const LookEvery = 500 * time.Millisecond

// StuckAfter is how long a source may send nothing although etcd has new revisions;
// then another one is selected. Nodes without a connection to etcd look healthy to
// their followers. It takes two successive looks to detect that.
const StuckAfter = 2*LookEvery - LookEvery/10

// standstill is the age up to which the last look counts: a node that was paused has
// not read its source's updates of that time.
const standstill = 4 * LookEvery

// still notes progress while etcd is at revision, and returns how long it has not moved
// although etcd has new revisions. After StuckAfter it starts again.
func (l *lag) still(now time.Time, progress, revision kv.Revision) time.Duration {
	awake := now.Sub(l.seen) <= standstill
	l.seen = now
	if progress != l.progress || progress >= revision || !awake {
		l.progress, l.since = progress, now
		return 0
	}
	still := now.Sub(l.since)
	if still > StuckAfter {
		l.since = now
	}
	return still
}

// Still notes that etcd is at revision, and returns how long the copy's progress has not
// moved although etcd has new revisions. One goroutine may call it.
func (h *Copy) Still(revision kv.Revision) time.Duration {
	return h.lag.still(time.Now(), h.Cache.Progress(), revision)
}
