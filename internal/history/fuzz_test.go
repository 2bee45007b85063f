package history

import (
	"encoding/binary"
	"testing"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// A reader does not panic on any bytes with a valid checksum. Accepted content is consistent.
func FuzzRecord(f *testing.F) {
	k := kv.NewKeyValue(kv.Fields{Key: []byte("/k"), Value: []byte("v"), CreateRevision: 10, ModRevision: 12, Version: 1})
	f.Add(uint64(12), appendBatch(appendRevision(nil, 9), &kv.Batch{Revision: 12, Events: []kv.Event{{KV: k}}}, 9))
	f.Add(uint64(12), appendDeletes(appendRevision(nil, 9), []string{"/k", "/l"}))
	f.Add(uint64(1)<<63, appendExtent(nil, &extent{progress: 20, last: 15, bytes: 7}))
	l := newLogs(7)
	l.origin, l.rng = origin, kv.Range{Start: "/a", End: "/z"}
	f.Add(uint64(0), appendHeader(nil, l))
	f.Fuzz(func(t *testing.T, key uint64, body []byte) {
		for _, k := range []kind{kindBatch, kindDeletes} {
			s := &segment{after: 9, progress: 9}
			err := s.take(k, binary.BigEndian.AppendUint64(nil, key), body, kv.Range{Start: "/a", End: "/z"}, map[string]*kv.KeyValue{})
			if n := len(s.batches) + len(s.deletes); err == nil && (s.progress != kv.Revision(key) || s.progress <= 9) || err != nil && n > 0 {
				t.Errorf("inconsistent result: error %v, segment %+v", err, s)
			}
		}
		if e, err := decodeExtent(body, 9); err == nil && (e.last < 9 || e.progress < e.last || e.bytes < 0) {
			t.Errorf("%+v", e)
		}
		_ = decodeHeader(body, newLogs(7))
	})
}
