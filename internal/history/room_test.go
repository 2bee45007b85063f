package history

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// openFiles returns the numbers of open files and of mappings that the process has of the directory.
func openFiles(t *testing.T, dir string) (files, mappings int) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err) // not on Linux
	}
	for _, fd := range fds {
		if name, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(name, dir+"/") {
			files++
		}
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return files, strings.Count(string(maps), dir+"/")
}

// A damaged file is closed and unmapped when it is set aside. Otherwise its disk space is lost until the node
// restarts.
func TestDamagedFilesAreClosed(t *testing.T) {
	w := newWorld(t, nil)
	w.run(300)
	load := func(s *Store) { s.Load(origin, map[shard.ID]kv.Range{7: w.r}) }
	all, records := "", "/k/" // pages with this are damaged
	for name, c := range map[string]struct {
		pages string
		use   func(s *Store)
	}{
		"found by opening": {all, load},
		"found by loading": {records, load},
		"found by saving":  {all, func(s *Store) { _ = s.Save(t.Context(), origin, []Shard{w.shard(7)}) }},
		"found by adding": {records, func(s *Store) {
			w.run(300)
			_ = s.Save(t.Context(), origin, []Shard{w.shard(7)})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := New(Config{Dir: dir, MaxBytes: 64 << 20})
			if err := errors.Join(s.Save(t.Context(), origin, []Shard{w.shard(7)}), s.Close()); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, fileName(format))
			file := read(t, path)
			page := os.Getpagesize()
			for at := 2 * page; at+page <= len(file); at += page {
				flags := binary.LittleEndian.Uint16(file[at+8:])
				if flags&0x03 != 0 && strings.Contains(string(file[at:at+page]), c.pages) { // a branch or a leaf
					binary.LittleEndian.PutUint16(file[at+8:], 0x40)
				}
			}
			write(t, path, file)
			c.use(s)
			if s.Status().Discarded == 0 {
				t.Fatal("the damage was not detected")
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if files, mappings := openFiles(t, dir); files+mappings > 0 {
				t.Errorf("%d open files and %d mappings remain", files, mappings)
			}
			goesOn(t, s, w)
		})
	}
}

// A file that is full at the smallest share for records is rewritten like any other full file.
func TestFullFileAtTheSmallestShare(t *testing.T) {
	w := newWorld(t, nil)
	w.value = 2000
	w.run(200)
	log := newTold()
	s := New(Config{Dir: t.TempDir(), MaxBytes: 1 << 20, Logger: log.logger()})
	s.share = leastShare
	for id := shard.ID(1); len(log.lines("rewritten from memory")) == 0; id++ { // the previous shards remain, because Keep is not called
		if err := s.Save(t.Context(), origin, []Shard{w.shard(id)}); err != nil || id > 1000 {
			t.Fatalf("shard %d: %v", id, err)
		}
	}
	if n := s.Status().Discarded; n != 0 { // a full file is not damaged
		t.Errorf("%d parts were discarded", n)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A file that becomes full when a segment is closed is not damaged: the failed commit has ended its transaction.
func TestFullFileIsNotDamaged(t *testing.T) {
	w := newWorld(t, nil)
	w.value = 2000
	w.run(600)
	s := New(Config{Dir: t.TempDir(), MaxBytes: 256 << 10})
	if err := s.prepare(); err != nil {
		t.Fatal(err)
	}
	x, err := w.shard(1).Export()
	if err != nil {
		t.Fatal(err)
	}
	out := s.newWriter(t.Context())
	err = guard(func() error {
		defer out.rollback()
		out.chunk = 1 << 30 // everything in one transaction
		if err := out.save(origin, w.shard(1), x, 2<<20); err != nil {
			t.Fatal(err)
		}
		out.chunk = 1
		l := s.logs[1]
		if n := len(l.window.segments); n < 2 {
			t.Fatalf("%d segments, want at least 2, so that one can be dropped", n)
		}
		l.window.newest().bytes += leastSegment // the segment is full, whatever its last records were
		return out.extend(l, &l.window, 0)
	})
	if !errors.Is(err, bolterrors.ErrMaxSizeReached) {
		t.Errorf("a save to a full file: %v, want ErrMaxSizeReached", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// Large records reduce the share of the bound for records. After they are gone, the log on disk grows to its
// previous length.
func TestLargeRecordsLeaveNoLessRoomForEver(t *testing.T) {
	w := newWorld(t, nil)
	w.value = 2000
	w.run(600)
	dir := t.TempDir()
	s := New(Config{Dir: dir, MaxBytes: 2 << 20})
	saved := func() int64 {
		t.Helper()
		if err := s.Save(t.Context(), origin, []Shard{w.shard(7)}); err != nil {
			t.Fatal(err)
		}
		l := s.logs[7]
		return l.window.bytes() + l.deletes.bytes()
	}
	before := saved()
	s.share, s.fitted = leastShare, -1 // the next Save does not count
	w.run(1)
	if n := saved(); n > 2<<20/leastShare*2 {
		t.Fatalf("%d bytes of records at the smallest share, above its limit", n)
	}
	for s.share > mostShare {
		was := s.share
		for range relaxAfter {
			if s.share != was {
				t.Fatalf("share %d has changed after less than %d saves", s.share, relaxAfter)
			}
			saved()
		}
		if s.share >= was {
			t.Fatalf("share %d has not changed after %d saves that fit", s.share, relaxAfter)
		}
	}
	w.run(600)
	if n := saved(); n < before*8/10 {
		t.Errorf("%d bytes of records, want about as many as before, %d", n, before)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
