package wire

import (
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// Field numbers of the API's hot messages. They are repeated here because these
// messages are encoded without reflection, from bytes that all receivers share; a test
// compares them with the generated code.
const (
	watchID       = 1 // WatchResponse.watch_id
	watchIDs      = 2 // WatchResponse.watch_ids
	watchRevision = 3 // WatchResponse.revision
	watchFragment = 4 // WatchResponse.fragment
	watchSync     = 7 // WatchResponse.sync

	followState    = 2  // FollowResponse.state
	followRevision = 5  // FollowResponse.revision
	followFragment = 6  // FollowResponse.fragment
	followHistory  = 7  // FollowResponse.history
	followSeveral  = 12 // FollowResponse.several

	syncKind     = 1  // Sync.kind
	syncBegin    = 2  // Sync.begin
	syncEnd      = 3  // Sync.end
	syncRevision = 4  // Sync.revision
	syncFrom     = 5  // Sync.from_revision
	syncDeleted  = 12 // Sync.deleted

	listRevision = 1  // ListResponse.revision
	listLineage  = 2  // ListResponse.lineage
	listToken    = 3  // ListResponse.next_page_token
	listCount    = 4  // ListResponse.count
	listAge      = 5  // ListResponse.age
	listCluster  = 6  // ListResponse.cluster_id
	listDeleted  = 12 // ListResponse.deleted

	// items is the field of events and key/values in all of them.
	items = 11
)

// sharedFrom is the size from which the bytes of a key/value are passed to the
// transport without a copy; below, a copy is cheaper than another buffer.
const sharedFrom = 1024

// message is a message being built: runs of small fields, with large shared bytes
// between them. The runs are slices of few buffers: a buffer per run would cost more
// than the sharing saves.
type message struct {
	out  mem.BufferSlice
	cur  *[]byte    // the buffer being written; nil: none yet
	root mem.Buffer // all of cur, once a run was cut out of it
	from int        // offset of the current run in cur
}

var pool = mem.DefaultBufferPool()

// room returns the current buffer, empty or not, with room for n more bytes.
func (m *message) room(n int) *[]byte {
	if m.cur != nil && cap(*m.cur)-len(*m.cur) < n {
		m.flush()
	}
	if m.cur == nil {
		m.cur = pool.Get(max(n, 4096))
		*m.cur = (*m.cur)[:0]
	}
	return m.cur
}

// cut ends the current run.
func (m *message) cut() {
	if m.cur == nil || len(*m.cur) == m.from {
		return
	}
	used := len(*m.cur)
	if m.root == nil {
		*m.cur = (*m.cur)[:cap(*m.cur)]
		m.root = mem.NewBuffer(m.cur, pool)
		*m.cur = (*m.cur)[:used]
	}
	m.out = append(m.out, m.root.Slice(m.from, used))
	m.from = used
}

// flush ends the current buffer.
func (m *message) flush() {
	switch {
	case m.cur == nil:
		return
	case m.root != nil:
		m.cut()
		m.root.Free() // the runs hold it
	case len(*m.cur) > 0:
		m.out = append(m.out, mem.NewBuffer(m.cur, pool))
	default:
		pool.Put(m.cur)
	}
	m.cur, m.root, m.from = nil, nil, 0
}

func (m *message) shared(b []byte) {
	if len(b) < sharedFrom {
		buf := m.room(len(b))
		*buf = append(*buf, b...)
		return
	}
	m.cut()
	m.out = append(m.out, mem.SliceBuffer(b))
}

func (m *message) varint(field protowire.Number, v uint64) {
	if v == 0 {
		return
	}
	buf := m.room(2 * protowire.SizeVarint(1<<63))
	*buf = protowire.AppendTag(*buf, field, protowire.VarintType)
	*buf = protowire.AppendVarint(*buf, v)
}

func (m *message) flag(field protowire.Number, v bool) {
	if v {
		m.varint(field, 1)
	}
}

// header appends the tag and length of a bytes field. The content follows.
func (m *message) header(field protowire.Number, size int) {
	buf := m.room(2 * protowire.SizeVarint(1<<63))
	*buf = protowire.AppendTag(*buf, field, protowire.BytesType)
	*buf = protowire.AppendVarint(*buf, uint64(size)) //nolint:gosec // a length
}

func (m *message) event(e *kv.Event, withPrev bool) {
	size := kv.EventSize(e, withPrev)
	m.header(items, size)
	if size < sharedFrom {
		buf := m.room(size)
		*buf = kv.AppendEvent(*buf, e, withPrev)
		return
	}
	buf := m.room(16)
	*buf = kv.AppendEventHead(*buf, e)
	m.shared(e.KV.Encoded())
	if withPrev && e.Prev != nil {
		buf = m.room(16)
		*buf = kv.AppendPrevHead(*buf, e.Prev)
		m.shared(e.Prev.Encoded())
	}
}

func (m *message) keyValues(list []*kv.KeyValue) {
	for _, item := range list {
		m.header(items, len(item.Encoded()))
		m.shared(item.Encoded())
	}
}

func (m *message) done() *Encoded {
	m.flush()
	return &Encoded{Buffers: m.out}
}

// keyValuesSize returns the bytes that keyValues appends.
func keyValuesSize(list []*kv.KeyValue) int {
	n := 0
	for _, item := range list {
		n += 1 + protowire.SizeBytes(len(item.Encoded()))
	}
	return n
}

// Sync is a part of a unit; see shardwatch.v1.Sync.
type Sync struct {
	Kind       int32
	Begin, End bool
	Revision   kv.Revision
	From       kv.Revision // with Begin, when the unit starts from a position
	KVs        []*kv.KeyValue
	Deleted    []string
}

// SyncPart is an encoded part of a unit. It never changes, so it may be sent to any
// number of watches.
type SyncPart struct {
	runs [][]byte
	size int
}

// Size returns the bytes of the part.
func (p *SyncPart) Size() int { return p.size }

// NewSyncPart encodes a part of a unit. Big values are not copied.
func NewSyncPart(s Sync) *SyncPart {
	p := &SyncPart{}
	size := syncHead
	for _, item := range s.KVs {
		size += itemHead
		if n := len(item.Encoded()); n < sharedFrom {
			size += n
		}
	}
	for _, key := range s.Deleted {
		size += itemHead + len(key)
	}
	run := make([]byte, 0, size)
	from := 0 // offset of the current run
	number := func(field protowire.Number, v uint64) {
		if v != 0 {
			run = protowire.AppendTag(run, field, protowire.VarintType)
			run = protowire.AppendVarint(run, v)
		}
	}
	number(syncKind, uint64(s.Kind)) //nolint:gosec // an enum of ours
	number(syncBegin, protowire.EncodeBool(s.Begin))
	number(syncEnd, protowire.EncodeBool(s.End))
	number(syncRevision, uint64(s.Revision)) //nolint:gosec // proto's int64
	number(syncFrom, uint64(s.From))         //nolint:gosec // proto's int64
	for _, item := range s.KVs {
		enc := item.Encoded()
		run = protowire.AppendTag(run, items, protowire.BytesType)
		run = protowire.AppendVarint(run, uint64(len(enc)))
		if len(enc) < sharedFrom {
			run = append(run, enc...)
			continue
		}
		p.add(run[from:])
		p.add(enc)
		from = len(run)
	}
	for _, key := range s.Deleted {
		run = protowire.AppendTag(run, syncDeleted, protowire.BytesType)
		run = protowire.AppendString(run, key)
	}
	p.add(run[from:])
	return p
}

// The largest sizes of the numbers of a part, and of the tag and length of an item.
const (
	syncHead = 5 * (1 + 10)
	itemHead = 1 + 5
)

func (p *SyncPart) add(b []byte) {
	if len(b) > 0 {
		p.runs = append(p.runs, b[:len(b):len(b)])
		p.size += len(b)
	}
}

// WatchSync encodes a shardwatch.v1.WatchResponse with a part of a unit.
func WatchSync(id int64, p *SyncPart) *Encoded {
	var m message
	m.varint(watchID, uint64(id)) //nolint:gosec // proto's int64
	m.header(watchSync, p.size)
	m.flush()
	for _, run := range p.runs {
		m.out = append(m.out, mem.SliceBuffer(run))
	}
	return m.done()
}

// NewRecipients returns a recipient with several watches of the native API, for a
// client that supports lists of watch IDs.
func NewRecipients(ids []int64) Recipient {
	size := 0
	for _, id := range ids {
		size += protowire.SizeVarint(uint64(id)) //nolint:gosec // proto's int64
	}
	b := make([]byte, 0, protowire.SizeTag(watchIDs)+protowire.SizeBytes(size))
	b = protowire.AppendTag(b, watchIDs, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(size))
	for _, id := range ids {
		b = protowire.AppendVarint(b, uint64(id)) //nolint:gosec // proto's int64
	}
	return Recipient{id: b}
}

// listed appends the revision and the history of a shardwatch.v1.ListResponse.
func (m *message) listed(revision kv.Revision, of kv.HistoryID) {
	m.varint(listRevision, uint64(revision)) //nolint:gosec // proto's int64
	m.varint(listLineage, of.Lineage)
	if of.Cluster != "" {
		m.header(listCluster, len(of.Cluster))
		m.shared([]byte(of.Cluster))
	}
}

// ListChunk encodes a shardwatch.v1.ListResponse.
func ListChunk(revision kv.Revision, of kv.HistoryID, list []*kv.KeyValue) *Encoded {
	var m message
	m.listed(revision, of)
	m.keyValues(list)
	return m.done()
}

// ListDeleted encodes a shardwatch.v1.ListResponse with keys that do not exist.
func ListDeleted(revision kv.Revision, of kv.HistoryID, keys []string) *Encoded {
	var m message
	m.listed(revision, of)
	for _, key := range keys {
		m.header(listDeleted, len(key))
		m.shared([]byte(key))
	}
	return m.done()
}

// ListEnd encodes the last shardwatch.v1.ListResponse of a list. count is below 0 when
// it was not requested, age when it is not known.
func ListEnd(revision kv.Revision, of kv.HistoryID, nextPage []byte, count int64, age time.Duration) *Encoded {
	var m message
	m.listed(revision, of)
	if len(nextPage) > 0 {
		m.header(listToken, len(nextPage))
		m.shared(nextPage)
	}
	if count >= 0 { // 0 is a valid count
		buf := m.room(2 * protowire.SizeVarint(1<<63))
		*buf = protowire.AppendTag(*buf, listCount, protowire.VarintType)
		*buf = protowire.AppendVarint(*buf, uint64(count))
	}
	if age >= 0 {
		b, _ := proto.Marshal(durationpb.New(age)) // two numbers: nothing to fail
		m.header(listAge, len(b))
		m.shared(b)
	}
	return m.done()
}

// FollowEvents encodes a shardwatch.peer.v1.FollowResponse with events.
func FollowEvents(revision kv.Revision, fragment, history bool, events []*kv.Event, withPrev bool) *Encoded {
	var m message
	m.varint(followRevision, uint64(revision)) //nolint:gosec // proto's int64
	m.flag(followFragment, fragment)
	m.flag(followHistory, history)
	for _, e := range events {
		m.event(e, withPrev)
	}
	return m.done()
}

// FollowSeveral encodes a shardwatch.peer.v1.FollowResponse with the events of several
// whole revisions, up to last.
func FollowSeveral(last kv.Revision, events []*kv.Event, withPrev bool) *Encoded {
	var m message
	m.varint(followRevision, uint64(last)) //nolint:gosec // proto's int64
	m.flag(followSeveral, true)
	for _, e := range events {
		m.event(e, withPrev)
	}
	return m.done()
}

// FollowState encodes a shardwatch.peer.v1.FollowResponse with a part of the
// state.
func FollowState(list []*kv.KeyValue) *Encoded {
	var m message
	m.header(followState, keyValuesSize(list))
	m.keyValues(list)
	return m.done()
}

// Fragments cuts the events of one revision into runs of about limit bytes, so that no
// message exceeds the size that receivers accept, and calls fn for each. It stops at
// fn's first error.
func Fragments(events []*kv.Event, withPrev bool, limit int, fn func(run []*kv.Event, more bool) error) error {
	start, size := 0, 0
	for i, e := range events {
		n := kv.EventSize(e, withPrev)
		if i > start && size+n > limit {
			if err := fn(events[start:i], true); err != nil {
				return err
			}
			start, size = i, 0
		}
		size += n
	}
	return fn(events[start:], false)
}
