package client

// UpdateKind says what an [Update] is.
type UpdateKind uint8

// The kinds of updates.
const (
	// KindBatch: Events are all changes of the range at Revision, in etcd's
	// order.
	KindBatch UpdateKind = iota + 1
	// KindState: KVs are all keys of the range at Revision, in key order. It
	// replaces whatever was known. Comes once, first, and only with
	// [WithState].
	KindState
	// KindProgress: everything up to Revision has been delivered. Only with
	// [WithProgress].
	KindProgress
)

// Update is one step of a watch. Revisions strictly increase from each to the
// next. Its contents are shared: do not change them.
type Update struct {
	Kind UpdateKind
	// Revision is where the watcher stands after the update.
	Revision int64
	// Lineage is the history the revision belongs to.
	Lineage uint64
	// Events is set in a batch, and not empty.
	Events []Event
	// KVs is set in a state, unless the range was empty.
	KVs []KeyValue
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
	return n
}
