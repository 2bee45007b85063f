package etcd

import (
	"errors"
	"sync/atomic"

	"github.com/shardwatch/shardwatch/internal/etcd/etcdclock"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// Stats are a client's counts since its creation. All but WatchesOpen and StreamsOpen
// only grow.
type Stats struct {
	Lists        int64 // lists of state begun: Follow with From 0
	Leaps        int64 // lists of differences begun: Follow with Held
	LeapKeys     int64 // values fetched by them
	LeapBytes    int64 // keys and values
	KeyLists     int64 // lists of keys begun
	ListRestarts int64 // lists restarted because etcd compacted their revision
	Pages        int64 // range requests of both kinds of lists
	ListedKeys   int64
	ListedBytes  int64

	WatchesOpen   int64 // now; one that moves to the shared stream counts twice for a moment
	StreamsOpen   int64 // watch streams that are open now
	Watches       int64 // watches begun, each on a separate stream
	Resumes       int64 // of these, with From set
	Compacted     int64 // watches that etcd ended as compacted
	Silenced      int64 // watches given up because nothing came
	Batches       int64
	Events        int64
	EventBytes    int64 // keys and values
	Fragments     int64 // responses that another one completed
	Histories     int64 // streams opened for History
	FarBehind     int64 // watches that had to wait for a permit: they began far behind
	Joins         int64 // watches that moved to the shared stream
	LeftSlow      int64 // of these, back on separate streams because their consumers were slow
	LeftOther     int64 // left for another reason, while the shared stream continued
	ProgressAsked int64
	Progress      int64 // answers that moved a watch forward

	etcdclock.Stats
}

type counters struct {
	leaps, leapKeys, leapBytes                                    atomic.Int64
	lists, keyLists, listRestarts, pages, listedKeys, listedBytes atomic.Int64

	watchesOpen, streamsOpen                          atomic.Int64
	joins, leftSlow, leftOther                        atomic.Int64
	watches, resumes, compacted, silenced             atomic.Int64
	batches, events, eventBytes, fragments, histories atomic.Int64
	progressAsked, progressSeen                       atomic.Int64
	farBehind                                         atomic.Int64
}

// Stats returns the counts as of now.
func (c *Client) Stats() Stats {
	n := &c.count
	return Stats{
		Leaps: n.leaps.Load(), LeapKeys: n.leapKeys.Load(), LeapBytes: n.leapBytes.Load(),
		Lists: n.lists.Load(), KeyLists: n.keyLists.Load(), ListRestarts: n.listRestarts.Load(),
		Pages: n.pages.Load(), ListedKeys: n.listedKeys.Load(), ListedBytes: n.listedBytes.Load(),
		WatchesOpen: n.watchesOpen.Load(), StreamsOpen: n.streamsOpen.Load(), Watches: n.watches.Load(), Resumes: n.resumes.Load(),
		Joins: n.joins.Load(), LeftSlow: n.leftSlow.Load(), LeftOther: n.leftOther.Load(),
		Compacted: n.compacted.Load(), Silenced: n.silenced.Load(),
		Batches: n.batches.Load(), Events: n.events.Load(), EventBytes: n.eventBytes.Load(), Fragments: n.fragments.Load(), Histories: n.histories.Load(), FarBehind: n.farBehind.Load(),
		ProgressAsked: n.progressAsked.Load(), Progress: n.progressSeen.Load(),
		Stats: c.reader.Stats(),
	}
}

// opened counts a stream with one watch; the caller calls closed at its end.
func (n *counters) opened() (closed func()) {
	n.watchesOpen.Add(1)
	n.streamsOpen.Add(1)
	return func() {
		n.watchesOpen.Add(-1)
		n.streamsOpen.Add(-1)
	}
}

// brought counts an update of a watch.
func (n *counters) brought(u *kv.Update) {
	if u.Kind != kv.UpdateBatch {
		n.progressSeen.Add(1)
		return
	}
	bytes := 0
	for i := range u.Batch.Events {
		e := u.Batch.Events[i].KV
		bytes += len(e.Key()) + len(e.Value())
	}
	n.batches.Add(1)
	n.events.Add(int64(len(u.Batch.Events)))
	n.eventBytes.Add(int64(bytes))
}

// left counts a watch that leaves the shared stream.
func (n *counters) left(why error) {
	var reason leaving
	switch {
	case !errors.As(why, &reason) || reason == leftDone: // the stream has ended, or the consumer
	case reason == leftFull:
		n.leftSlow.Add(1)
	default:
		n.leftOther.Add(1)
	}
}
