package placement

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/maptest"
)

// A raft snapshot of an earlier version is read with its original meaning, and is
// still written in the same way. A golden file is never changed: another form needs
// another level, of the snapshot or of the map inside. UPDATE=1 writes missing files.
func TestGoldenSnapshot(t *testing.T) {
	final := maptest.Pair(t, "a", "b")
	final.Finalized = shard.LevelSettings
	for name, m := range map[string]*shard.Map{"level1-snapshot": maptest.Pair(t, "a", "b"), "level1-snapshot-of-map5": final} {
		kept := []request{{RequestID: "one", Version: 1}, {RequestID: "two", Version: 2}}
		var b bytes.Buffer
		if err := (&fsmSnapshot{m: m, requests: kept}).write(&b); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", "golden", name+".json")
		want, err := os.ReadFile(path)
		if os.IsNotExist(err) && os.Getenv("UPDATE") != "" {
			want = append(slices.Clone(b.Bytes()[1:]), '\n')
			err = os.WriteFile(path, want, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		want = bytes.TrimSuffix(want, []byte("\n"))
		if b.Bytes()[0] != 1 || !bytes.Equal(b.Bytes()[1:], want) {
			t.Errorf("%s with level %d is written as\n%s\nnot as\n%s", name, b.Bytes()[0], b.Bytes()[1:], want)
		}
		back, read, err := readSnapshot(bytes.NewReader(append([]byte{1}, want...)))
		if err != nil || !reflect.DeepEqual(back, m) || !slices.Equal(read, kept) {
			t.Errorf("%s is read as %+v, %v, %v", name, back, read, err)
		}
	}
}
