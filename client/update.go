package client

import "time"

// UpdateKind is the kind of an [Update].
type UpdateKind uint8

// The kinds of updates.
const (
	// KindBatch: Events are all changes of the range at Revision, in etcd's
	// order.
	KindBatch UpdateKind = iota + 1
	// KindState: KVs are all keys of the range at Revision. Delivered once, first, and
	// only with [WithState].
	KindState
	// KindProgress: everything up to Revision has been delivered. Only with
	// [WithProgress].
	KindProgress
	// KindDelta: the events after From are no longer available one by one. KVs are the
	// keys that have changed since, as they are at Revision, and Deleted the keys that
	// do not exist but may have existed.
	KindDelta
	// KindResync: no node knows the changes, or the history is another one: etcd was
	// restored, or another cluster answers. Then Lineage or Cluster differs, and
	// Revision may be lower than before. KVs are all keys of the range at Revision: no
	// other key is known to exist.
	KindResync
	// KindConflated: as KindDelta, but requested by [WithConflation].
	KindConflated
)

// String returns the kind in lower case.
func (k UpdateKind) String() string {
	switch k {
	case KindBatch:
		return "batch"
	case KindState:
		return "state"
	case KindProgress:
		return "progress"
	case KindDelta:
		return "delta"
	case KindResync:
		return "resync"
	case KindConflated:
		return "conflated"
	}
	return "nothing"
}

// Update is one step of a watch, always whole: a unit (a state, delta, resync or conflated one)
// is returned when its last key has arrived, even if nodes fail in its middle. Revisions strictly
// increase from update to update within one lineage of one cluster. The contents are shared, also
// with other watchers of the client: do not change them. Appending to them is safe.
type Update struct {
	Kind UpdateKind
	// Revision is the watcher's position after the update.
	Revision int64
	// From is the position before the update; only in a delta and a conflated unit.
	From int64
	// Lineage is the history that Revision belongs to, as Cluster counts it.
	Lineage uint64
	Cluster string
	// Events is set in a batch, and not empty.
	Events []Event
	// KVs are the keys of a unit, in key order; there may be none.
	KVs []KeyValue
	// Deleted are keys of a delta or conflated unit, in key order, none of
	// them in KVs.
	Deleted [][]byte
	// FreshAt is a time at which etcd had no newer revision; only in a progress update.
	// The zero time: not known.
	FreshAt time.Time
}

// Position returns the watcher's position after the update.
func (u *Update) Position() Position { return Position{u.Cluster, u.Lineage, u.Revision} }

// Apply brings a copy of the range up to date, for an update of any kind. For a state or
// resync it calls reset first: no key in the copy is then known to exist. It calls put
// for each key that was created or changed, and remove for each key that was deleted;
// events in etcd's order. A key to remove need not be in the copy. Apply stops at the
// first error of a function and returns it: the copy is then partly up to date, and
// applying the same update again completes it.
func (u *Update) Apply(put func(kv KeyValue) error, remove func(key []byte) error, reset func() error) error {
	if u.Kind == KindState || u.Kind == KindResync {
		if err := reset(); err != nil {
			return err
		}
	}
	for i := range u.Events {
		e := &u.Events[i]
		var err error
		if e.Type == EventDelete {
			err = remove(e.KV.Key)
		} else {
			err = put(e.KV)
		}
		if err != nil {
			return err
		}
	}
	for i := range u.KVs {
		if err := put(u.KVs[i]); err != nil {
			return err
		}
	}
	for _, key := range u.Deleted {
		if err := remove(key); err != nil {
			return err
		}
	}
	return nil
}

// size returns the bytes the update holds.
func (u *Update) size() int {
	n := overhead
	for i := range u.Events {
		n += u.Events[i].size()
	}
	for i := range u.KVs {
		n += u.KVs[i].size()
	}
	for _, key := range u.Deleted {
		n += overhead + len(key)
	}
	return n
}

// Units counts units that have arrived whole, and the keys in them.
type Units struct {
	// States were requested by [WithState].
	States, StateKeys int64
	// Deltas have the changes: their keys are the changed and the deleted ones.
	Deltas, DeltaKeys int64
	// Resyncs have the full state: no node knew the difference.
	Resyncs, ResyncKeys int64
	// Conflated units were requested by [WithConflation].
	Conflated, ConflatedKeys int64
}

// add counts an update, if it is a unit.
func (n *Units) add(u *Update) {
	keys := int64(len(u.KVs) + len(u.Deleted))
	switch u.Kind {
	case KindState:
		n.States, n.StateKeys = n.States+1, n.StateKeys+keys
	case KindDelta:
		n.Deltas, n.DeltaKeys = n.Deltas+1, n.DeltaKeys+keys
	case KindResync:
		n.Resyncs, n.ResyncKeys = n.Resyncs+1, n.ResyncKeys+keys
	case KindConflated:
		n.Conflated, n.ConflatedKeys = n.Conflated+1, n.ConflatedKeys+keys
	case KindBatch, KindProgress:
	}
}
