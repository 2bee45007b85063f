package mapfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"reflect"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/shardwatch/shardwatch/internal/testing/maptest"
)

// Any content of the map file is either refused with a reason, or a valid map that is
// written as it was read.
func FuzzMapFile(f *testing.F) {
	whole, err := Encode(maptest.Pair(f, "a", "b"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole, false)
	f.Add(whole[len(magic)+8:], true)
	f.Add(whole[:len(magic)+3], false)
	f.Add([]byte(nil), true)
	f.Fuzz(func(t *testing.T, b []byte, sealed bool) {
		if sealed { // b is the content that a checksum protects
			b = append(binary.BigEndian.AppendUint64([]byte(magic), xxhash.Sum64(b)), b...)
		}
		m, err := Decode(b)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Fatalf("unexpected error: %v", err)
			}
			return
		}
		if err := m.Validate(); err != nil {
			t.Fatal(err)
		}
		again, err := Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		back, err := Decode(again)
		if err != nil || back.Version != m.Version || len(back.Shards) != len(m.Shards) {
			t.Fatalf("%+v is read back as %+v, %v", m, back, err)
		}
	})
}

// Cut off anywhere, or with any one byte changed, a map file is refused.
func TestMapFileTornAnywhere(t *testing.T) {
	f := New(t.TempDir())
	if m, err := f.Load(); m != nil || err != nil {
		t.Fatalf("load without a file: %v, %v", m, err)
	}
	m := maptest.Pair(t, "a", "b")
	for range 2 { // the second time over an old file
		if err := f.Save(m); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := f.Load(); err != nil || !reflect.DeepEqual(got, m) {
		t.Fatalf("%+v, %v", got, err)
	}
	b, err := os.ReadFile(f.path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range b {
		if m, err := Decode(b[:i]); m != nil || !errors.Is(err, ErrInvalid) {
			t.Fatalf("cut at %d: %v, %v", i, m, err)
		}
		c := bytes.Clone(b)
		c[i] ^= 0x20
		if m, err := Decode(c); m != nil || !errors.Is(err, ErrInvalid) {
			t.Fatalf("byte %d changed: %v, %v", i, m, err)
		}
	}
}
