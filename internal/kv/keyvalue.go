package kv

import (
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of etcd's mvccpb.KeyValue (api/mvccpb/kv.proto). They are
// written here a second time because the hot path encodes and decodes without
// reflection; a test holds them against etcd's own generated code.
const (
	fieldKey            = 1
	fieldCreateRevision = 2
	fieldModRevision    = 3
	fieldVersion        = 4
	fieldValue          = 5
	fieldLease          = 6
)

// KeyValue is one key at one revision. It is immutable.
type KeyValue struct {
	enc            []byte // wire form, mvccpb.KeyValue
	keyAt, keyLen  uint32 // the key within enc
	valAt, valLen  uint32 // the value within enc
	createRevision Revision
	modRevision    Revision
	version        int64
	lease          int64
}

// Fields are what a KeyValue is built from.
type Fields struct {
	Key, Value     []byte
	CreateRevision Revision
	ModRevision    Revision
	Version, Lease int64
}

// NewKeyValue encodes f. It copies key and value.
func NewKeyValue(f Fields) *KeyValue {
	n := 2*(1+10) + len(f.Key) + len(f.Value) + 4*(1+10)
	b := make([]byte, 0, n)
	k := &KeyValue{
		createRevision: f.CreateRevision, modRevision: f.ModRevision, version: f.Version, lease: f.Lease,
		keyLen: uint32(len(f.Key)), valLen: uint32(len(f.Value)), //nolint:gosec // etcd bounds a request to far below 4 GiB
	}
	if len(f.Key) > 0 {
		b = protowire.AppendTag(b, fieldKey, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(len(f.Key)))
		k.keyAt = uint32(len(b)) //nolint:gosec // as above
		b = append(b, f.Key...)
	}
	b = appendInt(b, fieldCreateRevision, int64(f.CreateRevision))
	b = appendInt(b, fieldModRevision, int64(f.ModRevision))
	b = appendInt(b, fieldVersion, f.Version)
	if len(f.Value) > 0 {
		b = protowire.AppendTag(b, fieldValue, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(len(f.Value)))
		k.valAt = uint32(len(b)) //nolint:gosec // as above
		b = append(b, f.Value...)
	}
	b = appendInt(b, fieldLease, f.Lease)
	if cap(b)-len(b) > 32 { // give the slack back: most of the heap is these
		b = append(make([]byte, 0, len(b)), b...)
	}
	k.enc = b
	return k
}

func appendInt(b []byte, field protowire.Number, v int64) []byte {
	if v == 0 {
		return b
	}
	b = protowire.AppendTag(b, field, protowire.VarintType)
	return protowire.AppendVarint(b, uint64(v)) //nolint:gosec // proto's int64 is two's complement
}

// ErrMalformed says that bytes are not an encoded KeyValue or Event.
var ErrMalformed = errors.New("malformed key/value encoding")

// DecodeKeyValue reads the wire form of an mvccpb.KeyValue. The result keeps
// b; nobody may change it afterwards. Unknown fields are kept in the bytes
// and otherwise passed over.
func DecodeKeyValue(b []byte) (*KeyValue, error) {
	if len(b) > math.MaxInt32 {
		return nil, fmt.Errorf("%w: %d bytes", ErrMalformed, len(b))
	}
	k := &KeyValue{enc: b}
	for at := 0; at < len(b); {
		num, typ, n := protowire.ConsumeTag(b[at:])
		if n < 0 {
			return nil, fmt.Errorf("%w: tag at %d: %w", ErrMalformed, at, protowire.ParseError(n))
		}
		at += n
		switch {
		case typ == protowire.BytesType && (num == fieldKey || num == fieldValue):
			v, n := protowire.ConsumeBytes(b[at:])
			if n < 0 {
				return nil, fmt.Errorf("%w: field %d: %w", ErrMalformed, num, protowire.ParseError(n))
			}
			at += n
			start, length := uint32(at-len(v)), uint32(len(v)) //nolint:gosec // bounded above
			if num == fieldKey {
				k.keyAt, k.keyLen = start, length
			} else {
				k.valAt, k.valLen = start, length
			}
		case typ == protowire.VarintType && num >= fieldCreateRevision && num <= fieldLease:
			v, n := protowire.ConsumeVarint(b[at:])
			if n < 0 {
				return nil, fmt.Errorf("%w: field %d: %w", ErrMalformed, num, protowire.ParseError(n))
			}
			at += n
			i := int64(v) //nolint:gosec // proto's int64 is two's complement
			switch num {
			case fieldCreateRevision:
				k.createRevision = Revision(i)
			case fieldModRevision:
				k.modRevision = Revision(i)
			case fieldVersion:
				k.version = i
			case fieldLease:
				k.lease = i
			}
		default:
			n := protowire.ConsumeFieldValue(num, typ, b[at:])
			if n < 0 {
				return nil, fmt.Errorf("%w: field %d: %w", ErrMalformed, num, protowire.ParseError(n))
			}
			at += n
		}
	}
	return k, nil
}

// Key returns the key. The caller must not change it.
func (k *KeyValue) Key() []byte { return k.enc[k.keyAt : k.keyAt+k.keyLen : k.keyAt+k.keyLen] }

// Value returns the value. The caller must not change it.
func (k *KeyValue) Value() []byte { return k.enc[k.valAt : k.valAt+k.valLen : k.valAt+k.valLen] }

// CreateRevision returns the revision at which the key was created.
func (k *KeyValue) CreateRevision() Revision { return k.createRevision }

// ModRevision returns the revision of the key's last change.
func (k *KeyValue) ModRevision() Revision { return k.modRevision }

// Version returns the number of changes since the key was created.
func (k *KeyValue) Version() int64 { return k.version }

// Lease returns the lease the key is attached to; 0 for none.
func (k *KeyValue) Lease() int64 { return k.lease }

// Encoded returns the wire form, that of mvccpb.KeyValue. The caller must not
// change it.
func (k *KeyValue) Encoded() []byte { return k.enc }

// Size returns the bytes the key/value holds in memory.
func (k *KeyValue) Size() int { return 80 + cap(k.enc) }

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
	for at := 0; at < len(b); {
		num, typ, n := protowire.ConsumeTag(b[at:])
		if n < 0 {
			return Event{}, fmt.Errorf("%w: event tag at %d: %w", ErrMalformed, at, protowire.ParseError(n))
		}
		at += n
		switch {
		case num == fieldEventType && typ == protowire.VarintType:
			v, n := protowire.ConsumeVarint(b[at:])
			if n < 0 || v > uint64(Delete) {
				return Event{}, fmt.Errorf("%w: event type", ErrMalformed)
			}
			at += n
			e.Type = EventType(v)
		case (num == fieldEventKV || num == fieldEventPrev) && typ == protowire.BytesType:
			v, n := protowire.ConsumeBytes(b[at:])
			if n < 0 {
				return Event{}, fmt.Errorf("%w: event field %d: %w", ErrMalformed, num, protowire.ParseError(n))
			}
			at += n
			k, err := DecodeKeyValue(v[:len(v):len(v)])
			if err != nil {
				return Event{}, err
			}
			if num == fieldEventKV {
				e.KV = k
			} else {
				e.Prev = k
			}
		default:
			n := protowire.ConsumeFieldValue(num, typ, b[at:])
			if n < 0 {
				return Event{}, fmt.Errorf("%w: event field %d: %w", ErrMalformed, num, protowire.ParseError(n))
			}
			at += n
		}
	}
	if e.KV == nil || e.KV.keyLen == 0 {
		return Event{}, fmt.Errorf("%w: event without a key", ErrMalformed)
	}
	return e, nil
}

// AppendEventHead appends what stands before the key/value's encoding in the
// event's wire form. With the encodings themselves and AppendPrevHead it makes
// the same bytes as AppendEvent, without copying them.
func AppendEventHead(b []byte, e *Event) []byte {
	if e.Type != Put {
		b = append(b, fieldEventType<<3, byte(e.Type))
	}
	b = append(b, fieldEventKV<<3|2)
	return protowire.AppendVarint(b, uint64(len(e.KV.enc)))
}

// AppendPrevHead appends what stands before the previous value's encoding in
// an event's wire form.
func AppendPrevHead(b []byte, prev *KeyValue) []byte {
	b = append(b, fieldEventPrev<<3|2)
	return protowire.AppendVarint(b, uint64(len(prev.enc)))
}
