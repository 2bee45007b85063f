package kv

import "iter"

// FollowRequest asks a source for one range.
type FollowRequest struct {
	// Range is the range to follow.
	Range Range
	// From is the first requested revision; the follower has everything below it. 0:
	// the follower has nothing, and the source starts with the state.
	From Revision
	// Lineage is the history of From.
	Lineage uint64
	// Want carries revisions whose progress a caller waits for: the source serves it, and ensures
	// that an UpdateProgress of at least the highest of them comes soon, even when the range is
	// quiet. May be nil.
	Want *Demand
	// Progress takes the revision of an UpdateProgress directly, from any goroutine, and reports
	// whether it has: otherwise the source yields the update. A source calls it only while the
	// follower waits for the next update and has everything up to the revision; no two calls
	// overlap, and none outlasts Follow. So one goroutine that receives the progress of many
	// ranges can report it to all followers without waking a goroutine for each. May be nil.
	Progress func(revision Revision) bool
	// Idle reports whether nothing watches or reads the follower, so that updates may come
	// late. If so, it calls arrived once, when that ends; arrived must not block. May be nil:
	// never.
	Idle func(arrived func()) bool
	// Held yields the key/values that the follower holds, in the order of their keys,
	// and HeldAt is their revision. They are set with From 0, when the follower has a
	// state from which it could not resume: a source may answer with the differences
	// from it, see Update.Leap, and checks against it whether its history is still the
	// follower's. Held may be called more than once. May be nil.
	Held   iter.Seq[*KeyValue]
	HeldAt Revision
	// AllowLeap, with another From: a source that no longer has the events since From, but knows
	// the keys changed since, may send those; see Update.Leap.
	AllowLeap bool
	// HistoryFrom, with From 0, is the first missing revision of the follower's
	// history. If it can, a source sends the events from there up to the state as
	// UpdateHistory, with a Floor that is not above HistoryFrom, or the newer part of
	// them, with the Floor at which that begins. 0: the follower has no history.
	HistoryFrom Revision
}

// UpdateKind is the kind of an Update.
type UpdateKind uint8

// The kinds of updates, in the order in which they may come: with From 0 Begin, State*, History*,
// Tombstones*, Ready, then the live ones in any order; with another From: Begin, Ready, then the
// live ones, or, when the source no longer has the events but knows the keys changed since, a
// Begin with Leap, State*, Ready, then the live ones.
const (
	// UpdateBegin: Revision is the revision of the state, or From-1; Floor is the
	// window's floor once the history is complete, DeltaFloor that of the tombstones.
	UpdateBegin UpdateKind = iota + 1
	// UpdateState: KVs are a part of the state, in key order; after a Begin with Leap,
	// they are the differences, and Gone the keys that no longer exist.
	UpdateState
	// UpdateHistory: Batch is one revision at or below the state's, the oldest
	// first. It does not change the state.
	UpdateHistory
	// UpdateTombstones: Tombstones are deletes at or below the state's revision,
	// the oldest first.
	UpdateTombstones
	// UpdateReady: state and history are complete.
	UpdateReady
	// UpdateBatch: Batch is the next revision that touches the range.
	UpdateBatch
	// UpdateProgress: everything up to Revision has been delivered.
	UpdateProgress
)

// Update is one step of a source. It is a value: the follower may keep everything it
// points to.
type Update struct {
	Kind     UpdateKind
	Revision Revision
	Floor    Revision
	KVs      []*KeyValue
	Batch    Batch
	// Leap, of a Begin: the updates after it are not a whole state but the
	// differences from the follower's.
	Leap bool
	// Gone, of a State after a Leap: keys that the follower may hold and that do not
	// exist at Revision.
	Gone []string
	// DeltaFloor, of a Begin: the oldest revision from which all deletes are known, by
	// the tombstones and the history that follow; 0: same as Floor.
	DeltaFloor Revision
	Tombstones []Tombstone
}

// Tombstone is the record of a deleted key.
type Tombstone struct {
	Key string
	// Revision is the revision of the delete, or a later one at which the key was found
	// missing. No watcher at or after it holds the previous key.
	Revision Revision
}

// Size returns the bytes that the tombstone holds.
func (t *Tombstone) Size() int { return 24 + len(t.Key) }
