package wire

import (
	"bytes"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// Fan encodes events for many watches. The messages of two watches that get the same events differ
// only in the watch's ID, or the list of IDs, and fields of a message may come in any order. So
// the ID goes first, and the rest is encoded once and shared.
//
// The zero Fan is ready to use. It keeps its latest encodings. Any number of goroutines may use it.
type Fan struct {
	slots [fanSlots]atomic.Pointer[Shared]
}

// Bounds of the encodings that a Fan keeps: the messages of the last revisions, of both APIs, each with
// and without previous values, alone and with revisions before it, up to a size. A pump sends several
// revisions of one watch before it serves the next watch, and pumps are at different revisions.
const (
	fanSlots = 8 * 128
	fanBytes = 32 << 10
)

// Shared is a message without its recipient. It does not change.
type Shared struct {
	key    fanKey
	events []*kv.Event
	rest   mem.BufferSlice // not pooled
	size   int
}

// Size returns the bytes of the message without its recipient.
func (m *Shared) Size() int { return m.size }

// SizeTo returns the bytes of the message to a recipient.
func (m *Shared) SizeTo(to Recipient) int { return len(to.id) + m.size }

// Rest returns the message without its recipient, which must be sent first. It is
// shared, and must not be changed.
func (m *Shared) Rest() mem.BufferSlice { return m.rest }

// To returns the message to a recipient.
func (m *Shared) To(to Recipient) *Encoded {
	var one struct { // nearly all messages have two buffers
		Encoded
		array [2]mem.Buffer
	}
	one.Buffers = append(append(one.array[:0], mem.SliceBuffer(to.id)), m.rest...)
	return &one.Encoded
}

// fanKey has the properties other than events that must be equal for equal messages.
type fanKey struct {
	header               Header
	etcd, fragment, prev bool
}

// Recipient is the encoded receiver of a Fan's message. The zero Recipient is none.
type Recipient struct{ id []byte }

// Bytes returns the recipient's encoding. It must not be changed.
func (r Recipient) Bytes() []byte { return r.id }

// NewRecipient returns the recipient for a watch of the native API.
func NewRecipient(id int64) Recipient { return recipient(watchID, id) }

// NewEtcdRecipient returns the recipient for a watch of etcd's API.
func NewEtcdRecipient(id int64) Recipient { return recipient(etcdWatchID, id) }

func recipient(field protowire.Number, id int64) Recipient {
	return Recipient{id: appendRecipient(nil, field, id)}
}

// MaxRecipient is the largest number of bytes that AppendRecipient appends.
const MaxRecipient = 1 + 10

// RecipientSize returns the number of bytes that AppendRecipient appends.
func RecipientSize(id int64) int { return 1 + protowire.SizeVarint(uint64(id)) } //nolint:gosec // proto's int64

// Recipient returns the recipient for a watch of the message's API.
func (m *Shared) Recipient(id int64) Recipient { return Recipient{id: m.AppendRecipient(nil, id)} }

// AppendRecipient appends the encoded recipient for a watch of the message's API.
func (m *Shared) AppendRecipient(b []byte, id int64) []byte {
	if m.key.etcd {
		return appendRecipient(b, etcdWatchID, id)
	}
	return appendRecipient(b, watchID, id)
}

func appendRecipient(b []byte, field protowire.Number, id int64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), uint64(id)) //nolint:gosec // proto's int64
}

// WatchEvents encodes a shardwatch.v1.WatchResponse with events.
func (f *Fan) WatchEvents(to Recipient, revision kv.Revision, fragment bool, events []*kv.Event, withPrev bool) *Encoded {
	return f.WatchShared(revision, fragment, events, withPrev).To(to)
}

// WatchShared encodes a shardwatch.v1.WatchResponse with events, for any recipient.
func (f *Fan) WatchShared(revision kv.Revision, fragment bool, events []*kv.Event, withPrev bool) *Shared {
	return f.message(fanKey{header: Header{Revision: revision}, fragment: fragment, prev: withPrev}, events)
}

// EtcdWatchEvents encodes an etcdserverpb.WatchResponse with events.
func (f *Fan) EtcdWatchEvents(to Recipient, h Header, fragment bool, events []*kv.Event, withPrev bool) *Encoded {
	return f.EtcdShared(h, fragment, events, withPrev).To(to)
}

// EtcdShared encodes an etcdserverpb.WatchResponse with events, for any watch. They may
// belong to several revisions; the header has the last one.
func (f *Fan) EtcdShared(h Header, fragment bool, events []*kv.Event, withPrev bool) *Shared {
	return f.message(fanKey{header: h, etcd: true, fragment: fragment, prev: withPrev}, events)
}

func (f *Fan) message(key fanKey, events []*kv.Event) *Shared {
	at := 8 * int(key.header.Revision) % fanSlots
	if key.prev {
		at++
	}
	if key.etcd {
		at += 2
	}
	if len(events) > 0 && events[0].KV.ModRevision() != key.header.Revision {
		at += 4
	}
	m := f.slots[at].Load()
	// Events are compared by address: equal events are the same objects in the window. The
	// slot refers to its events, so their memory is not reused meanwhile.
	if m == nil || m.key != key || !slices.Equal(m.events, events) {
		m = &Shared{key: key, rest: key.encode(events)}
		m.size = m.rest.Len()
		if m.size <= fanBytes {
			m.events = slices.Clone(events)
			f.slots[at].Store(m)
		}
	}
	return m
}

// encode returns the message without its recipient.
func (k *fanKey) encode(events []*kv.Event) mem.BufferSlice {
	var m message
	if k.etcd {
		m.etcdHeader(k.header)
		m.flag(etcdWatchFragment, k.fragment)
	} else {
		m.varint(watchRevision, uint64(k.header.Revision)) //nolint:gosec // proto's int64
		m.flag(watchFragment, k.fragment)
	}
	for _, e := range events {
		m.event(e, k.prev)
	}
	out := m.done().Buffers
	// A reader count for a pooled buffer would cost each reader more than leaving the
	// buffer to the garbage collector.
	for i, b := range out {
		if _, plain := b.(mem.SliceBuffer); !plain {
			out[i] = mem.SliceBuffer(bytes.Clone(b.ReadOnlyData()))
			b.Free()
		}
	}
	return out
}
