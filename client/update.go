package client

import "time"

// UpdateKind says what an [Update] is.
type UpdateKind uint8

// The kinds of updates.
const (
	// KindBatch: Events are all changes of the range at Revision, in etcd's
	// order.
	KindBatch UpdateKind = iota + 1
	// KindState: KVs are all keys of the range at Revision. Comes once, first,
	// and only with [WithState].
	KindState
	// KindProgress: everything up to Revision has been delivered. Only with
	// [WithProgress].
	KindProgress
	// KindDelta: the events behind From are no longer to be had one by one. KVs
	// are the keys that have changed since, as they are at Revision, and Deleted
	// those that do not exist and may have existed.
	KindDelta
	// KindResync: no node knows what has changed, or the history is another one:
	// etcd was restored, or another cluster answers. Then Lineage or Cluster is
	// another one, and Revision may be lower than before.
	// KVs are all keys of the range at Revision: what was known of any other key
	// no longer holds.
	KindResync
	// KindConflated: as KindDelta, because [WithConflation] asked for it.
	KindConflated
)

// String returns the kind in small letters.
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

// Update is one step of a watch, always whole: a unit (a state, delta, resync
// or conflated one) is handed out when its last key has arrived, so that none
// is ever seen torn, whatever happens to nodes in its middle. Revisions strictly
// increase from each to the next within one lineage of one cluster. Its contents are shared, with
// other watchers of the client, too: do not change them. Appending to them is
// safe.
type Update struct {
	Kind UpdateKind
	// Revision is where the watcher stands after the update.
	Revision int64
	// From is where it stood before; only in a delta and a conflated unit.
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
	// FreshAt, of a progress, is a time at which etcd had nothing newer: what
	// the watcher has is not older than that. The zero time: not known.
	FreshAt time.Time
}

// Position returns where the watcher stands after the update.
func (u *Update) Position() Position { return Position{u.Cluster, u.Lineage, u.Revision} }

// Apply brings a copy of the range up to date, whatever the kind of the update. For a
// state and a resync it calls reset first: no key that the copy has so far is known to
// exist. Then it calls put for each key that was created or changed, and remove for each
// key that was deleted, events in etcd's order. A key to remove need not be in the copy.
// Apply returns the first error of a function, and calls none after it: the copy is then
// brought up to date in part, and applying the same update again completes it.
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
	// States were asked for by [WithState].
	States, StateKeys int64
	// Deltas tell what changed: their keys are those that did, changed and
	// deleted.
	Deltas, DeltaKeys int64
	// Resyncs send the whole state: no node knew the difference.
	Resyncs, ResyncKeys int64
	// Conflated units were asked for by [WithConflation].
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
