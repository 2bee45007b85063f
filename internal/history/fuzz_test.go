package history

import (
	"slices"
	"testing"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// sample is a file with some records.
func sample() []byte {
	h := header{salt: 1234, origin: Origin{Cluster: "c", Etcd: 7, Lineage: 3}, shard: 7, rng: kv.Range{Start: "/a", End: "/z"}, after: 9}
	file := appendHeader(nil, h)
	record := func(k kind, body func([]byte) []byte) {
		b, at := begin(file, k)
		file = seal(body(b), at, h.salt, uint64(at))
	}
	put := func(r kv.Revision, prev *kv.KeyValue) *kv.KeyValue {
		k := kv.NewKeyValue(kv.Fields{Key: []byte("/k"), Value: []byte("v"), CreateRevision: 10, ModRevision: r, Version: 1})
		b := kv.Batch{Revision: r, Events: []kv.Event{{KV: k, Prev: prev}}}
		record(kindBatch, func(b2 []byte) []byte { return appendBatch(b2, &b, h.after) })
		return k
	}
	put(12, put(10, nil))
	record(kindProgress, func(b []byte) []byte { return appendRevision(b, 15) })
	record(kindDeletes, func(b []byte) []byte {
		return appendDeletes(b, []kv.Tombstone{{Key: "/k", Revision: 16}, {Key: "/l", Revision: 16}})
	})
	return file
}

// No bytes make decode panic, and whatever it accepts is what it says it is.
func FuzzDecode(f *testing.F) {
	f.Add(sample(), []byte(nil))
	f.Add(sample()[:60], []byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, file, body []byte) {
		s, torn, err := decode(file)
		if (s == nil) != (err != nil) {
			t.Fatalf("%v and %v", s, err)
		}
		if s != nil {
			if torn == nil && s.valid != len(file) || s.valid > len(file) {
				t.Errorf("%d of %d bytes are valid: %v", s.valid, len(file), torn)
			}
			last := s.after
			for _, b := range s.batches {
				if b.Revision <= last || b.Revision > s.progress || len(b.Events) == 0 {
					t.Errorf("revision %d behind %d, of %d", b.Revision, last, s.progress)
				}
				last = b.Revision
			}
		}
		// Behind a right checksum, too, anything may stand.
		for _, k := range []kind{kindHeader, kindBatch, kindDeletes, kindProgress, 0} {
			own := sample()
			whole := len(own)
			b, at := begin(own, k)
			own = seal(append(b, body...), at, 1234, uint64(at))
			s, torn, err := decode(own)
			if err != nil || s.valid < whole || (torn == nil) != (s.valid == len(own)) {
				t.Errorf("kind %d: valid up to %d of %d: %v, %v", k, s.valid, len(own), torn, err)
			}
		}
	})
}

// A record is one only where it was written.
func TestNoRecordIsTakenForAnother(t *testing.T) {
	whole := sample()
	s, torn, err := decode(whole)
	if err != nil || torn != nil || len(s.batches) != 2 || s.progress != 16 || len(s.deletes) != 2 {
		t.Fatalf("%+v, %v, %v", s, torn, err)
	}
	if prev := s.batches[1].Events[0].Prev; prev != s.batches[0].Events[0].KV {
		t.Errorf("the previous value is %v", prev)
	}
	for at := range whole {
		for bit := range 8 {
			b := slices.Clone(whole)
			b[at] ^= 1 << bit
			if s, torn, err := decode(b); err == nil && torn == nil {
				t.Fatalf("bit %d of byte %d changed nothing: %+v", bit, at, s)
			} else if err == nil && s.valid > at {
				t.Fatalf("%d bytes are valid, and byte %d was changed", s.valid, at)
			}
		}
		if s, _, err := decode(whole[:at]); err == nil && s.valid > at {
			t.Fatalf("%d bytes of %d are valid", s.valid, at)
		}
	}
	// The same records in a file with another salt.
	h := s.header
	h.salt++
	other := appendHeader(nil, h)
	moved := append(other, whole[len(other):]...)
	if s, torn, err := decode(moved); err != nil || torn == nil || s.valid != len(other) {
		t.Errorf("records of another file are taken: %+v, %v, %v", s, torn, err)
	}
}
