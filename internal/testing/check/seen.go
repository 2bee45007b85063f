package check

import (
	"fmt"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// Watch is the request of a watcher.
type Watch struct {
	// Name identifies the watcher to people.
	Name  string
	Range kv.Range
	// Start is the first requested revision; 0: the first OpCreated or OpState
	// has the start.
	Start kv.Revision
	// Prev: the watcher asked for previous values.
	Prev bool
	// NoPuts and NoDeletes: the watcher asked to omit these.
	NoPuts, NoDeletes bool
	// Merged: the watch covers several shards. The order of the events within
	// a revision is then not promised: each shard has its own etcd watch, and
	// an event does not carry its position among the others.
	Merged bool
}

// wants reports whether the watcher asked for events of a type.
func (w *Watch) wants(t kv.EventType) bool {
	if t == kv.Delete {
		return !w.NoDeletes
	}
	return !w.NoPuts
}

// events returns the events of rev that the watcher must see, in etcd's order.
func (w *Watch) events(h *History, rev kv.Revision) []Event {
	all := h.Events(w.Range, rev)
	if !w.NoPuts && !w.NoDeletes {
		return all
	}
	var out []Event
	for _, e := range all {
		if w.wants(e.Type) {
			out = append(out, e)
		}
	}
	return out
}

// touching returns the revisions in (after, upTo] with events for the watcher.
func (w *Watch) touching(h *History, after, upTo kv.Revision) []kv.Revision {
	all := h.Touching(w.Range, after, upTo)
	if !w.NoPuts && !w.NoDeletes {
		return all
	}
	var out []kv.Revision
	for _, rev := range all {
		if len(w.events(h, rev)) > 0 {
			out = append(out, rev)
		}
	}
	return out
}

// OpKind is the kind of an Op.
type OpKind uint8

// The kinds of operations.
const (
	// OpCreated: everything after Revision will be delivered.
	OpCreated OpKind = iota + 1
	// OpBatch: Events of Revision.
	OpBatch
	// OpProgress: everything up to Revision has been delivered.
	OpProgress
	// OpState: Items are the whole state of the range at Revision, and the
	// position moves there.
	OpState
	// OpResumed: the watch was broken and has resumed, on Node; Revision is the
	// first requested revision.
	OpResumed
	// OpEnded: the watch has ended; no operation follows.
	OpEnded
	// OpDelta: Items and Deleted turn the state at From into the state at Revision, which is the
	// new position.
	OpDelta
)

// String returns the kind for people.
func (k OpKind) String() string {
	switch k {
	case OpCreated:
		return "created"
	case OpBatch:
		return "batch"
	case OpProgress:
		return "progress"
	case OpState:
		return "state"
	case OpResumed:
		return "resumed"
	case OpEnded:
		return "ended"
	case OpDelta:
		return "delta"
	}
	return fmt.Sprintf("OpKind(%d)", k)
}

// Op is one observation of a watcher.
type Op struct {
	Kind     OpKind
	Revision kv.Revision
	Events   []Event
	Items    []Item
	Node     string
	// From and Deleted belong to a delta: its start revision, and the keys that
	// no longer exist.
	From    kv.Revision
	Deleted []string
	// Forgetful: previous values may be missing, because the store has compacted
	// the revision.
	Forgetful bool
}

// Seen is a watcher's request with its observations.
type Seen struct {
	Watch
	Ops []Op
	// Until is a revision that the watcher was given the time to reach; every
	// event up to it must be there. 0: unknown.
	Until kv.Revision
}
