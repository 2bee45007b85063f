package kv

import "time"

// FollowRequest asks a source for one range.
type FollowRequest struct {
	// Range is what to follow.
	Range Range
	// From is the first revision wanted, when the follower has everything
	// below it. 0: the follower has nothing, and the source starts with the
	// state.
	From Revision
	// Lineage is the history From belongs to.
	Lineage uint64
	// Want carries revisions whose progress somebody waits for: the source
	// sees to it that an UpdateProgress of at least the highest of them comes
	// soon, even when the range is quiet. May be nil.
	Want <-chan Revision
}

// UpdateKind says what an Update is.
type UpdateKind uint8

// The kinds of updates, in the order in which they may come: with From 0
// Begin, State*, History*, Ready, then the live ones in any order; with
// another From: Begin, Ready, then the live ones.
const (
	// UpdateBegin: Revision is that of the state, or From-1; Floor that of the
	// window once the history is in.
	UpdateBegin UpdateKind = iota + 1
	// UpdateState: KVs are a part of the state, in key order.
	UpdateState
	// UpdateHistory: Batch is one revision at or below the state's, the oldest
	// first. It does not change the state.
	UpdateHistory
	// UpdateReady: state and history are complete.
	UpdateReady
	// UpdateBatch: Batch is the next revision that touches the range.
	UpdateBatch
	// UpdateProgress: everything up to Revision has been delivered. When
	// FreshAt is set, the data is not older than that.
	UpdateProgress
)

// Update is one step of a source. It is a value: the follower may keep all it
// points to.
type Update struct {
	Kind     UpdateKind
	Revision Revision
	Floor    Revision
	KVs      []*KeyValue
	Batch    Batch
	FreshAt  time.Time
}
