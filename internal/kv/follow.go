package kv

import "iter"

// FollowRequest asks a source for one range.
type FollowRequest struct {
	// Range is the range to follow.
	Range Range
	// From is the first revision wanted, when the follower has everything
	// below it. 0: the follower has nothing, and the source starts with the
	// state.
	From Revision
	// Lineage is the history From belongs to.
	Lineage uint64
	// Want carries revisions whose progress a caller waits for: the source serves it, and ensures
	// that an UpdateProgress of at least the highest of them comes soon, even when the range is
	// quiet. May be nil.
	Want *Demand
	// Progress takes the revision of an UpdateProgress directly, from any goroutine, and reports
	// whether it has: otherwise the source yields the update. A source calls it only while the
	// follower waits for the next update and has everything up to the revision; no two calls
	// overlap, and none outlasts Follow. So the goroutine that receives the progress of many
	// ranges can report it to all their followers without waking one for each. May be nil.
	Progress func(revision Revision) bool
	// Idle reports whether nothing watches or reads the follower, so that updates may come
	// late. If so, it calls arrived once, when that ends; arrived must not block. May be nil:
	// never.
	Idle func(arrived func()) bool
	// Held yields the key/values that the follower holds, in the order of their
	// keys, and HeldAt is the revision it holds them at. With From 0, when the
	// follower has a state from which it could not resume: a source may answer with
	// the differences from it, see Update.Leap, and finds out by it whether its
	// history is still the follower's. It may be called more than once. May be
	// nil.
	Held   iter.Seq[*KeyValue]
	HeldAt Revision
	// AllowLeap, with another From: a source that no longer has the events since From, but knows
	// the keys changed since, may send those; see Update.Leap.
	AllowLeap bool
	// HistoryFrom, with From 0, is the first revision that is missing in the
	// history that the follower has: a source that can tells what lies between
	// it and the state as UpdateHistory, with a Floor that is not above it, or the
	// newer part of it, with the Floor at which that begins.
	// 0: the follower has none.
	HistoryFrom Revision
}

// UpdateKind is the kind of an Update.
type UpdateKind uint8

// The kinds of updates, in the order in which they may come: with From 0 Begin, State*, History*,
// Tombstones*, Ready, then the live ones in any order; with another From: Begin, Ready, then the
// live ones, or, when the source no longer has the events but knows the keys changed since, a
// Begin with Leap, State*, Ready, then the live ones.
const (
	// UpdateBegin: Revision is that of the state, or From-1; Floor that of the
	// window once the history is in, DeltaFloor that of the tombstones.
	UpdateBegin UpdateKind = iota + 1
	// UpdateState: KVs are a part of the state, in key order; behind a Begin
	// with Leap, the differences, and Gone the keys that no longer exist.
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

// Update is one step of a source. It is a value: the follower may keep all it
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
	// Gone, of a State behind a Leap: keys that the follower may hold and that
	// do not exist at Revision.
	Gone []string
	// DeltaFloor, of a Begin: the oldest revision that deletes are known from,
	// by the tombstones and the history that follow; 0: as Floor.
	DeltaFloor Revision
	Tombstones []Tombstone
}

// Tombstone says that a key was deleted.
type Tombstone struct {
	Key string
	// Revision is that of the delete, or a later one at which the key was found
	// missing. No watcher at or after it holds the previous key.
	Revision Revision
}

// Size returns the bytes that the tombstone holds.
func (t *Tombstone) Size() int { return 24 + len(t.Key) }
