package wire

import (
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// Field numbers of etcd's answers to reads; see the remark in encode.go.
const (
	rangeItems = 2 // RangeResponse.kvs
	rangeMore  = 3 // RangeResponse.more
	rangeCount = 4 // RangeResponse.count

	streamRange = 1 // RangeStreamResponse.range_response

	itemKey     = 1 // KeyValue.key
	itemCreate  = 2 // KeyValue.create_revision
	itemMod     = 3 // KeyValue.mod_revision
	itemVersion = 4 // KeyValue.version
	itemLease   = 6 // KeyValue.lease
)

// ItemForm selects the part of a key/value that an answer holds.
type ItemForm uint8

// The forms of items.
const (
	// WholeItem has all fields.
	WholeItem ItemForm = iota
	// KeyItem has the fields of etcd's index: neither value nor lease.
	KeyItem
	// KeyLeaseItem has all fields but the value.
	KeyLeaseItem
)

// SharedItem is the size from which a value's bytes are sent without a copy, in a
// separate buffer.
const SharedItem = 16 << 10

// itemSize returns the length of the item's encoding in the form, without tag
// and length.
func itemSize(item *kv.KeyValue, form ItemForm) int {
	if form == WholeItem {
		return len(item.Encoded())
	}
	n := sizeBytes(len(item.Key())) + sizeInt(int64(item.CreateRevision())) + sizeInt(int64(item.ModRevision())) + sizeInt(item.Version())
	if form == KeyLeaseItem {
		n += sizeInt(item.Lease())
	}
	return n
}

// sizeBytes returns the length of a bytes field with a tag of one byte.
func sizeBytes(n int) int {
	if n == 0 {
		return 0
	}
	return 1 + protowire.SizeBytes(n)
}

// sizeInt is sizeBytes for a varint field.
func sizeInt(v int64) int {
	if v == 0 {
		return 0
	}
	return 1 + protowire.SizeVarint(uint64(v)) //nolint:gosec // proto's int64
}

func appendInt(b []byte, field protowire.Number, v int64) []byte {
	if v == 0 {
		return b
	}
	b = protowire.AppendTag(b, field, protowire.VarintType)
	return protowire.AppendVarint(b, uint64(v)) //nolint:gosec // proto's int64
}

// RangeItemSize returns the length of the item as an element of
// etcdserverpb.RangeResponse.kvs.
func RangeItemSize(item *kv.KeyValue, form ItemForm) int {
	return 1 + protowire.SizeBytes(itemSize(item, form))
}

// appendRangeHead appends tag and length of an element.
func appendRangeHead(b []byte, size int) []byte {
	b = append(b, rangeItems<<3|byte(protowire.BytesType))
	return protowire.AppendVarint(b, uint64(size)) //nolint:gosec // a length
}

// appendRangeItem appends the item as an element.
func appendRangeItem(b []byte, item *kv.KeyValue, form ItemForm) []byte {
	b = appendRangeHead(b, itemSize(item, form))
	if form == WholeItem {
		return append(b, item.Encoded()...)
	}
	if key := item.Key(); len(key) > 0 {
		b = protowire.AppendTag(b, itemKey, protowire.BytesType)
		b = protowire.AppendBytes(b, key)
	}
	b = appendInt(b, itemCreate, int64(item.CreateRevision()))
	b = appendInt(b, itemMod, int64(item.ModRevision()))
	b = appendInt(b, itemVersion, item.Version())
	if form == KeyLeaseItem {
		b = appendInt(b, itemLease, item.Lease())
	}
	return b
}

// isShared reports whether the item's bytes get a separate buffer.
func isShared(item *kv.KeyValue, form ItemForm) bool {
	return form == WholeItem && len(item.Encoded()) >= SharedItem
}

// RangeItems encodes items as elements of etcdserverpb.RangeResponse.kvs, for answers
// that share them: runs of small items, with the bytes of large items between them.
func RangeItems(items []*kv.KeyValue, form ItemForm) (parts [][]byte) {
	copied := 0
	for _, item := range items {
		if copied += RangeItemSize(item, form); isShared(item, form) {
			copied -= len(item.Encoded())
		}
	}
	run := make([]byte, 0, copied)
	for _, item := range items {
		if !isShared(item, form) {
			run = appendRangeItem(run, item, form)
			continue
		}
		run = appendRangeHead(run, len(item.Encoded()))
		parts = append(parts, run, item.Encoded())
		run = run[len(run):]
	}
	if len(run) > 0 {
		parts = append(parts, run)
	}
	return parts
}

// RangeAnswer is an etcdserverpb.RangeResponse.
type RangeAnswer struct {
	// Header is nil in all chunks of a stream but the last.
	Header *Header
	// Encoded are the first items, as encoded by RangeItems. The answer takes
	// ownership.
	Encoded mem.BufferSlice
	// Items are the items after Encoded, in the form.
	Items []*kv.KeyValue
	Form  ItemForm
	More  bool
	Count int64
}

// Encode encodes the answer.
func (a *RangeAnswer) Encode() *Encoded {
	var m message
	a.encode(&m, -1)
	return m.done()
}

// EncodeChunk encodes the answer as an etcdserverpb.RangeStreamResponse.
func (a *RangeAnswer) EncodeChunk() *Encoded {
	size := a.Encoded.Len()
	if a.Header != nil {
		size += 1 + protowire.SizeBytes(a.Header.size())
	}
	for _, item := range a.Items {
		size += RangeItemSize(item, a.Form)
	}
	if a.More {
		size += 2
	}
	size += sizeInt(a.Count)
	var m message
	a.encode(&m, size)
	return m.done()
}

// rangeOverhead exceeds the bytes around the items: the header, more, count, and a
// chunk's tag and length.
const rangeOverhead = 128

// encode encodes the answer, as the size bytes of a chunk's field when size is
// not negative.
func (a *RangeAnswer) encode(m *message, size int) {
	copied := rangeOverhead
	for _, item := range a.Items {
		if copied += RangeItemSize(item, a.Form); isShared(item, a.Form) {
			copied -= len(item.Encoded())
		}
	}
	m.room(copied)
	if size >= 0 {
		m.header(streamRange, size)
	}
	if a.Header != nil {
		m.etcdHeader(*a.Header)
	}
	if len(a.Encoded) > 0 {
		m.cut()
		m.out = append(m.out, a.Encoded...)
	}
	for _, item := range a.Items {
		if !isShared(item, a.Form) {
			*m.cur = appendRangeItem(*m.cur, item, a.Form)
			continue
		}
		*m.cur = appendRangeHead(*m.cur, len(item.Encoded()))
		m.cut()
		m.out = append(m.out, mem.SliceBuffer(item.Encoded()))
	}
	m.flag(rangeMore, a.More)
	m.varint(rangeCount, uint64(a.Count)) //nolint:gosec // proto's int64
}
