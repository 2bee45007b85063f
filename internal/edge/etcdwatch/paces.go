package etcdwatch

import (
	"maps"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// paces limits how often each client makes etcd read its log. etcd blocks writes while it reads, so the reads of
// one client take at most 1/300 of the time after a burst, or one read per maxPace if the log is large. Then one
// write in a hundred waits at most 0.1 s for reads, even if etcd has a backlog after each of them. All waiting
// watches of a client share its next read. In the zero paces every client may read.
type paces map[string]pace

// pace has the time of one client's next read, the end of its last read, and the number of parts that it is reading:
// concurrent reads are one read for etcd, see etcd.Client.History, and count once.
type pace struct {
	next, ended time.Time
	begun       int
}

const (
	// paceRatio is the pause of a client after a read, in multiples of the read's cost for etcd.
	paceRatio = 300
	// etcdWaits is the mean time until etcd begins to read, which costs etcd nothing: every 0.1 s etcd checks for
	// watches that need its log (mvcc/watchable_store.go, watchResyncPeriod). The remaining time is the cost of
	// the read, clamped to revisionCosts and revisionCostsMost for each revision that etcd has read. etcd takes 2
	// to 5 µs for a revision, and about a nanosecond for each of its bytes, byteCostsMost. Longer times are waits
	// for a busy processor or disk, which this client has not caused.
	etcdWaits         = 60 * time.Millisecond
	revisionCosts     = 2 * time.Microsecond
	revisionCostsMost = 25 * time.Microsecond
	byteCostsMost     = time.Nanosecond
	// endTogether is the maximum time between the ends of parts that share a read.
	endTogether = 20 * time.Millisecond
	// paceBurst is the part of the pause from which a client is exempt if it has not read for a
	// while: most logs are short, and most watches need one or two parts of them.
	paceBurst = 5 * time.Second
	// maxPace bounds the pause: a watch that is far behind reads one part after the other, while etcd compacts its
	// log, every five minutes with a kube-apiserver.
	maxPace = 30 * time.Second
	// maxParts bounds the parts that share one read of the log: etcd reads it once for so many watches.
	maxParts = 512
	// beginAgain is the pause of a part while maxParts others share the read.
	beginAgain = 100 * time.Millisecond
)

// begin returns the time after which the client must call begin again to read a part; 0: it reads
// now, and must call took afterwards.
func (p paces) begin(client string, now time.Time) (pause time.Duration) {
	x := p[client]
	if pause := x.next.Sub(now); pause > 0 {
		return pause
	}
	if x.begun == maxParts {
		return beginAgain // a read is under way: its end sets the next one
	}
	x.begun++
	p[client] = x
	return 0
}

// took records the end of a client's read, for which etcd has read so many revisions, each of size bytes.
func (p paces) took(client string, took time.Duration, ended time.Time, revisions kv.Revision, size int64) {
	free := ended.Add(-paceBurst)
	maps.DeleteFunc(p, func(_ string, x pace) bool { return x.next.Before(free) && x.begun == 0 })
	x := p[client]
	x.begun = max(0, x.begun-1)
	if x.next.Before(free) {
		x.next = free
	}
	if alone := ended.Sub(x.ended); alone > endTogether {
		least, most := time.Duration(revisions)*revisionCosts, time.Duration(revisions)*(revisionCostsMost+time.Duration(size)*byteCostsMost)
		x.next = x.next.Add(paceRatio * min(max(min(took, alone)-etcdWaits, least), most))
	}
	if most := ended.Add(maxPace); x.next.After(most) {
		x.next = most
	}
	x.ended = ended
	p[client] = x
}
