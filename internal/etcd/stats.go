package etcd

import "sync/atomic"

// Stats are a client's counts since it was made. They only grow, but for
// WatchesOpen.
type Stats struct {
	Lists        int64 // lists of state begun: Follow with From 0
	Leaps        int64 // lists of what differs begun: Follow with Held
	LeapKeys     int64 // values fetched by them
	LeapBytes    int64 // keys and values
	KeyLists     int64 // lists of keys begun
	ListRestarts int64 // lists begun again, compacted under their pages
	Pages        int64 // range requests of both kinds of lists
	ListedKeys   int64
	ListedBytes  int64

	WatchesOpen   int64 // now
	Watches       int64 // watch streams opened
	Resumes       int64 // of these, with From set
	Compacted     int64 // watches that etcd ended as compacted
	Silenced      int64 // watches given up because nothing came
	Batches       int64
	Events        int64
	EventBytes    int64 // keys and values
	Fragments     int64 // responses that another one completed
	Histories     int64 // streams opened for History
	FarBehind     int64 // watches that had to wait for a permit: they began far behind
	ProgressAsked int64
	Progress      int64 // answers that moved a watch forward

	ClockCalls  int64
	VerifyCalls int64
	ClockReads  int64 // requests to etcd for both, and for looks: callers share them
	// Disagreements counts answers of one member of etcd that contradict what
	// another one has told.
	Disagreements int64
}

type counters struct {
	leaps, leapKeys, leapBytes                                    atomic.Int64
	lists, keyLists, listRestarts, pages, listedKeys, listedBytes atomic.Int64

	watchesOpen, watches, resumes, compacted, silenced atomic.Int64
	batches, events, eventBytes, fragments, histories  atomic.Int64
	progressAsked, progressSeen                        atomic.Int64
	clockCalls, verifyCalls, clockReads, farBehind     atomic.Int64
	disagreements                                      atomic.Int64
}

// Stats returns the counts as of now.
func (c *Client) Stats() Stats {
	n := &c.count
	return Stats{
		Leaps: n.leaps.Load(), LeapKeys: n.leapKeys.Load(), LeapBytes: n.leapBytes.Load(),
		Lists: n.lists.Load(), KeyLists: n.keyLists.Load(), ListRestarts: n.listRestarts.Load(),
		Pages: n.pages.Load(), ListedKeys: n.listedKeys.Load(), ListedBytes: n.listedBytes.Load(),
		WatchesOpen: n.watchesOpen.Load(), Watches: n.watches.Load(), Resumes: n.resumes.Load(),
		Compacted: n.compacted.Load(), Silenced: n.silenced.Load(),
		Batches: n.batches.Load(), Events: n.events.Load(), EventBytes: n.eventBytes.Load(), Fragments: n.fragments.Load(), Histories: n.histories.Load(), FarBehind: n.farBehind.Load(),
		ProgressAsked: n.progressAsked.Load(), Progress: n.progressSeen.Load(),
		ClockCalls: n.clockCalls.Load(), VerifyCalls: n.verifyCalls.Load(), ClockReads: n.clockReads.Load(),
		Disagreements: n.disagreements.Load(),
	}
}
