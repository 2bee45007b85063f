package client

import (
	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
)

// KeyValue is one key at one revision. Its bytes are shared with other readers: do not
// change them.
type KeyValue struct {
	// Key is never empty.
	Key []byte
	// Value is empty in a delete and in a keys-only list.
	Value []byte
	// CreateRevision is the revision at which the key was created.
	CreateRevision int64
	// ModRevision is the revision of the key's last change.
	ModRevision int64
	// Version counts the changes since the key was created; 1 for the first.
	Version int64
	// Lease is the lease the key is attached to; 0 for none.
	Lease int64
}

// EventType is the kind of a change.
type EventType uint8

// The types of events.
const (
	// EventPut: the key was created or changed.
	EventPut EventType = iota
	// EventDelete: the key was deleted, by a request or because its lease ended.
	EventDelete
)

// String returns PUT or DELETE.
func (t EventType) String() string {
	if t == EventDelete {
		return "DELETE"
	}
	return "PUT"
}

// Event is one change of one key.
type Event struct {
	Type EventType
	// KV is the key after the change. In a Delete only Key and ModRevision
	// are set.
	KV KeyValue
	// Prev is the key before the change, if [WithPrevKV] is set and the key existed.
	Prev *KeyValue
}

// overhead is the memory cost of an event or key/value besides its bytes.
const overhead = 96

func (kv *KeyValue) size() int { return overhead + len(kv.Key) + len(kv.Value) }

func (e *Event) size() int {
	n := e.KV.size()
	if e.Prev != nil {
		n += e.Prev.size()
	}
	return n
}

func keyValueFrom(p *pb.KeyValue) KeyValue {
	return KeyValue{
		Key: p.GetKey(), Value: p.GetValue(),
		CreateRevision: p.GetCreateRevision(), ModRevision: p.GetModRevision(),
		Version: p.GetVersion(), Lease: p.GetLease(),
	}
}

func eventFrom(p *pb.Event) Event {
	e := Event{KV: keyValueFrom(p.GetKv())}
	if p.GetType() == pb.EventType_DELETE {
		e.Type = EventDelete
	}
	if p.GetPrevKv() != nil {
		prev := keyValueFrom(p.GetPrevKv())
		e.Prev = &prev
	}
	return e
}
