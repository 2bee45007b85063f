package history

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// A record is a value in a segment's bucket, under its revision:
//
//	checksum, 8 bytes · revision of the record before it in the segment · body
//
// The checksum is the xxhash of the place, the key and the rest of the value: a record from
// another place is invalid. A place has its shard's salt, which is new for each bucket of the
// shard, so records of an earlier bucket are also invalid.
const (
	checksumBytes = 8
	formatLimit   = 1 << 30 // bytes of a value; etcd's largest revisions are far smaller
)

// Keys and names of buckets. Revisions and shard IDs are big-endian, so that bbolt
// orders them.
const (
	headerKey = "header" // in a shard's bucket
	extentKey = "extent" // in a segment's bucket, after all revisions
)

const bucketNameBytes = 8

func bucketName(id shard.ID) []byte { return binary.BigEndian.AppendUint64(nil, uint64(id)) }

// segmentName returns the name of a segment's bucket in its shard's.
func segmentName(k kind, after kv.Revision) []byte {
	return binary.BigEndian.AppendUint64([]byte{byte(k)}, uint64(after)) //nolint:gosec // never negative
}

// segmentAfter returns the revision in a segment's name; ok: name is a segment's of the
// kind.
func segmentAfter(name []byte, k kind) (after kv.Revision, ok bool) {
	if len(name) != 9 || name[0] != byte(k) {
		return 0, false
	}
	return kv.Revision(binary.BigEndian.Uint64(name[1:])), true //nolint:gosec // as it was written
}

func revisionKey(r kv.Revision) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(r)) //nolint:gosec // never negative
}

// kind is the type of a record.
type kind byte

const (
	kindHeader kind = iota + 1
	kindBatch
	kindDeletes
)

// Origin identifies the source of a history.
type Origin struct {
	// Cluster is the ID of the cache cluster, Etcd the ID of the etcd cluster.
	Cluster string
	Etcd    uint64
	Lineage uint64
}

// errDamaged reports that the bytes read differ from the bytes written.
var errDamaged = errors.New("damaged")

// place identifies the location of a record.
type place struct {
	salt  uint64
	shard shard.ID
	kind  kind
	after kv.Revision // of the segment
}

func (p place) checksum(key, rest []byte) uint64 {
	at := make([]byte, 0, 64)
	at = binary.LittleEndian.AppendUint64(at, p.salt)
	at = binary.LittleEndian.AppendUint64(at, uint64(p.shard))
	at = append(at, byte(p.kind))
	at = binary.LittleEndian.AppendUint64(at, uint64(p.after)) //nolint:gosec // never negative
	at = append(at, key...)
	d := xxhash.New()
	_, _ = d.Write(at) // never fails
	_, _ = d.Write(rest)
	return d.Sum64()
}

// seal returns the value of a record.
func seal(p place, key, body []byte) []byte {
	value := make([]byte, checksumBytes, checksumBytes+len(body))
	binary.LittleEndian.PutUint64(value, p.checksum(key, body))
	return append(value, body...)
}

// unseal returns a copy of the body of a record.
func unseal(p place, key, value []byte) ([]byte, error) {
	switch {
	case len(value) < checksumBytes || len(value) > formatLimit:
		return nil, fmt.Errorf("%w: a record of %d bytes", errDamaged, len(value))
	case binary.LittleEndian.Uint64(value) != p.checksum(key, value[checksumBytes:]):
		return nil, fmt.Errorf("%w: wrong checksum", errDamaged)
	}
	return bytes.Clone(value[checksumBytes:]), nil
}

// salt returns a random number.
func salt() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendRevision(b []byte, r kv.Revision) []byte {
	return binary.AppendUvarint(b, uint64(r)) //nolint:gosec // never negative
}

// appendHeader appends the fields of a whole shard.
func appendHeader(b []byte, l *logs) []byte {
	b = binary.LittleEndian.AppendUint64(b, l.salt)
	b = appendText(b, l.origin.Cluster)
	b = binary.LittleEndian.AppendUint64(b, l.origin.Etcd)
	b = binary.AppendUvarint(b, l.origin.Lineage)
	b = appendText(b, l.rng.Start)
	return appendText(b, l.rng.End)
}

// appendExtent appends the extent of a segment.
func appendExtent(b []byte, e *extent) []byte {
	b = appendRevision(appendRevision(b, e.progress), e.last)
	return binary.AppendUvarint(b, uint64(e.bytes)) //nolint:gosec // a size
}

// appendBatch appends the body of a batch record. It leaves out previous values that the same
// segment has, as puts after the revision after.
func appendBatch(b []byte, batch *kv.Batch, after kv.Revision) []byte {
	b = appendRevision(b, batch.Revision)
	b = binary.AppendVarint(b, batch.Received.UnixNano())
	b = binary.AppendUvarint(b, uint64(len(batch.Events)))
	for i := range batch.Events {
		e := &batch.Events[i]
		inSegment := e.Prev != nil && e.Prev.ModRevision() > after && e.Prev.ModRevision() < batch.Revision
		if inSegment {
			b = appendRevision(b, e.Prev.ModRevision())
		} else {
			b = appendRevision(b, 0)
		}
		b = binary.AppendUvarint(b, uint64(kv.EventSize(e, !inSegment))) //nolint:gosec // a size
		b = kv.AppendEvent(b, e, !inSegment)
	}
	return b
}

// appendDeletes appends the body of a record of deletes.
func appendDeletes(b []byte, keys []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(keys)))
	for _, key := range keys {
		b = appendText(b, key)
	}
	return b
}

// reader decodes appended values, and remembers the first error.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.b, r.bad = nil, true
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.b, r.bad = nil, true
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) fixed() uint64 {
	if len(r.b) < 8 {
		r.b, r.bad = nil, true
		return 0
	}
	v := binary.LittleEndian.Uint64(r.b)
	r.b = r.b[8:]
	return v
}

func (r *reader) bytes() []byte {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.b, r.bad = nil, true
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) text() string { return string(r.bytes()) }

func (r *reader) revision() kv.Revision { return kv.Revision(r.uvarint()) } //nolint:gosec // checked by its users

// ended reports whether all bytes were decoded without an error.
func (r *reader) ended() bool { return !r.bad && len(r.b) == 0 }

// decodeHeader reads the fields of a whole shard into l.
func decodeHeader(body []byte, l *logs) error {
	r := reader{b: body}
	l.salt = r.fixed()
	l.origin = Origin{Cluster: r.text(), Etcd: r.fixed(), Lineage: r.uvarint()}
	l.rng = kv.Range{Start: r.text(), End: r.text()}
	if !r.ended() {
		return fmt.Errorf("%w: header", errDamaged)
	}
	return nil
}

// decodeExtent reads the extent of a segment that begins after the revision after.
func decodeExtent(body []byte, after kv.Revision) (extent, error) {
	r := reader{b: body}
	e := extent{after: after, progress: r.revision(), last: r.revision(), bytes: int64(r.uvarint())} //nolint:gosec // a size
	if !r.ended() || e.last < after || e.progress < e.last || e.bytes < 0 {
		return extent{}, fmt.Errorf("%w: extent", errDamaged)
	}
	return e, nil
}

// decodeBatch reads a batch. latest has the newest key/value of each key in the
// segment so far.
func decodeBatch(body []byte, latest map[string]*kv.KeyValue) (*kv.Batch, error) {
	r := reader{b: body}
	b := &kv.Batch{Revision: r.revision(), Received: time.Unix(0, r.varint())}
	n := r.uvarint()
	if r.bad || n == 0 || n > uint64(len(r.b)) {
		return nil, fmt.Errorf("%w: batch", errDamaged)
	}
	b.Events = make([]kv.Event, 0, n)
	for range n {
		prev := r.revision()
		e, err := kv.DecodeEvent(r.bytes())
		if err != nil || r.bad || e.KV.ModRevision() != b.Revision {
			return nil, fmt.Errorf("%w: event of revision %d", errDamaged, b.Revision)
		}
		if prev != 0 {
			e.Prev = latest[string(e.KV.Key())]
			if e.Prev == nil || e.Prev.ModRevision() != prev {
				return nil, fmt.Errorf("%w: the previous value of %q at revision %d is missing", errDamaged, e.KV.Key(), b.Revision)
			}
		}
		b.Events = append(b.Events, e)
	}
	if !r.ended() {
		return nil, fmt.Errorf("%w: batch of revision %d", errDamaged, b.Revision)
	}
	for i := range b.Events {
		if e := &b.Events[i]; e.Type == kv.Put {
			latest[string(e.KV.Key())] = e.KV
		} else {
			delete(latest, string(e.KV.Key()))
		}
	}
	return b, nil
}

func decodeDeletes(body []byte) ([]string, error) {
	r := reader{b: body}
	n := r.uvarint()
	if r.bad || n > uint64(len(r.b)) {
		return nil, fmt.Errorf("%w: deletes", errDamaged)
	}
	out := make([]string, 0, n)
	for range n {
		out = append(out, r.text())
	}
	if !r.ended() {
		return nil, fmt.Errorf("%w: deletes", errDamaged)
	}
	return out, nil
}
