package history

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// saved returns the file that a store has written for shard 7, and the saved history.
func saved(t *testing.T, w *world) (file []byte, known *cache.Past) {
	t.Helper()
	dir := t.TempDir()
	s := New(Config{Dir: dir, MaxBytes: 2 << 20})
	for range 20 {
		w.run(100)
		if err := s.Save(t.Context(), origin, []Shard{w.shard(7)}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.logs[7].window.segments); n < 4 {
		t.Fatalf("%d segments were saved, want at least 4", n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return read(t, filepath.Join(dir, fileName(format))), w.past()
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// record returns the value of a batch of a shard.
func record(t *testing.T, path string, id shard.ID, revision kv.Revision) (value []byte) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	err = db.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucketName(id))
		return b.ForEachBucket(func(name []byte) error {
			if _, ok := segmentAfter(name, kindBatch); ok && value == nil {
				value = bytes.Clone(b.Bucket(name).Get(revisionKey(revision)))
			}
			return nil
		})
	})
	if err := errors.Join(err, db.Close()); err != nil || value == nil {
		t.Fatal("no such record:", err)
	}
	return value
}

// goesOn fails unless the store saves the whole history of shard 7, at the second attempt at the latest, and a new
// store loads it.
func goesOn(t *testing.T, s *Store, w *world) {
	t.Helper()
	if s.Save(t.Context(), origin, []Shard{w.shard(7)}) != nil {
		if err := s.Save(t.Context(), origin, []Shard{w.shard(7)}); err != nil {
			t.Fatalf("the second attempt to save failed: %v", err)
		}
	}
	if s.Status().Failing != "" {
		t.Fatalf("the status reports a failure after a save: %+v", s.Status())
	}
	known := w.past()
	_, h, _ := load(t, s.cfg.Dir, origin, 7, w.r)
	if h == nil || h.Progress != known.Progress {
		t.Fatalf("the new history was not loaded completely; loaded: %v", h != nil)
	}
	if err := part(h, known, w.r); err != nil {
		t.Fatalf("the loaded history is wrong: %v", err)
	}
}

// For any damage to the file, the loaded history is a part of the saved one, and saving continues.
func TestDamagedFile(t *testing.T) {
	w := newWorld(t, func(c *cache.Config) { c.WindowBytes, c.TombstoneBytes = 1<<20, 60<<10 })
	w.value = 300
	file, known := saved(t, w)
	used := 0
	for range 100 {
		b := slices.Clone(file)
		for range 1 + w.rng.IntN(3) {
			b = damage(w.rng, b, file)
		}
		dir := t.TempDir()
		write(t, filepath.Join(dir, fileName(format)), b)
		s, h, _ := reload(t, dir, origin, 7, w.r)
		if h != nil {
			used++
			if err := part(h, known, w.r); err != nil {
				t.Fatal(err)
			}
		}
		goesOn(t, s, w)
	}
	if used < 25 {
		t.Errorf("%d of 100 damaged files yielded history, want at least 25", used)
	}
}

// damage changes a file as crashes and faulty disks do.
func damage(rng *rand.Rand, b, other []byte) []byte {
	if len(b) == 0 {
		return b
	}
	at := rng.IntN(len(b))
	n := min(1+rng.IntN(5000), len(b)-at)
	switch rng.IntN(20) {
	default:
		b[at] ^= 1 << rng.IntN(8)
	case 0:
		return b[:at]
	case 1:
		return bytes.Repeat([]byte{0xff}, at)
	case 3: // a block that was never written
		clear(b[at : at+n])
	case 4: // a block of another file, or of this one
		copy(b[at:at+n], other[min(at, len(other)):])
	case 5:
		copy(b[at:at+n], b[rng.IntN(len(b)):])
	case 6: // the rest is written twice
		return append(b, b[at:]...)
	}
	return b
}

// A record with a wrong length extends beyond the file. Regardless of the memory there, this costs only the rest
// of its segment, and not the file with all shards.
func TestRecordOutsideOfTheFile(t *testing.T) {
	w := newWorld(t, nil)
	w.run(300)
	dir := t.TempDir()
	s := New(Config{Dir: dir, MaxBytes: 64 << 20})
	if err := errors.Join(s.Save(t.Context(), origin, []Shard{w.shard(7)}), s.Close()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, fileName(format))
	known := w.past()
	last := known.Batches[len(known.Batches)-1].Revision
	file := read(t, path)
	lengthen(file, revisionKey(last))
	write(t, path, file)

	s, h, log := reload(t, dir, origin, 7, w.r)
	if h == nil || h.Floor != known.Floor || h.Progress >= last || h.Progress < last-50 {
		t.Fatalf("loaded %+v, saved from %d up to %d, discarded %d", h, known.Floor, known.Progress, s.Status().Discarded)
	}
	if err := part(h, known, w.r); err != nil {
		t.Error(err)
	}
	if told := log.lines(damagedSuffix); len(told) != 0 {
		t.Errorf("the file was set aside: %q", told)
	}
	goesOn(t, s, w)
}

// lengthen adds 1 GiB to the lengths of the keys that are equal to key, in all leaf pages of a file: see
// leafPageElement in bbolt's internal/common/page.go.
func lengthen(file, key []byte) {
	const header, element, leaf = 16, 16, 2
	for page := 0; page+header <= len(file); page += os.Getpagesize() {
		if binary.NativeEndian.Uint16(file[page+8:])&leaf == 0 {
			continue
		}
		count := int(binary.NativeEndian.Uint16(file[page+10:]))
		for at := page + header; count > 0 && at+element <= len(file); at, count = at+element, count-1 {
			start, size := at+int(binary.NativeEndian.Uint32(file[at+4:])), int(binary.NativeEndian.Uint32(file[at+8:]))
			if size == len(key) && start+size <= len(file) && bytes.Equal(file[start:start+size], key) {
				binary.NativeEndian.PutUint32(file[at+8:], uint32(size)|1<<30)
			}
		}
	}
}

// One wrong byte costs its record and the later records of its segment. The other shards lose nothing, and saving
// continues.
func TestOneWrongByteCostsItsShardAlone(t *testing.T) {
	w := newWorld(t, nil)
	w.run(300)
	dir := t.TempDir()
	s := New(Config{Dir: dir, MaxBytes: 64 << 20})
	if err := errors.Join(s.Save(t.Context(), origin, []Shard{w.shard(7), w.shard(8)}), s.Close()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, fileName(format))
	known := w.past()
	last := known.Batches[len(known.Batches)-1]
	file := read(t, path)
	value := record(t, path, 7, last.Revision)
	for at := 0; bytes.Contains(file[at:], value); { // unused pages contain it, too
		at += bytes.Index(file[at:], value) + len(value)
		file[at-1] ^= 1
	}
	write(t, path, file)

	log := newTold()
	s = New(Config{Dir: dir, MaxBytes: 64 << 20, Logger: log.logger()})
	got := s.Load(origin, map[shard.ID]kv.Range{7: w.r, 8: w.r})
	damaged, whole := got[7], got[8]
	if err := errors.Join(part(whole, known, w.r), part(damaged, known, w.r)); err != nil {
		t.Error(err)
	}
	if whole.Progress != known.Progress || damaged.Floor != known.Floor || damaged.Progress >= last.Revision || damaged.Progress < last.Revision-50 {
		t.Errorf("the intact shard has %d up to %d, the damaged one %d up to %d; the last change is at %d", whole.Floor, whole.Progress, damaged.Floor, damaged.Progress, last.Revision)
	}
	if told := log.lines("wrong checksum"); len(told) != 1 || s.Status().Discarded != 1 {
		t.Errorf("log lines %q, discarded %d", told, s.Status().Discarded)
	}
	if err := s.Save(t.Context(), origin, []Shard{w.shard(7), w.shard(8)}); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for _, id := range []shard.ID{7, 8} {
		_, h, _ := load(t, dir, origin, id, w.r)
		if h == nil || h.Progress != known.Progress || h.Floor != known.Floor {
			t.Errorf("shard %d: loaded %+v after another save", id, h)
		} else if err := part(h, known, w.r); err != nil {
			t.Errorf("shard %d: %v", id, err)
		}
	}
}

// A file that is not bbolt's, or cannot be read, is set aside, and saving continues at once.
func TestUnreadableFile(t *testing.T) {
	w := newWorld(t, nil)
	w.run(100)
	for name, spoil := range map[string]func(path string) error{
		"text":      func(path string) error { return os.WriteFile(path, []byte(strings.Repeat("what", 9999)), 0o600) },
		"short":     func(path string) error { return os.WriteFile(path, []byte("what"), 0o600) },
		"zeros":     func(path string) error { return os.WriteFile(path, make([]byte, 1<<16), 0o600) },
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, fileName(format))
			if err := spoil(path); err != nil {
				t.Fatal(err)
			}
			s, h, log := reload(t, dir, origin, 7, w.r)
			if told := log.lines("history on disk is not used"); h != nil || len(told) != 1 {
				t.Errorf("loaded %v, log lines %q", h, told)
			}
			if err := s.Save(t.Context(), origin, []Shard{w.shard(7)}); err != nil {
				t.Error(err)
			}
			goesOn(t, s, w)
			if _, err := os.Stat(path + damagedSuffix); err != nil {
				t.Error(err)
			}
		})
	}
}

// After a rollback or an upgrade, files of other versions stay unchanged, and saving continues beside them.
func TestOtherVersionsAreLeftAlone(t *testing.T) {
	w := newWorld(t, nil)
	w.run(100)
	dir := t.TempDir()
	others := map[string][]byte{fileName(format + 1): []byte("of the next version"), "7/window-00000001": []byte("of the one before")}
	if err := os.Mkdir(filepath.Join(dir, "7"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, b := range others {
		write(t, filepath.Join(dir, name), b)
	}
	for range 2 {
		s, _, log := reload(t, dir, origin, 7, w.r)
		if told := log.lines("left alone"); len(told) != 1 || !strings.Contains(told[0], fileName(format+1)) {
			t.Errorf("log lines %q", told)
		}
		goesOn(t, s, w)
		s.Keep([]Shard{w.shard(7)})
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	for name, b := range others {
		if got := read(t, filepath.Join(dir, name)); !bytes.Equal(got, b) {
			t.Errorf("file %s was changed to %q", name, got)
		}
	}
}

// A file with our name and an unknown format is rejected with a remedy, and stays unchanged.
func TestUnknownFormatIsRefused(t *testing.T) {
	w := newWorld(t, nil)
	w.value = 300
	file, _ := saved(t, w)
	dir := t.TempDir()
	path := filepath.Join(dir, fileName(format))
	write(t, path, file)
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte(formatKey)).Put([]byte(formatKey), sealFormat(9)) })
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	file = read(t, path)
	s, h, log := reload(t, dir, origin, 7, w.r)
	if told := log.lines("history on disk is not used"); h != nil || len(told) != 1 || !strings.Contains(told[0], "move it away") {
		t.Errorf("loaded %v, log lines %q", h, told)
	}
	for range 2 {
		if err := s.Save(t.Context(), origin, []Shard{w.shard(7)}); !errors.Is(err, errFormat) {
			t.Errorf("save over an unknown format: %v, want errFormat", err)
		}
	}
	if got := read(t, path); !bytes.Equal(got, file) {
		t.Error("the file was changed")
	}
	// One changed byte in the format number is damage, and does not stop the store.
	at := bytes.Index(file, sealFormat(9))
	file[at+checksumBytes] ^= 1
	spoilt := t.TempDir()
	write(t, filepath.Join(spoilt, fileName(format)), file)
	after, _, _ := reload(t, spoilt, origin, 7, w.r)
	goesOn(t, after, w)

	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	goesOn(t, s, w)
}

// A lowered bound applies from the next save on.
func TestALowerBound(t *testing.T) {
	w := newWorld(t, nil)
	w.value = 2000
	w.run(1000)
	dir := t.TempDir()
	for _, most := range []int64{8 << 20, 1 << 20} {
		s := New(Config{Dir: dir, MaxBytes: most})
		h := s.Load(origin, map[shard.ID]kv.Range{7: w.r})[7]
		if most == 1<<20 && h == nil {
			t.Error("a file larger than the bound was not loaded")
		}
		if err := errors.Join(s.Save(t.Context(), origin, []Shard{w.shard(7)}), s.Close()); err != nil {
			t.Fatal(err)
		}
		if n := size(t, dir); n > most || s.Status().Bytes != n {
			t.Errorf("the file has %d bytes, status %+v; want at most %d bytes", n, s.Status(), most)
		}
	}
	if _, h, _ := load(t, dir, origin, 7, w.r); h == nil || h.Progress != w.now {
		t.Errorf("loaded %+v", h)
	}
}

// A bound that is one byte below the size of the file applies, too.
func TestABoundJustBelowTheFile(t *testing.T) {
	w := newWorld(t, nil)
	w.value = 2000
	w.run(300)
	dir := t.TempDir()
	s := New(Config{Dir: dir, MaxBytes: 8 << 20})
	if err := errors.Join(s.Save(t.Context(), origin, []Shard{w.shard(7)}), s.Close()); err != nil {
		t.Fatal(err)
	}
	most := size(t, dir) - 1
	s = New(Config{Dir: dir, MaxBytes: most})
	if err := errors.Join(s.Save(t.Context(), origin, []Shard{w.shard(7)}), s.Close()); err != nil {
		t.Fatal(err)
	}
	if n := size(t, dir); n > most {
		t.Errorf("the file has %d bytes, want at most %d", n, most)
	}
	if _, h, _ := load(t, dir, origin, 7, w.r); h == nil || h.Progress != w.now {
		t.Errorf("loaded %+v", h)
	}
}

// If shards that come and go fill the file, it is rewritten from memory, within its bound.
func TestFullFileIsRewritten(t *testing.T) {
	w := newWorld(t, nil)
	w.value = 4000
	w.run(600)
	dir := t.TempDir()
	const most = 1 << 20
	log := newTold()
	s := New(Config{Dir: dir, MaxBytes: most, Logger: log.logger()})
	for id := range shard.ID(8) { // the previous shards remain, because Keep was not called
		if err := s.Save(t.Context(), origin, []Shard{w.shard(id + 1)}); err != nil {
			t.Fatal(err)
		}
		if n := size(t, dir); n > most {
			t.Fatalf("the file has %d bytes, want at most %d", n, most)
		}
		_, h, _ := load(t, dir, origin, id+1, w.r)
		if h == nil || h.Progress != w.now {
			t.Fatalf("shard %d: loaded %+v", id+1, h)
		}
	}
	if told := log.lines("rewritten from memory"); len(told) == 0 {
		t.Error("the file was never full")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A file that another process has open is not loaded. Saving fails with that reason until the other process has
// ended, and the file stays unchanged.
func TestFileOfARunningProcess(t *testing.T) {
	w := newWorld(t, nil)
	dir := t.TempDir()
	other := New(Config{Dir: dir, MaxBytes: 64 << 20})
	w.run(50)
	if err := other.Save(t.Context(), origin, []Shard{w.shard(7)}); err != nil {
		t.Fatal(err)
	}
	s, h, log := reload(t, dir, origin, 7, w.r)
	if told := log.lines("used by another process"); h != nil || len(told) != 1 {
		t.Errorf("loaded %v, log lines %q", h, told)
	}
	for range 2 {
		if err := s.Save(t.Context(), origin, []Shard{w.shard(7)}); err == nil || !strings.Contains(s.Status().Failing, "used by another process") {
			t.Errorf("save to the file of a running process: %v, status %+v", err, s.Status())
		}
	}
	if told := log.lines("history is not written"); len(told) != 1 {
		t.Errorf("log lines %q", told)
	}
	if _, err := os.Stat(filepath.Join(dir, fileName(format)+damagedSuffix)); err == nil {
		t.Error("the file of the other process was set aside")
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	w.run(50)
	goesOn(t, s, w)
	if _, h, _ := load(t, dir, origin, 7, w.r); h.Floor != w.past().Floor {
		t.Errorf("loaded from %d, want from %d", h.Floor, w.past().Floor)
	}
}

// A file of another bbolt version is rejected and stays unchanged: it is intact, and only that version can read
// it.
func TestFileOfAnotherBboltIsLeftAlone(t *testing.T) {
	w := newWorld(t, nil)
	w.value = 300
	file, _ := saved(t, w)
	for page := range 2 { // bbolt's meta pages
		at := page * os.Getpagesize()
		meta := file[at+16 : at+16+64]
		binary.LittleEndian.PutUint32(meta[4:], 9)
		sum := fnv.New64a()
		_, _ = sum.Write(meta[:56])
		binary.LittleEndian.PutUint64(meta[56:], sum.Sum64())
	}
	dir := t.TempDir()
	path := filepath.Join(dir, fileName(format))
	write(t, path, file)
	s, h, log := reload(t, dir, origin, 7, w.r)
	if told := log.lines("history on disk is not used"); h != nil || len(told) != 1 || !strings.Contains(told[0], "move it away") {
		t.Errorf("loaded %v, log lines %q", h, told)
	}
	if err := s.Save(t.Context(), origin, []Shard{w.shard(7)}); !errors.Is(err, errFormat) {
		t.Errorf("save over a file of another bbolt version: %v, want errFormat", err)
	}
	if got := read(t, path); !bytes.Equal(got, file) {
		t.Error("the file was changed")
	}
}

// Even if many shards share a small bound, all are saved, and the file stays within its bound.
func TestManyShardsBesideASmallBound(t *testing.T) {
	w := newWorld(t, nil)
	w.value = 2000
	w.run(200)
	dir := t.TempDir()
	const most = 2 << 20
	s := New(Config{Dir: dir, MaxBytes: most})
	var shards []Shard
	for id := range shard.ID(40) {
		shards = append(shards, w.shard(id+1))
	}
	if err := s.Save(t.Context(), origin, shards); err != nil {
		t.Errorf("the save failed: %v", err)
	}
	if n := size(t, dir); n > most {
		t.Errorf("the file has %d bytes, want at most %d", n, most)
	}
	for _, sh := range shards {
		if _, h, _ := load(t, dir, origin, sh.ID, w.r); h == nil || h.Progress != w.now {
			t.Errorf("shard %d: loaded %+v", sh.ID, h)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
