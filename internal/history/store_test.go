package history

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// After a kill at any time, exactly the saved history remains, and the next run continues the same file.
func TestSavedHistorySurvivesARestart(t *testing.T) {
	w := newWorld(t, func(c *cache.Config) { c.WindowBytes = 200 << 10 })
	dir := t.TempDir()
	s := New(Config{Dir: dir, MaxBytes: 64 << 20})
	most := 0
	for range 40 {
		w.run(w.rng.IntN(300))
		if err := s.Save(t.Context(), origin, []Shard{w.shard(7)}); err != nil {
			t.Fatal(err)
		}
		most = max(most, len(s.logs[7].window.segments))
		saved := w.past()
		w.run(w.rng.IntN(40)) // lost
		if w.rng.IntN(3) == 0 {
			next, h, log := load(t, s.cfg.Dir, origin, 7, w.r)
			if h == nil || h.Progress != saved.Progress || h.Floor > saved.Floor || h.DeltaFloor > saved.DeltaFloor {
				t.Fatalf("loaded %+v, saved up to %d, with the window from %d and the deletes from %d", h, saved.Progress, saved.Floor, saved.DeltaFloor)
			}
			if err := part(h, saved, w.r); err != nil {
				t.Fatal(err)
			}
			if told := log.lines("history"); len(told) > 0 {
				t.Fatal(told)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = next
		}
	}
	if most < 2 {
		t.Errorf("%d segments at most: no second segment was begun", most)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// size returns the bytes of the file.
func size(t *testing.T, dir string) int64 {
	t.Helper()
	info, err := os.Stat(filepath.Join(dir, fileName(format)))
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// Each event is written once. Without new events, nothing is written.
func TestWritesAreNotAmplified(t *testing.T) {
	w := newWorld(t, nil)
	w.value = 2000
	s := New(Config{Dir: t.TempDir(), MaxBytes: 64 << 20})
	for range 40 {
		w.run(50)
		if err := s.Save(t.Context(), origin, []Shard{w.shard(7)}); err != nil {
			t.Fatal(err)
		}
	}
	events, deletes := 0, 0
	for _, b := range w.past().Batches {
		for i := range b.Events {
			events += kv.EventSize(&b.Events[i], false)
			if b.Events[i].Type == kv.Delete {
				deletes += len(b.Events[i].KV.Key())
			}
		}
	}
	written := s.Status().Written
	if most := int64(events)*11/10 + 20_000; written > most {
		t.Errorf("%d bytes were written for %d bytes of events", written, events)
	}
	for range 10 {
		if err := s.Save(t.Context(), origin, []Shard{w.shard(7)}); err != nil {
			t.Fatal(err)
		}
	}
	if again := s.Status().Written; again != written {
		t.Errorf("%d bytes were written without new events", again-written)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// The file stays within its bound, whatever the caches hold, and contains the newest history.
func TestFilesAreBounded(t *testing.T) {
	w := newWorld(t, nil)
	w.value = 4000
	dir := t.TempDir()
	const most = 4 << 20
	log := newTold()
	s := New(Config{Dir: dir, MaxBytes: most, Logger: log.logger()})
	quiet := newWorld(t, nil)
	for range 30 {
		w.run(200)
		if err := s.Save(t.Context(), origin, []Shard{w.shard(7), quiet.shard(8)}); err != nil {
			t.Fatal(err)
		}
		if n := size(t, dir); n > most || n != s.Status().Bytes {
			t.Fatalf("the file has %d bytes, the status %d; want equal, and at most %d", n, s.Status().Bytes, most)
		}
	}
	if told := log.lines("history"); len(told) > 0 {
		t.Errorf("log lines %q: the records leave too little room for bbolt", told)
	}
	_, h, _ := load(t, dir, origin, 7, w.r)
	if h.Progress != w.now || h.Floor < 100 {
		t.Errorf("loaded from %d up to %d, the newest revision is %d", h.Floor, h.Progress, w.now)
	}
	if err := part(h, w.past(), w.r); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// If the cache has leapt, or was away for longer than its window, the older history on disk is dropped, because a
// gap follows it.
func TestAGapStartsTheLogAgain(t *testing.T) {
	w := newWorld(t, func(c *cache.Config) { c.WindowBytes, c.TombstoneBytes = 20<<10, 2<<10 })
	dir := t.TempDir()
	s := New(Config{Dir: dir, MaxBytes: 64 << 20})
	for range 5 {
		w.run(2000) // more than fits in the window
		if err := s.Save(t.Context(), origin, []Shard{w.shard(7)}); err != nil {
			t.Fatal(err)
		}
		_, h, _ := load(t, dir, origin, 7, w.r)
		known := w.past()
		if h.Floor != known.Floor || h.DeltaFloor != known.DeltaFloor || h.Progress != known.Progress {
			t.Errorf("loaded %d, %d, %d; known %d, %d, %d", h.DeltaFloor, h.Floor, h.Progress, known.DeltaFloor, known.Floor, known.Progress)
		}
		if err := part(h, known, w.r); err != nil {
			t.Error(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A cache that lacks one revision does not continue the log on disk, because watchers would miss that revision. A
// cache without a gap continues it.
func TestAGapOfOneStartsTheLogAgain(t *testing.T) {
	for _, gap := range []kv.Revision{0, 1} {
		before := newWorld(t, nil)
		dir := t.TempDir()
		s := New(Config{Dir: dir, MaxBytes: 64 << 20})
		before.run(50)
		if err := s.Save(t.Context(), origin, []Shard{before.shard(7)}); err != nil {
			t.Fatal(err)
		}
		old := before.past()
		w := newWorldAt(t, old.Progress+gap, nil)
		first := w.past()
		if first.Floor != old.Progress+1+gap {
			t.Fatalf("the window begins at %d, the log ends at %d", first.Floor, old.Progress)
		}
		w.run(50)
		if err := errors.Join(s.Save(t.Context(), origin, []Shard{w.shard(7)}), s.Close()); err != nil {
			t.Fatal(err)
		}
		want, wantDelta := old.Floor, old.DeltaFloor
		if gap > 0 {
			want, wantDelta = first.Floor, first.DeltaFloor
		}
		_, h, _ := load(t, dir, origin, 7, w.r)
		if h == nil || h.Floor != want || h.DeltaFloor != wantDelta || h.Progress != w.now {
			t.Errorf("gap %d: loaded %+v, want the window from %d, deletes from %d, progress %d", gap, h, want, wantDelta, w.now)
		}
	}
}

// The children of a split inherit their parts of the parent's saved history. The parent's history is removed once
// all children are saved.
func TestChildrenOfASplitInherit(t *testing.T) {
	w := newWorld(t, nil)
	dir := t.TempDir()
	s := New(Config{Dir: dir, MaxBytes: 64 << 20})
	w.run(500)
	if err := errors.Join(s.Save(t.Context(), origin, []Shard{w.shard(7)}), s.Close()); err != nil {
		t.Fatal(err)
	}
	left, right := kv.Range{Start: "/a", End: "/k/30"}, kv.Range{Start: "/k/30", End: "/z"}
	known := w.past()
	s = New(Config{Dir: dir, MaxBytes: 64 << 20})
	got := s.Load(origin, map[shard.ID]kv.Range{7: left, 9: right, 11: {Start: "/zz", End: "/zzz"}})
	for id, r := range map[shard.ID]kv.Range{7: left, 9: right} {
		if h := got[id]; h == nil || h.Progress != known.Progress {
			t.Fatalf("shard %d inherits %+v", id, h)
		} else if err := part(h, known, r); err != nil {
			t.Errorf("shard %d: %v", id, err)
		}
	}
	if got[11] != nil {
		t.Error("a range without earlier shards has a history")
	}
	loading := Shard{ID: 10, Range: kv.Range{Start: "/zz"}, Export: func() (*cache.Export, error) { return nil, cache.ErrNotReady }}
	if err := s.Save(t.Context(), origin, []Shard{w.shard(9), loading}); err != nil {
		t.Fatal(err)
	}
	s.Keep([]Shard{w.shard(9), loading})
	if _, h, _ := load(t, dir, origin, 7, w.r); h == nil {
		t.Error("the parent's history was removed before all children were saved")
	}
	s.Keep([]Shard{{ID: 9, Range: right}})
	if s.logs[7] == nil {
		t.Error("the parent's history was removed, although shard 9 was saved with another range")
	}
	s.Keep([]Shard{w.shard(9)})
	if s.logs[7] != nil || s.logs[9] == nil {
		t.Error("the parent's history is kept, or the child's is missing")
	}
	whole := kv.Range{Start: "/", End: "/zz"} // the range of no shard
	if s, _, _ := load(t, dir, origin, 11, whole); s.logs[7] != nil || s.logs[9] == nil {
		t.Error("the parent's history is still on disk, or the child's is missing")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// The child of a split that keeps its parent's ID gets a new log on disk: the parent's log lacks the other child's
// changes from the split on.
func TestAChildWithItsParentsIDGetsANewLog(t *testing.T) {
	w := newWorld(t, nil)
	dir := t.TempDir()
	s := New(Config{Dir: dir, MaxBytes: 64 << 20})
	w.run(100)
	if err := s.Save(t.Context(), origin, []Shard{w.shard(7)}); err != nil {
		t.Fatal(err)
	}
	parent := s.logs[7].salt
	w.run(100)
	cfg := cache.Defaults()
	cfg.Range = kv.Range{Start: "/a", End: "/k/30"}
	cfg.Seed = cache.Inherit(cfg.Range, false, w.cache)
	if err := s.Save(t.Context(), origin, []Shard{{ID: 7, Range: cfg.Range, Export: cache.New(cfg).Export}}); err != nil {
		t.Fatal(err)
	}
	if s.logs[7].salt == parent {
		t.Error("the child continues the log of the parent")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, h, _ := load(t, dir, origin, 7, w.r); h != nil {
		t.Errorf("the parent's range is loaded up to %d, without the other child's changes", h.Progress)
	}
	_, h, _ := load(t, dir, origin, 7, cfg.Range)
	if h == nil || h.Progress != w.now {
		t.Fatalf("loaded %+v for the child", h)
	}
	if err := part(h, w.past(), cfg.Range); err != nil {
		t.Error(err)
	}
}

// A segment is removed as soon as its successor has all revisions from the cache's floor on, and not one revision
// earlier.
func TestSegmentsAreRemovedOnceTheirSuccessorReachesTheFloor(t *testing.T) {
	w := newWorld(t, nil)
	w.value = 2000
	s := New(Config{Dir: t.TempDir(), MaxBytes: 1 << 20})
	w.run(300)
	if err := s.Save(t.Context(), origin, []Shard{w.shard(7)}); err != nil {
		t.Fatal(err)
	}
	l := s.logs[7]
	n, second := len(l.window.segments), l.window.segments[1].after
	out := s.newWriter(t.Context())
	defer out.rollback()
	for floor, want := range map[kv.Revision]int{second: n, second + 1: n - 1} {
		g := l.window
		g.segments = slices.Clone(g.segments)
		if err := out.trim(l, &g, floor, 1<<40); err != nil || len(g.segments) != want {
			t.Errorf("floor %d, second segment after %d: %d segments left, want %d, %v", floor, second, len(g.segments), want, err)
		}
		out.rollback()
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A shard that two shards were merged into inherits their saved history, up to the lower progress of the two.
func TestAMergedShardInherits(t *testing.T) {
	w := newWorld(t, nil)
	dir := t.TempDir()
	s := New(Config{Dir: dir, MaxBytes: 64 << 20})
	left, right := kv.Range{Start: "/a", End: "/k/30"}, kv.Range{Start: "/k/30", End: "/z"}
	save := func(id shard.ID, r kv.Range) {
		t.Helper()
		cfg := cache.Defaults()
		cfg.Range, cfg.Seed = r, cache.Inherit(r, false, w.cache)
		if err := s.Save(t.Context(), origin, []Shard{{ID: id, Range: r, Export: cache.New(cfg).Export}}); err != nil {
			t.Fatal(err)
		}
	}
	w.run(300)
	save(8, left)
	known := inKeyOrder(w.past())
	w.run(100)
	save(9, right)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, h, _ := load(t, dir, origin, 10, w.r)
	if h == nil || h.Progress != known.Progress || h.Floor > 3 {
		t.Fatalf("got %+v, want all up to %d", h, known.Progress)
	}
	if err := part(inKeyOrder(h), known, w.r); err != nil {
		t.Error(err)
	}
	if _, h, _ := load(t, dir, origin, 10, kv.Range{Start: "/a", End: "/zz"}); h != nil {
		t.Error("a history was loaded, although a part of the range was never saved")
	}
}

// inKeyOrder sorts the events of each revision by key: those of several shards are not in etcd's order.
func inKeyOrder(h *cache.Past) *cache.Past {
	for i, b := range h.Batches {
		c := *b
		c.Events = slices.SortedFunc(slices.Values(b.Events), func(x, y kv.Event) int { return bytes.Compare(x.KV.Key(), y.KV.Key()) })
		h.Batches[i] = &c
	}
	return h
}

// The history of another cluster, etcd or lineage is not used. It is removed with a log line.
func TestAnotherOrigin(t *testing.T) {
	for want, o := range map[string]Origin{
		"it belongs to cluster c, this is d":      {Cluster: "d", Etcd: 7, Lineage: 3},
		"it belongs to etcd cluster 7, this is 8": {Cluster: "c", Etcd: 8, Lineage: 3},
		"it belongs to lineage 3, this is 4":      {Cluster: "c", Etcd: 7, Lineage: 4},
	} {
		w := newWorld(t, nil)
		dir := t.TempDir()
		s := New(Config{Dir: dir, MaxBytes: 64 << 20})
		w.run(50)
		if err := errors.Join(s.Save(t.Context(), origin, []Shard{w.shard(7)}), s.Close()); err != nil {
			t.Fatal(err)
		}
		s, h, log := reload(t, dir, o, 7, w.r)
		if told := log.lines("history on disk is not used"); h != nil || len(told) != 1 || !strings.Contains(told[0], want) || s.Status().Discarded != 1 {
			t.Errorf("%s: loaded %v, log lines %q, discarded %d", want, h, told, s.Status().Discarded)
		}
		if _, h, _ := load(t, dir, origin, 7, w.r); h != nil {
			t.Errorf("%s: the history is still on disk", want)
		}
		if err := s.Save(t.Context(), o, []Shard{w.shard(7)}); err != nil {
			t.Fatal(err)
		}
		if _, h, _ = load(t, dir, o, 7, w.r); h == nil || h.Progress != w.now {
			t.Errorf("%s: loaded %+v after the next save", want, h)
		}
		// A lineage begins while the node runs.
		o.Lineage++
		if err := s.Save(t.Context(), o, []Shard{w.shard(7)}); err != nil {
			t.Fatal(err)
		}
		if _, h, _ = load(t, dir, o, 7, w.r); h == nil || h.Progress != w.now {
			t.Errorf("%s: loaded %+v after a save in the next lineage", want, h)
		}
		o.Lineage--
		if _, h, _ = load(t, dir, o, 7, w.r); h != nil {
			t.Errorf("%s: the history of the previous lineage is still on disk", want)
		}
	}
}

// The age of the window counts only the time in which the node ran.
func TestDowntimeDoesNotCountAsAge(t *testing.T) {
	b := kv.Batch{Revision: 5, Received: time.Now().Add(-time.Hour), Events: []kv.Event{{KV: kv.NewKeyValue(kv.Fields{Key: []byte("/k"), ModRevision: 5})}}}
	older := b
	older.Revision, older.Received = 4, b.Received.Add(-time.Minute)
	older.Events = []kv.Event{{KV: kv.NewKeyValue(kv.Fields{Key: []byte("/k"), ModRevision: 4})}}
	batches := []*kv.Batch{&older, &b}
	forgetAbsence(batches)
	h := &cache.Past{Batches: batches}
	if age := time.Since(h.Batches[1].Received); age < 0 || age > time.Minute/2 {
		t.Errorf("the newest batch is %v old, want none of the time before the start", age)
	}
	if between := h.Batches[1].Received.Sub(h.Batches[0].Received); between != time.Minute {
		t.Errorf("the two batches are %v apart, want one minute", between)
	}
}

// A directory that cannot be written, or is not a directory, is logged once and has no other effect.
func TestNoDirectory(t *testing.T) {
	w := newWorld(t, nil)
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	log := newTold()
	s := New(Config{Dir: path, MaxBytes: 64 << 20, Logger: log.logger()})
	if h := s.Load(origin, map[shard.ID]kv.Range{7: w.r}); len(h) > 0 || len(log.lines("not used")) != 1 {
		t.Errorf("loaded %v, or the log lacks a line", h)
	}
	for i := range 3 {
		w.run(3)
		if err := s.Save(t.Context(), origin, []Shard{w.shard(7), w.shard(8)}); err == nil {
			t.Error("a save succeeded with a file in place of the directory")
		}
		if told := log.lines("history is not written"); (i == 0) != (len(told) == 1) {
			t.Errorf("attempt %d: log lines %q", i, told)
		}
	}
	if n := s.Status(); n.Failed != 6 || n.Failing != "not a directory" {
		t.Errorf("%+v", n)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := s.Save(t.Context(), origin, []Shard{w.shard(7)}); err != nil || len(log.lines("written again")) != 1 {
		t.Errorf("a save after the directory is back: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// Saving stops between two writes when ctx ends. The records saved by then are usable.
func TestSaveStops(t *testing.T) {
	w := newWorld(t, nil)
	w.value = 8000
	w.run(2500)
	dir := t.TempDir()
	ctx, stop := context.WithCancel(t.Context())
	paced := 0
	s := New(Config{Dir: dir, MaxBytes: 64 << 20, Pace: func(ctx context.Context, n int) error {
		if paced += n; paced > 4<<20 {
			stop()
		}
		return ctx.Err()
	}})
	if err := s.Save(ctx, origin, []Shard{w.shard(7)}); !errors.Is(err, context.Canceled) || s.Status().Failing != "" {
		t.Errorf("save with a cancelled context: %v, status %+v", err, s.Status())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, h, _ := load(t, dir, origin, 7, w.r)
	if h == nil || h.Progress >= w.now || h.Progress < 10 {
		t.Fatalf("loaded %+v", h)
	}
	if err := part(h, w.past(), w.r); err != nil {
		t.Error(err)
	}
}

// The saved history of a copy that was wrong is removed at once. That of other shards is kept, and the next Save
// writes the new copy from its floor on.
func TestAForgottenShardIsSavedAgain(t *testing.T) {
	for name, known := range map[string]bool{"by the run that saved it": true, "by a run that has not looked yet": false} {
		t.Run(name, func(t *testing.T) {
			wrong, other, anew := newWorld(t, nil), newWorldAt(t, 10, nil), newWorldAt(t, 20, nil) // of three different histories
			wrong.run(40)
			other.run(40)
			anew.run(20)
			dir := t.TempDir()
			s := New(Config{Dir: dir, MaxBytes: 64 << 20})
			if err := s.Save(t.Context(), origin, []Shard{wrong.shard(7), other.shard(8)}); err != nil {
				t.Fatal(err)
			}
			if !known {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 { // the second call finds nothing to remove
				if err := s.Forget(7); err != nil {
					t.Fatal(err)
				}
			}
			onDisk := func(id shard.ID) (h *cache.Past, saved bool) {
				t.Helper()
				next, h, _ := load(t, dir, origin, id, wrong.r)
				_, saved = next.logs[id]
				return h, saved
			}
			if _, saved := onDisk(7); saved {
				t.Error("the history of a forgotten shard is still on disk")
			}
			if h, saved := onDisk(8); !saved || h.Progress != other.now {
				t.Errorf("the history of the other shard is %+v", h)
			}
			if err := s.Save(t.Context(), origin, []Shard{anew.shard(7), other.shard(8)}); err != nil {
				t.Fatal(err)
			}
			h, _ := onDisk(7)
			if h == nil || h.Progress != anew.now || h.Floor != 21 {
				t.Fatalf("loaded %+v for the new copy", h)
			}
			if err := part(h, anew.past(), anew.r); err != nil {
				t.Error(err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
