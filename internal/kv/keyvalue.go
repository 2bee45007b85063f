package kv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/shardwatch/shardwatch/internal/protofields"
)

// Field numbers of etcd's mvccpb.KeyValue (api/mvccpb/kv.proto). They are repeated here
// because the hot path encodes and decodes without reflection; a test compares them
// with etcd's generated code.
const (
	fieldKey            = 1
	fieldCreateRevision = 2
	fieldModRevision    = 3
	fieldVersion        = 4
	fieldValue          = 5
	fieldLease          = 6
)

// KeyValue is one key at one revision. It is immutable.
//
// KeyValues are most of a node's memory, so a KeyValue stores little besides the bytes:
// rarely used fields are decoded at each access.
type KeyValue struct {
	// enc is the wire form, mvccpb.KeyValue, as encoded by NewKeyValue: only known and
	// nonzero fields, in order. So equal key/values have equal bytes, whichever node
	// encoded them.
	enc         []byte
	modRevision Revision
}

// Fields are the fields of a KeyValue.
type Fields struct {
	Key, Value     []byte
	CreateRevision Revision
	ModRevision    Revision
	Version, Lease int64
}

// NewKeyValue encodes f. It copies key and value.
func NewKeyValue(f Fields) *KeyValue {
	b := make([]byte, 0, f.size())
	b = appendBytes(b, fieldKey, f.Key)
	b = appendInt(b, fieldCreateRevision, int64(f.CreateRevision))
	b = appendInt(b, fieldModRevision, int64(f.ModRevision))
	b = appendInt(b, fieldVersion, f.Version)
	b = appendBytes(b, fieldValue, f.Value)
	b = appendInt(b, fieldLease, f.Lease)
	return &KeyValue{enc: b, modRevision: f.ModRevision}
}

// size returns the length of the encoding.
func (f *Fields) size() int {
	return sizeBytes(f.Key) + sizeInt(int64(f.CreateRevision)) + sizeInt(int64(f.ModRevision)) +
		sizeInt(f.Version) + sizeBytes(f.Value) + sizeInt(f.Lease)
}

func sizeBytes(v []byte) int {
	if len(v) == 0 {
		return 0
	}
	return 1 + protowire.SizeBytes(len(v))
}

func sizeInt(v int64) int {
	if v == 0 {
		return 0
	}
	return 1 + protowire.SizeVarint(uint64(v)) //nolint:gosec // proto's int64 is two's complement
}

func appendBytes(b []byte, field protowire.Number, v []byte) []byte {
	if len(v) == 0 {
		return b
	}
	b = protowire.AppendTag(b, field, protowire.BytesType)
	return protowire.AppendBytes(b, v)
}

func appendInt(b []byte, field protowire.Number, v int64) []byte {
	if v == 0 {
		return b
	}
	b = protowire.AppendTag(b, field, protowire.VarintType)
	return protowire.AppendVarint(b, uint64(v)) //nolint:gosec // proto's int64 is two's complement
}

// ErrMalformed reports that bytes are not an encoded KeyValue or Event.
var ErrMalformed = errors.New("malformed key/value encoding")

// DecodeKeyValue reads the wire form of an mvccpb.KeyValue. The result keeps b if it is
// encoded like NewKeyValue's; b must not change afterwards. Unknown fields are dropped.
func DecodeKeyValue(b []byte) (*KeyValue, error) {
	if len(b) > math.MaxInt32 {
		return nil, fmt.Errorf("%w: %d bytes", ErrMalformed, len(b))
	}
	var f Fields
	inOrder, last := true, protowire.Number(0)
	var x protofields.Field
	for {
		more, err := x.Next(b, ErrMalformed)
		if err != nil {
			return nil, err
		}
		if !more {
			break
		}
		inOrder, last = inOrder && x.Number > last, x.Number
		i := int64(x.Uint) //nolint:gosec // proto's int64 is two's complement
		switch {
		case x.Type == protowire.BytesType && x.Number == fieldKey:
			f.Key = x.Bytes
		case x.Type == protowire.BytesType && x.Number == fieldValue:
			f.Value = x.Bytes
		case x.Type != protowire.VarintType:
		case x.Number == fieldCreateRevision:
			f.CreateRevision = Revision(i)
		case x.Number == fieldModRevision:
			f.ModRevision = Revision(i)
		case x.Number == fieldVersion:
			f.Version = i
		case x.Number == fieldLease:
			f.Lease = i
		}
	}
	if !inOrder || f.size() != len(b) {
		return NewKeyValue(f), nil
	}
	return &KeyValue{enc: b, modRevision: f.ModRevision}, nil
}

// bytesAt returns the bounds of the value of a bytes field that may begin at at.
// Without the field both are at.
func (k *KeyValue) bytesAt(at int, field byte) (from, to int) {
	if at >= len(k.enc) || k.enc[at] != field<<3|byte(protowire.BytesType) {
		return at, at
	}
	n, size := binary.Uvarint(k.enc[at+1:])
	from = at + 1 + size
	return from, from + int(n) //nolint:gosec // a length within enc
}

// intAt returns the value of a varint field that may begin at at, and the offset of the
// next field.
func (k *KeyValue) intAt(at int, field byte) (v int64, next int) {
	if at >= len(k.enc) || k.enc[at] != field<<3|byte(protowire.VarintType) {
		return 0, at
	}
	u, size := binary.Uvarint(k.enc[at+1:])
	return int64(u), at + 1 + size //nolint:gosec // proto's int64 is two's complement
}

// Key returns the key. The caller must not change it.
func (k *KeyValue) Key() []byte {
	from, to := k.bytesAt(0, fieldKey)
	return k.enc[from:to:to]
}

// Value returns the value. The caller must not change it.
func (k *KeyValue) Value() []byte {
	_, at := k.head()
	from, to := k.bytesAt(at, fieldValue)
	return k.enc[from:to:to]
}

// CreateRevision returns the revision at which the key was created.
func (k *KeyValue) CreateRevision() Revision {
	_, at := k.bytesAt(0, fieldKey)
	v, _ := k.intAt(at, fieldCreateRevision)
	return Revision(v)
}

// ModRevision returns the revision of the key's last change.
func (k *KeyValue) ModRevision() Revision { return k.modRevision }

// head returns the version and the offset of the byte after it.
func (k *KeyValue) head() (version int64, next int) {
	_, at := k.bytesAt(0, fieldKey)
	_, at = k.intAt(at, fieldCreateRevision)
	_, at = k.intAt(at, fieldModRevision)
	return k.intAt(at, fieldVersion)
}

// Version returns the number of changes since the key was created.
func (k *KeyValue) Version() int64 {
	v, _ := k.head()
	return v
}

// Lease returns the key's lease; 0: none.
func (k *KeyValue) Lease() int64 {
	_, at := k.head()
	_, at = k.bytesAt(at, fieldValue)
	v, _ := k.intAt(at, fieldLease)
	return v
}

// Encoded returns the wire form, that of mvccpb.KeyValue. The caller must not
// change it.
func (k *KeyValue) Encoded() []byte { return k.enc }

// Size returns the memory of the key/value in bytes.
func (k *KeyValue) Size() int { return 32 + cap(k.enc) }

// Field numbers of etcd's mvccpb.Event.
const (
	fieldEventType = 1
	fieldEventKV   = 2
	fieldEventPrev = 3
)

// EventSize returns the length of the event's wire form (mvccpb.Event), with
// its previous value when withPrev.
func EventSize(e *Event, withPrev bool) int {
	n := 0
	if e.Type != Put {
		n = 2
	}
	n += 1 + protowire.SizeBytes(len(e.KV.enc))
	if withPrev && e.Prev != nil {
		n += 1 + protowire.SizeBytes(len(e.Prev.enc))
	}
	return n
}

// AppendEvent appends the event's wire form (mvccpb.Event) to b, with its
// previous value when withPrev.
func AppendEvent(b []byte, e *Event, withPrev bool) []byte {
	if e.Type != Put {
		b = append(b, fieldEventType<<3, byte(e.Type))
	}
	b = append(b, fieldEventKV<<3|2)
	b = protowire.AppendBytes(b, e.KV.enc)
	if withPrev && e.Prev != nil {
		b = append(b, fieldEventPrev<<3|2)
		b = protowire.AppendBytes(b, e.Prev.enc)
	}
	return b
}

// DecodeEvent reads the wire form of an mvccpb.Event. The result keeps b.
func DecodeEvent(b []byte) (Event, error) {
	var e Event
	var x protofields.Field
	for {
		more, err := x.Next(b, ErrMalformed)
		if err != nil {
			return Event{}, fmt.Errorf("event: %w", err)
		}
		if !more {
			break
		}
		switch {
		case x.Type == protowire.VarintType && x.Number == fieldEventType:
			if x.Uint > uint64(Delete) {
				return Event{}, fmt.Errorf("%w: event type", ErrMalformed)
			}
			e.Type = EventType(x.Uint)
		case x.Type == protowire.BytesType && x.Number == fieldEventKV:
			e.KV, err = DecodeKeyValue(x.Bytes)
		case x.Type == protowire.BytesType && x.Number == fieldEventPrev:
			e.Prev, err = DecodeKeyValue(x.Bytes)
		}
		if err != nil {
			return Event{}, err
		}
	}
	if e.KV == nil || len(e.KV.Key()) == 0 {
		return Event{}, fmt.Errorf("%w: event without a key", ErrMalformed)
	}
	return e, nil
}

// AppendEventHead appends the bytes before the key/value's encoding in the event's wire
// form. Together with the encodings themselves and AppendPrevHead they are the bytes of
// AppendEvent, without a copy of the encodings.
func AppendEventHead(b []byte, e *Event) []byte {
	if e.Type != Put {
		b = append(b, fieldEventType<<3, byte(e.Type))
	}
	b = append(b, fieldEventKV<<3|2)
	return protowire.AppendVarint(b, uint64(len(e.KV.enc)))
}

// AppendPrevHead appends the bytes before the previous value's encoding in an event's
// wire form.
func AppendPrevHead(b []byte, prev *KeyValue) []byte {
	b = append(b, fieldEventPrev<<3|2)
	return protowire.AppendVarint(b, uint64(len(prev.enc)))
}
