package lineage

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// A saved mark is read back unchanged, or not at all.
func TestTheMarkFile(t *testing.T) {
	if s, err := loadMark(""); s != (saved{}) || err != nil {
		t.Errorf("without a file: %+v, %v", s, err)
	}
	path := filepath.Join(t.TempDir(), "etcdmark")
	if s, err := loadMark(path); s != (saved{}) || err != nil {
		t.Errorf("before the first save: %+v, %v", s, err)
	}
	want := saved{Lineage: 3, Endpoints: "http://e:2379", Mark: kv.Mark{Cluster: 1, Term: 2, Index: 3, Revision: 4}}
	for range 2 {
		if err := saveMark(path, want); err != nil {
			t.Fatal(err)
		}
		if s, err := loadMark(path); s != want || err != nil {
			t.Errorf("read back as %+v, %v", s, err)
		}
		want.Mark.Revision++
	}
	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	load := func(b []byte) error {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := loadMark(path)
		if s != (saved{}) {
			t.Errorf("a damaged file yields %+v", s)
		}
		return err
	}
	for i := range sound {
		if err := load(sound[:i]); !errors.Is(err, errMarkFile) {
			t.Errorf("truncated to %d bytes: %v, want errMarkFile", i, err)
		}
		changed := append([]byte(nil), sound...)
		changed[i] ^= 1
		if err := load(changed); !errors.Is(err, errMarkFile) {
			t.Errorf("byte %d changed: %v, want errMarkFile", i, err)
		}
	}
	if _, err := loadMark(t.TempDir()); err == nil || errors.Is(err, errMarkFile) {
		t.Errorf("a directory in place of the file: %v, want another error than errMarkFile", err)
	}
}
