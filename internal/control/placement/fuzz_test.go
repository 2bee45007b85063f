package placement

import (
	"bytes"
	"encoding/base64"
	"io"
	"testing"

	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/maptest"
)

// Any snapshot is either refused with a reason, and nothing is applied after it; or its
// map is valid, and the number of remembered requests is bounded.
func FuzzSnapshot(f *testing.F) {
	m, err := shard.EncodeMap(maptest.Pair(f, "a"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte("\x01{\"ledger\":[{\"id\":\"a\",\"version\":1},{\"id\":\"a\",\"version\":2},{\"id\":\"\"}]}"), m)
	f.Add([]byte("\x01null"), []byte(nil))
	f.Add([]byte("\x02{}"), m)
	f.Add([]byte{}, m)
	f.Fuzz(func(t *testing.T, b, encoded []byte) {
		if len(encoded) > 0 && len(b) > 2 && bytes.HasPrefix(b, []byte("\x01{")) {
			b = append([]byte("\x01{\"map\":\""+base64.StdEncoding.EncodeToString(encoded)+"\","), b[2:]...)
		}
		shown := false
		s := newFSM(func(m *shard.Map) error {
			shown = true
			return m.Validate()
		}, func() {})
		if err := s.Restore(io.NopCloser(bytes.NewReader(b))); err != nil {
			if _, snapshot := s.Snapshot(); snapshot == nil || s.m != nil {
				t.Fatalf("%q continues after %v", b, err)
			}
			return
		}
		if shown != (s.m != nil) || len(s.requests) > requestsKept {
			t.Fatalf("%q: %+v, %d requests", b, s.m, len(s.requests))
		}
	})
}
