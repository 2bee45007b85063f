package clienttest

import (
	"slices"
	"strings"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
)

// Op is one change of one key.
type Op struct {
	Key, Value string
	Delete     bool
}

// Batch has all events of one revision, with previous values.
type Batch struct {
	Revision int64
	Events   []*pb.Event
}

// history has all changes so far. Revisions start at 2, as etcd's. Its batches are
// immutable. The caller locks.
type history struct {
	batches []Batch
	keys    map[string]*pb.KeyValue
	floor   int64 // the oldest available revision
	deletes int64 // the oldest revision from which on deletes are known
}

func (h *history) revision() int64 { return int64(len(h.batches)) + 1 }

// apply makes one revision of ops and returns it. It ignores deletes of keys that do
// not exist, and makes no revision if no operation remains.
func (h *history) apply(ops []Op) int64 {
	b := Batch{Revision: h.revision() + 1}
	for _, op := range ops {
		prev := h.keys[op.Key]
		if op.Delete {
			if prev == nil {
				continue
			}
			delete(h.keys, op.Key)
			b.Events = append(b.Events, &pb.Event{
				Type: pb.EventType_DELETE, Kv: &pb.KeyValue{Key: []byte(op.Key), ModRevision: b.Revision}, PrevKv: prev,
			})
			continue
		}
		kv := &pb.KeyValue{
			Key: []byte(op.Key), Value: []byte(op.Value),
			CreateRevision: b.Revision, ModRevision: b.Revision, Version: 1,
		}
		if prev != nil {
			kv.CreateRevision, kv.Version = prev.GetCreateRevision(), prev.GetVersion()+1
		}
		h.keys[op.Key] = kv
		b.Events = append(b.Events, &pb.Event{Kv: kv, PrevKv: prev})
	}
	if len(b.Events) == 0 {
		return h.revision()
	}
	h.batches = append(h.batches, b)
	return b.Revision
}

// events returns the events of a revision in [start, end).
func (h *history) events(revision int64, start, end string, prev bool) []*pb.Event {
	if revision < 2 {
		return nil // etcd's revision 1 has no events
	}
	var out []*pb.Event
	for _, e := range h.batches[revision-2].Events {
		if !contains(start, end, string(e.GetKv().GetKey())) {
			continue
		}
		if !prev {
			e = &pb.Event{Type: e.GetType(), Kv: e.GetKv()}
		}
		out = append(out, e)
	}
	return out
}

// changes returns the keys of [start, end) that have changed after since, as they are
// at a revision, and those that were deleted.
func (h *history) changes(since, revision int64, start, end string) (changed []*pb.KeyValue, deleted [][]byte) {
	last := map[string]*pb.Event{}
	for _, b := range h.batches[max(since-1, 0) : revision-1] {
		for _, e := range b.Events {
			if key := string(e.GetKv().GetKey()); contains(start, end, key) {
				last[key] = e
			}
		}
	}
	for key, e := range last { // in any order
		if e.GetType() == pb.EventType_DELETE {
			deleted = append(deleted, []byte(key))
		} else {
			changed = append(changed, e.GetKv())
		}
	}
	return changed, deleted
}

// state returns the keys of [start, end) at a revision, in key order.
func (h *history) state(revision int64, start, end string) []*pb.KeyValue {
	keys := map[string]*pb.KeyValue{}
	for _, b := range h.batches {
		if b.Revision > revision {
			break
		}
		for _, e := range b.Events {
			key := string(e.GetKv().GetKey())
			switch {
			case !contains(start, end, key):
			case e.GetType() == pb.EventType_DELETE:
				delete(keys, key)
			default:
				keys[key] = e.GetKv()
			}
		}
	}
	out := make([]*pb.KeyValue, 0, len(keys))
	for _, kv := range keys {
		out = append(out, kv)
	}
	slices.SortFunc(out, func(a, b *pb.KeyValue) int { return strings.Compare(string(a.GetKey()), string(b.GetKey())) })
	return out
}

func contains(start, end, key string) bool { return key >= start && (end == "" || key < end) }

// span decodes a range of etcd's API; false if it is invalid.
func span(key, rangeEnd []byte) (start, end string, ok bool) {
	start, end = string(key), string(rangeEnd)
	switch {
	case start == "":
		return "", "", false
	case end == "":
		return start, start + "\x00", true
	case end == "\x00":
		return start, "", true
	}
	return start, end, end > start
}
