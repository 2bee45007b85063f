package placement

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// Whatever is in the map file, it is refused with its reason or a valid map, which is
// written as it was read.
func FuzzMapFile(f *testing.F) {
	whole, err := encodeMapFile(testMap(f, "a", "b"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole, false)
	f.Add(whole[len(mapMagic)+8:], true)
	f.Add(whole[:len(mapMagic)+3], false)
	f.Add([]byte(nil), true)
	f.Fuzz(func(t *testing.T, b []byte, sealed bool) {
		if sealed { // b is what a checksum protects
			b = append(binary.BigEndian.AppendUint64([]byte(mapMagic), xxhash.Sum64(b)), b...)
		}
		m, err := decodeMapFile(b)
		if err != nil {
			if !errors.Is(err, ErrMapFile) {
				t.Fatalf("another error: %v", err)
			}
			return
		}
		if err := m.Validate(); err != nil {
			t.Fatal(err)
		}
		again, err := encodeMapFile(m)
		if err != nil {
			t.Fatal(err)
		}
		back, err := decodeMapFile(again)
		if err != nil || back.Version != m.Version || len(back.Shards) != len(m.Shards) {
			t.Fatalf("%+v is read back as %+v, %v", m, back, err)
		}
	})
}

// Whatever is in a snapshot, raft is told why it cannot be read, and nothing is applied
// after it; or the map is valid, and what is remembered of requests is bounded.
func FuzzSnapshot(f *testing.F) {
	m, err := shard.EncodeMap(testMap(f, "a"))
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
				t.Fatalf("%q goes on after %v", b, err)
			}
			return
		}
		if shown != (s.m != nil) || len(s.requests) > requestsKept {
			t.Fatalf("%q: %+v, %d requests", b, s.m, len(s.requests))
		}
	})
}
