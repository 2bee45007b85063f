package wire

import (
	"bytes"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// Fan encodes events for many watches. What goes to two watches that get the
// same events differs only in the watch's ID, and fields of a message may come
// in any order: so the ID goes first, and all that follows is encoded once and
// shared.
//
// The zero Fan is ready. It keeps what it encoded last; see Forget. Any number of
// goroutines may use it.
type Fan struct {
	used  atomic.Bool
	slots [fanSlots]atomic.Pointer[fanned]
}

// Bounds of what a Fan remembers: the messages of the last revisions, each with
// and without previous values, up to a size. One pass may take some revisions of
// each watch before it comes to the next.
const (
	fanSlots = 32
	fanBytes = 64 << 10
)

// fanned is a message without its recipient. It does not change.
type fanned struct {
	key    fanKey
	events []*kv.Event
	rest   mem.BufferSlice // of bytes that are nobody's to give back
}

// fanKey is what else must be the same for a message to be the same.
type fanKey struct {
	header               Header
	etcd, fragment, prev bool
}

// Recipient is a watch as a Fan's messages name it. The zero Recipient is none.
type Recipient struct{ id mem.Buffer }

// NewRecipient returns a watch of the native API.
func NewRecipient(id int64) Recipient { return recipient(watchID, id) }

// NewEtcdRecipient returns a watch of etcd's API.
func NewEtcdRecipient(id int64) Recipient { return recipient(etcdWatchID, id) }

func recipient(field protowire.Number, id int64) Recipient {
	b := protowire.AppendTag(nil, field, protowire.VarintType)
	return Recipient{id: mem.SliceBuffer(protowire.AppendVarint(b, uint64(id)))} //nolint:gosec // proto's int64
}

// WatchEvents encodes a shardwatch.v1.WatchResponse with events.
func (f *Fan) WatchEvents(to Recipient, revision kv.Revision, fragment bool, events []*kv.Event, withPrev bool) *Encoded {
	return f.message(to, fanKey{header: Header{Revision: revision}, fragment: fragment, prev: withPrev}, events)
}

// EtcdWatchEvents encodes an etcdserverpb.WatchResponse with events.
func (f *Fan) EtcdWatchEvents(to Recipient, h Header, fragment bool, events []*kv.Event, withPrev bool) *Encoded {
	return f.message(to, fanKey{header: h, etcd: true, fragment: fragment, prev: withPrev}, events)
}

// Forget lets go of the bytes that the Fan remembers.
func (f *Fan) Forget() {
	if !f.used.Swap(false) {
		return
	}
	for i := range f.slots {
		f.slots[i].Store(nil)
	}
}

func (f *Fan) message(to Recipient, key fanKey, events []*kv.Event) *Encoded {
	at := 2 * int(key.header.Revision) % fanSlots
	if key.prev {
		at++
	}
	m := f.slots[at].Load()
	// The same events are the same in memory: the window's. What is remembered
	// holds them, so that their place is not another one's meanwhile.
	if m == nil || m.key != key || !slices.Equal(m.events, events) {
		m = &fanned{key: key, rest: key.encode(events)}
		if m.rest.Len() <= fanBytes {
			m.events = slices.Clone(events)
			f.slots[at].Store(m)
			f.used.Store(true)
		}
	}
	var one struct { // nearly all messages are of two buffers
		Encoded
		array [2]mem.Buffer
	}
	one.Buffers = append(append(one.array[:0], to.id), m.rest...)
	return &one.Encoded
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
	// Counting who still reads a pooled buffer would cost each of them more than
	// leaving it to the garbage collector does.
	for i, b := range out {
		if _, plain := b.(mem.SliceBuffer); !plain {
			out[i] = mem.SliceBuffer(bytes.Clone(b.ReadOnlyData()))
			b.Free()
		}
	}
	return out
}
