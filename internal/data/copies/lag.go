package copies

import (
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// lag distinguishes a source that brings nothing from one that is only behind.
type lag struct {
	progress kv.Revision // as seen last
	seen     time.Time   // when that was
	since    time.Time   // when it moved last, or had nothing to move to
}

// LookEvery is how often etcd's revision is compared with the progress of the copies.
const LookEvery = 500 * time.Millisecond

// StuckAfter is how long a source may bring nothing at all though etcd has
// moved on; then another one is taken. Nodes that are cut from etcd look
// healthy to their followers. Two looks of the clock in a row show it.
const StuckAfter = 2*LookEvery - LookEvery/10

// standstill is how long ago the last look may be for its result to count
// still: a node that stood still has not read what its source has sent meanwhile.
const standstill = 4 * LookEvery

// still notes progress while etcd is at revision, and returns for how long it has
// been the same though etcd has moved on. After StuckAfter it starts again.
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

// Still notes that etcd is at revision, and returns for how long the progress of the copy
// has been the same though etcd has moved on. One goroutine may call it.
func (h *Copy) Still(revision kv.Revision) time.Duration {
	return h.lag.still(time.Now(), h.Cache.Progress(), revision)
}
