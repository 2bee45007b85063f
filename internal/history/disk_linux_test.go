package history

import (
	"errors"
	"syscall"
	"testing"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// mount mounts a tmpfs with the options. It skips the test without the right to mount.
func mount(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("no right to mount a file system: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// Saving copes with a real disk that is full, has room again, and is then read-only.
func TestRealDisk(t *testing.T) {
	dir := mount(t, "size=300k")
	w := newWorld(t, nil)
	log := newTold()
	s := New(Config{Dir: dir, MaxBytes: 64 << 20, Logger: log.logger()})
	one := []Shard{w.shard(7)}
	failed := false
	for !failed {
		w.run(100)
		err := s.Save(t.Context(), origin, one)
		if failed = err != nil; failed && !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		_, h, _ := load(t, dir, origin, 7, w.r)
		if err := part(h, w.past(), w.r); err != nil {
			t.Fatal(err)
		}
		if w.now > 1_000_000 {
			t.Fatal("the disk did not become full")
		}
	}
	if told := log.lines("history is not written"); len(told) != 1 || s.Status().Failing != "no space left on device" {
		t.Errorf("log lines %q, status %+v", told, s.Status())
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=64m"); err != nil {
		t.Fatal(err)
	}
	if err := s.Save(t.Context(), origin, one); err != nil || len(log.lines("written again")) != 1 {
		t.Errorf("a save with room on the disk again: %v", err)
	}
	_, h, _ := load(t, dir, origin, 7, w.r)
	if err := part(h, w.past(), w.r); err != nil || h.Progress != w.now || h.Floor != 1 {
		t.Errorf("loaded from %d up to %d, the newest revision is %d: %v", h.Floor, h.Progress, w.now, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	w.run(10)
	s = New(Config{Dir: dir, MaxBytes: 64 << 20, Logger: log.logger()})
	if got := s.Load(origin, map[shard.ID]kv.Range{7: w.r})[7]; got == nil || got.Progress != h.Progress {
		t.Error("the history on a read-only disk was not loaded")
	}
	for range 2 {
		if err := s.Save(t.Context(), origin, one); !errors.Is(err, syscall.EROFS) {
			t.Errorf("a save to a read-only disk: %v, want EROFS", err)
		}
	}
	if told := log.lines("history is not written"); len(told) != 1 {
		t.Errorf("log lines %q", told)
	}
	// The history of another cluster cannot be removed here.
	other := origin
	other.Cluster = "d"
	if h := New(Config{Dir: dir, MaxBytes: 64 << 20}).Load(other, map[shard.ID]kv.Range{7: w.r}); len(h) > 0 {
		t.Error("the history of another cluster was used")
	}
}
