package history

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// A file is the magic, then records:
//
//	length of the body, 4 bytes · checksum, 8 bytes · body: its kind, 1 byte, and what the kind says
//
// all in little endian. The checksum is xxhash's of the file's salt, the
// record's offset and the body: a record of another file, or from another
// place, is none. The salt is in the header, whose own is 0.
const (
	magic       = "swhist01"
	recordHead  = 4 + 8
	formatLimit = 1 << 30 // bytes of a body; etcd's largest revisions are far below
)

// kind is what a record is.
type kind byte

const (
	kindHeader kind = iota + 1
	kindBatch
	kindDeletes
	kindProgress
)

// Origin says where a history comes from.
type Origin struct {
	// Cluster is the cache cluster's ID, Etcd that of the etcd cluster.
	Cluster string
	Etcd    uint64
	Lineage uint64
}

// header is the first record of a file.
type header struct {
	salt   uint64
	origin Origin
	shard  shard.ID
	rng    kv.Range
	after  kv.Revision // the file has everything behind it
}

// errCorrupt says that bytes are not what was written.
var errCorrupt = errors.New("damaged")

func checksum(salt, offset uint64, body []byte) uint64 {
	var at [16]byte
	binary.LittleEndian.PutUint64(at[:8], salt)
	binary.LittleEndian.PutUint64(at[8:], offset)
	d := xxhash.New()
	_, _ = d.Write(at[:]) // never fails
	_, _ = d.Write(body)
	return d.Sum64()
}

// begin starts a record at the end of b, and returns where.
func begin(b []byte, k kind) ([]byte, int) {
	at := len(b)
	b = append(b, make([]byte, recordHead)...)
	return append(b, byte(k)), at
}

// seal completes the record that begins at b[at], which goes to offset in its
// file.
func seal(b []byte, at int, salt, offset uint64) []byte {
	body := b[at+recordHead:]
	binary.LittleEndian.PutUint32(b[at:], uint32(len(body))) //nolint:gosec // bounded by formatLimit
	binary.LittleEndian.PutUint64(b[at+4:], checksum(salt, offset, body))
	return b
}

// next returns the body of the record at offset and the offset behind it.
func next(file []byte, offset int, salt uint64) (body []byte, end int, err error) {
	if len(file)-offset < recordHead+1 {
		return nil, 0, fmt.Errorf("%w: %d bytes are no record", errCorrupt, len(file)-offset)
	}
	n := binary.LittleEndian.Uint32(file[offset:])
	if n == 0 || n > formatLimit || int(n) > len(file)-offset-recordHead {
		return nil, 0, fmt.Errorf("%w: a record of %d bytes at %d", errCorrupt, n, offset)
	}
	end = offset + recordHead + int(n)
	body = file[offset+recordHead : end : end]
	if binary.LittleEndian.Uint64(file[offset+4:]) != checksum(salt, uint64(offset), body) { //nolint:gosec // an offset
		return nil, 0, fmt.Errorf("%w: wrong checksum at %d", errCorrupt, offset)
	}
	return body, end, nil
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendRevision(b []byte, r kv.Revision) []byte {
	return binary.AppendUvarint(b, uint64(r)) //nolint:gosec // never negative
}

// appendHeader appends the beginning of a file.
func appendHeader(b []byte, h header) []byte {
	b = append(b, magic...)
	b, at := begin(b, kindHeader)
	b = binary.LittleEndian.AppendUint64(b, h.salt)
	b = appendText(b, h.origin.Cluster)
	b = binary.LittleEndian.AppendUint64(b, h.origin.Etcd)
	b = binary.AppendUvarint(b, h.origin.Lineage)
	b = binary.AppendUvarint(b, uint64(h.shard))
	b = appendText(b, h.rng.Start)
	b = appendText(b, h.rng.End)
	b = appendRevision(b, h.after)
	return seal(b, at, 0, uint64(len(magic)))
}

// appendBatch appends what a batch record says. A previous value that is in
// the same file, because it was put behind after, is not written again.
func appendBatch(b []byte, batch *kv.Batch, after kv.Revision) []byte {
	b = appendRevision(b, batch.Revision)
	b = binary.AppendVarint(b, batch.Received.UnixNano())
	b = binary.AppendUvarint(b, uint64(len(batch.Events)))
	for i := range batch.Events {
		e := &batch.Events[i]
		inFile := e.Prev != nil && e.Prev.ModRevision() > after && e.Prev.ModRevision() < batch.Revision
		if inFile {
			b = appendRevision(b, e.Prev.ModRevision())
		} else {
			b = appendRevision(b, 0)
		}
		b = binary.AppendUvarint(b, uint64(kv.EventSize(e, !inFile))) //nolint:gosec // a size
		b = kv.AppendEvent(b, e, !inFile)
	}
	return b
}

// appendDeletes appends what a record of deletes says.
func appendDeletes(b []byte, deletes []kv.Tombstone) []byte {
	b = binary.AppendUvarint(b, uint64(len(deletes)))
	for i := range deletes {
		b = appendRevision(b, deletes[i].Revision)
		b = appendText(b, deletes[i].Key)
	}
	return b
}

// reader takes what was appended, and remembers that something was wrong.
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

// ended reports whether all was taken, and nothing was wrong.
func (r *reader) ended() bool { return !r.bad && len(r.b) == 0 }

func decodeHeader(body []byte) (header, error) {
	r := reader{b: body}
	h := header{salt: r.fixed()}
	h.origin = Origin{Cluster: r.text(), Etcd: r.fixed(), Lineage: r.uvarint()}
	h.shard = shard.ID(r.uvarint())
	h.rng = kv.Range{Start: r.text(), End: r.text()}
	h.after = r.revision()
	if !r.ended() || h.after < 0 {
		return header{}, fmt.Errorf("%w: header", errCorrupt)
	}
	return h, nil
}

// decodeBatch reads a batch. latest has the newest key/value of each key in the
// file so far.
func decodeBatch(body []byte, latest map[string]*kv.KeyValue) (*kv.Batch, error) {
	r := reader{b: body}
	b := &kv.Batch{Revision: r.revision(), Received: time.Unix(0, r.varint())}
	n := r.uvarint()
	if r.bad || n == 0 || n > uint64(len(r.b)) {
		return nil, fmt.Errorf("%w: batch", errCorrupt)
	}
	b.Events = make([]kv.Event, 0, n)
	for range n {
		prev := r.revision()
		e, err := kv.DecodeEvent(r.bytes())
		if err != nil || r.bad || e.KV.ModRevision() != b.Revision {
			return nil, fmt.Errorf("%w: event of revision %d", errCorrupt, b.Revision)
		}
		if prev != 0 {
			e.Prev = latest[string(e.KV.Key())]
			if e.Prev == nil || e.Prev.ModRevision() != prev {
				return nil, fmt.Errorf("%w: the previous value of %q at revision %d is missing", errCorrupt, e.KV.Key(), b.Revision)
			}
		}
		b.Events = append(b.Events, e)
	}
	if !r.ended() {
		return nil, fmt.Errorf("%w: batch of revision %d", errCorrupt, b.Revision)
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

func decodeDeletes(body []byte) ([]kv.Tombstone, error) {
	r := reader{b: body}
	n := r.uvarint()
	if r.bad || n > uint64(len(r.b)) {
		return nil, fmt.Errorf("%w: deletes", errCorrupt)
	}
	out := make([]kv.Tombstone, 0, n)
	for range n {
		out = append(out, kv.Tombstone{Revision: r.revision(), Key: r.text()})
	}
	if !r.ended() {
		return nil, fmt.Errorf("%w: deletes", errCorrupt)
	}
	return out, nil
}
