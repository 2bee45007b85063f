package etcdwatch

import (
	"maps"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// paces bound how often clients have etcd read its log. etcd holds its writes while it reads, so the reads of
// one client take at most 1/300 of the time after a burst, or one read in maxPace where the log is large. Then one
// write in a hundred waits at most 0.1 s for reads, also where etcd has a backlog after each of them. All watches of
// a client that wait share its next read. In the zero paces every client may read.
type paces map[string]pace

// pace is when one client may read, when its newest read ended, and how many parts it reads now: reads that run at the
// same time are one for etcd, see etcd.Client.History, and count once.
type pace struct {
	next, ended time.Time
	begun       int
}

const (
	// paceRatio is how long a client pauses after a read, in multiples of what the read has cost etcd.
	paceRatio = 300
	// etcdWaits is the mean time until etcd begins to read, which costs etcd nothing: it looks every 0.1 s for
	// watches that need its log (mvcc/watchable_store.go, watchResyncPeriod). The time beyond it is the cost of
	// the read, within revisionCosts and revisionCostsMost for each revision that etcd has read. etcd takes 2 to
	// 5 µs for a revision, and about a nanosecond for each of its bytes, byteCostsMost. What a read takes beyond
	// that is the wait for a busy processor or disk, which is no work of this client.
	etcdWaits         = 60 * time.Millisecond
	revisionCosts     = 2 * time.Microsecond
	revisionCostsMost = 25 * time.Microsecond
	byteCostsMost     = time.Nanosecond
	// endTogether is how much later than the first one a part ends that shares its read.
	endTogether = 20 * time.Millisecond
	// paceBurst is the part of the pause that a client need not make which has not read for a
	// while: most logs are short, and most watches need one or two parts of them.
	paceBurst = 5 * time.Second
	// maxPace bounds the pause: a watch that is far behind reads one part after the other, and etcd compacts its log
	// meanwhile, every five minutes behind a kube-apiserver.
	maxPace = 30 * time.Second
	// maxParts is how many parts one read of the log is for at most: etcd reads it once for so many watches.
	maxParts = 512
	// beginAgain is the pause of a part that finds as many before it.
	beginAgain = 100 * time.Millisecond
)

// begin returns how long a client must wait before it asks again whether it may read a part; 0: it reads
// now, and took must be called when it has.
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

// took notes that a read of a client has ended, for which etcd has read so many revisions of so many bytes each.
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
