package kv

import (
	"time"
)

// Revision is etcd's clock: it grows by one with every change of the store.
// The first change has revision 2; 0 means "none".
type Revision int64

// EventType is the kind of a change. The values are etcd's.
type EventType uint8

// The types of events.
const (
	Put    EventType = 0
	Delete EventType = 1
)

// String returns PUT or DELETE.
func (t EventType) String() string {
	if t == Delete {
		return "DELETE"
	}
	return "PUT"
}

// Event is one change of one key.
type Event struct {
	Type EventType
	// KV is the key after the change. Of a Delete, only Key and ModRevision are
	// meaningful.
	KV *KeyValue
	// Prev is the key before the change; nil: it did not exist, or is not known.
	Prev *KeyValue
}

// Batch is all events of one revision in one range, in etcd's order. It is
// never split.
type Batch struct {
	Revision Revision
	Events   []Event
	// Received is when this process had the whole batch. It bounds the window in time
	// and measures latency.
	Received time.Time
}

// Size returns the bytes that the batch holds: those of its events, with
// their previous values, and the bookkeeping.
func (b *Batch) Size() int {
	n := 104
	for i := range b.Events {
		e := &b.Events[i]
		n += 24 + e.KV.Size()
		if e.Prev != nil {
			n += e.Prev.Size()
		}
	}
	return n
}

// LacksPrevious reports whether etcd has left out a previous value: it has none from
// before the compact revision.
func (b *Batch) LacksPrevious() bool {
	var put map[string]bool // the keys created in this revision
	for i := range b.Events {
		e := &b.Events[i]
		switch {
		case e.Prev != nil:
		case e.Type == Put && e.KV.Version() > 1:
			return true
		case e.Type == Put:
			if put == nil {
				put = make(map[string]bool)
			}
			put[string(e.KV.Key())] = true
		case !put[string(e.KV.Key())]:
			return true
		}
	}
	return false
}
