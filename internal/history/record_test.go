package history

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

func put(key string, r kv.Revision) *kv.KeyValue {
	return kv.NewKeyValue(kv.Fields{Key: []byte(key), Value: []byte("v"), CreateRevision: 1, ModRevision: r, Version: 2})
}

// A truncated record, or one with trailing bytes, is invalid.
func TestATruncatedRecordIsInvalid(t *testing.T) {
	l := newLogs(7)
	l.salt, l.origin, l.rng = 5, origin, kv.Range{Start: "/a", End: "/z"}
	batch := &kv.Batch{Revision: 300, Events: []kv.Event{{KV: put("/k", 300)}, {Type: kv.Delete, KV: put("/l", 300)}}}
	for name, c := range map[string]struct {
		body   []byte
		decode func(body []byte) error
	}{
		"header":  {appendHeader(nil, l), func(b []byte) error { return decodeHeader(b, newLogs(7)) }},
		"extent":  {appendExtent(nil, &extent{progress: 300, last: 299, bytes: 1000}), func(b []byte) error { _, err := decodeExtent(b, 9); return err }},
		"batch":   {appendBatch(nil, batch, 9), func(b []byte) error { _, err := decodeBatch(b, map[string]*kv.KeyValue{}); return err }},
		"deletes": {appendDeletes(nil, []string{"/k", "/l"}), func(b []byte) error { _, err := decodeDeletes(b); return err }},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.decode(c.body); err != nil {
				t.Fatal(err)
			}
			for n := range c.body {
				if err := c.decode(slices.Clone(c.body[:n])); !errors.Is(err, errDamaged) {
					t.Errorf("a record cut to %d bytes of %d: %v, want errDamaged", n, len(c.body), err)
				}
			}
			if err := c.decode(append(slices.Clone(c.body), 0)); !errors.Is(err, errDamaged) {
				t.Errorf("a record with a trailing byte: %v, want errDamaged", err)
			}
		})
	}
}

// A segment's extent is valid only if it is consistent in itself and with the beginning of the segment.
func TestExtentsThatContradictThemselves(t *testing.T) {
	for _, c := range []struct {
		e  extent
		ok bool
	}{
		{extent{progress: 20, last: 15, bytes: 9}, true},
		{extent{progress: 9, last: 9}, true},
		{extent{progress: 20, last: 8}, false},
		{extent{progress: 14, last: 15}, false},
		{extent{progress: 20, last: 15, bytes: -1}, false},
	} {
		if _, err := decodeExtent(appendExtent(nil, &c.e), 9); (err == nil) != c.ok {
			t.Errorf("extent %+v: %v", c.e, err)
		}
	}
}

// An event gets the previous value whose revision the record names. Without that value the record is damaged,
// because watchers would get a wrong one.
func TestPreviousValuesHaveTheRecordedRevision(t *testing.T) {
	body := appendBatch(nil, &kv.Batch{Revision: 15, Events: []kv.Event{{KV: put("/k", 15), Prev: put("/k", 12)}}}, 9)
	for held, ok := range map[kv.Revision]bool{0: false, 11: false, 12: true, 13: false} {
		latest := map[string]*kv.KeyValue{}
		if held > 0 {
			latest["/k"] = put("/k", held)
		}
		b, err := decodeBatch(slices.Clone(body), latest)
		if (err == nil) != ok || err == nil && b.Events[0].Prev.ModRevision() != 12 {
			t.Errorf("with the previous value of revision %d: %+v, %v", held, b, err)
		}
	}
	latest := map[string]*kv.KeyValue{}
	for _, b := range []*kv.Batch{
		{Revision: 12, Events: []kv.Event{{KV: put("/k", 12)}}},
		{Revision: 13, Events: []kv.Event{{Type: kv.Delete, KV: put("/k", 13), Prev: put("/k", 12)}}},
	} {
		if _, err := decodeBatch(appendBatch(nil, b, 9), latest); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := decodeBatch(slices.Clone(body), latest); !errors.Is(err, errDamaged) {
		t.Errorf("a record names the previous value of a deleted key: %v, want errDamaged", err)
	}
}

// A record is accepted only after its predecessor, under its own revision, and with keys of the shard.
func TestRecordsThatDoNotFollow(t *testing.T) {
	batch := func(before, r kv.Revision, key string) []byte {
		return appendBatch(appendRevision(nil, before), &kv.Batch{Revision: r, Events: []kv.Event{{KV: put(key, r)}}}, 9)
	}
	deletes := func(before kv.Revision, keys ...string) []byte {
		return appendDeletes(appendRevision(nil, before), keys)
	}
	r := kv.Range{Start: "/a", End: "/z"}
	for name, c := range map[string]struct {
		kind kind
		key  []byte
		body []byte
		ok   bool
	}{
		"batch":                           {kindBatch, revisionKey(15), batch(12, 15, "/k"), true},
		"after an earlier record":         {kindBatch, revisionKey(15), batch(10, 15, "/k"), false},
		"after a later record":            {kindBatch, revisionKey(15), batch(13, 15, "/k"), false},
		"of a later revision":             {kindBatch, revisionKey(15), batch(12, 16, "/k"), false},
		"of an earlier revision":          {kindBatch, revisionKey(15), batch(12, 14, "/k"), false},
		"a key too short":                 {kindBatch, revisionKey(15)[:7], batch(12, 15, "/k"), false},
		"a key too long":                  {kindBatch, append(revisionKey(15), 0), batch(12, 15, "/k"), false},
		"below the range":                 {kindBatch, revisionKey(15), batch(12, 15, "/"), false},
		"no predecessor":                  {kindBatch, revisionKey(15), nil, false},
		"deletes":                         {kindDeletes, revisionKey(15), deletes(12, "/k", "/l"), true},
		"deletes after an earlier one":    {kindDeletes, revisionKey(15), deletes(10, "/k"), false},
		"deletes of another range":        {kindDeletes, revisionKey(15), deletes(12, "/k", "/zz"), false},
		"deletes below the range":         {kindDeletes, revisionKey(15), deletes(12, "/", "/k"), false},
		"deletes that are a batch":        {kindDeletes, revisionKey(15), batch(12, 15, "/k"), false},
		"deletes of a revision from then": {kindDeletes, revisionKey(12), deletes(12, "/k"), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &segment{after: 9, progress: 12}
			err := s.take(c.kind, c.key, c.body, r, map[string]*kv.KeyValue{})
			if (err == nil) != c.ok || err != nil && !errors.Is(err, errDamaged) {
				t.Fatal(err)
			}
			if want := map[bool]kv.Revision{true: 15, false: 12}[c.ok]; s.progress != want || !c.ok && len(s.batches)+len(s.deletes) > 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// Only a bucket with the name of a segment is a segment.
func TestNamesOfSegments(t *testing.T) {
	for name, want := range map[string]kv.Revision{
		string(segmentName(kindBatch, 300)): 300, string(segmentName(kindDeletes, 300)): -1,
		string(segmentName(kindBatch, 300)[:8]): -1, string(segmentName(kindBatch, 300)) + "\x00": -1, string(segmentName(kindHeader, 300)): -1,
	} {
		if after, ok := segmentAfter([]byte(name), kindBatch); ok != (want >= 0) || ok && after != want {
			t.Errorf("segmentAfter(%q) = %d, %v", name, after, ok)
		}
	}
}

// Of several earlier shards that contained a key, the newest one with saved history is read.
func TestTheNewestShardThatHadAKey(t *testing.T) {
	of := func(id shard.ID, rng kv.Range, after ...kv.Revision) *logs {
		l := newLogs(id)
		l.rng = rng
		for _, a := range after {
			l.window.segments = append(l.window.segments, extent{after: a})
		}
		return l
	}
	a := &reads{s: &Store{logs: map[shard.ID]*logs{
		1: of(1, kv.Range{Start: "a", End: "k"}, 3, 20),
		2: of(2, kv.Range{Start: "a", End: "m"}, 5, 30),
		3: of(3, kv.Range{Start: "a", End: "z"}),
		4: of(4, kv.Range{Start: "p", End: "z"}, 0),
		5: of(5, kv.Range{Start: "a", End: "c"}, 25),
	}}}
	for key, want := range map[string]shard.ID{"b": 2, "d": 2, "l": 2, "n": 0, "q": 4} {
		got := shard.ID(0)
		if l := a.newest(key); l != nil {
			got = l.shard
		}
		if got != want {
			t.Errorf("history of key %s is read from shard %d, want %d", key, got, want)
		}
	}
}

// The history of earlier shards is kept until all current shards are saved.
func TestOldHistoryIsKeptUntilCurrentShardsAreSaved(t *testing.T) {
	w := newWorld(t, nil)
	w.run(50)
	for name, c := range map[string]struct {
		child *logs
		kept  bool
	}{
		"unknown":          {nil, true},
		"nothing is saved": {&logs{shard: 8, rng: w.r}, true},
		"another range":    {&logs{shard: 8, rng: kv.Range{Start: "/a"}, window: log{segments: []extent{{}}}}, true},
		"saved":            {&logs{shard: 8, rng: w.r, window: log{segments: []extent{{}}}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(Config{Dir: t.TempDir(), MaxBytes: 64 << 20})
			if err := s.Save(t.Context(), origin, []Shard{w.shard(7)}); err != nil {
				t.Fatal(err)
			}
			if c.child != nil {
				s.logs[8] = c.child
			}
			s.Keep([]Shard{w.shard(8)})
			if _, kept := s.logs[7]; kept != c.kept {
				t.Errorf("the parent's history is kept: %v, want %v", kept, c.kept)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A store that has not loaded the file continues it, too, and writes only new records.
func TestAFileThatWasNotLoadedIsContinued(t *testing.T) {
	w := newWorld(t, nil)
	w.value = 500
	w.run(300)
	dir := t.TempDir()
	var written []int64
	for range 2 {
		s := New(Config{Dir: dir, MaxBytes: 64 << 20})
		if err := errors.Join(s.Save(t.Context(), origin, []Shard{w.shard(7)}), s.Close()); err != nil {
			t.Fatal(err)
		}
		written = append(written, s.Status().Written)
	}
	if written[0] == 0 || written[1] != 0 {
		t.Errorf("the first save wrote %d bytes and the second, without new events, %d; want some, then none", written[0], written[1])
	}
}

// A shard that is loading counts as no failure. Its content in the file is kept.
func TestAShardThatIsBeingLoadedHasNotFailed(t *testing.T) {
	w := newWorld(t, nil)
	w.value = 500
	w.run(200)
	full := errors.New("the disk is slow")
	s := New(Config{Dir: t.TempDir(), MaxBytes: 1 << 16, Pace: func(context.Context, int) error { return full }})
	loading := Shard{ID: 9, Range: w.r, Export: func() (*cache.Export, error) { return nil, fmt.Errorf("loading") }}
	if err := s.Save(t.Context(), origin, []Shard{loading, w.shard(7), w.shard(8)}); !errors.Is(err, full) {
		t.Fatal(err)
	}
	if st := s.Status(); st.Failed != 2 || !strings.Contains(st.Failing, full.Error()) {
		t.Errorf("status %+v, want two failed shards", st)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A count that exceeds the record is damage, and allocates no memory.
func TestCountsThatAreTooLarge(t *testing.T) {
	for count, ok := range map[uint64]bool{0: false, 1: false, 1 << 60: false} {
		body := binary.AppendUvarint(binary.AppendVarint(appendRevision(nil, 15), 0), count)
		if _, err := decodeBatch(body, map[string]*kv.KeyValue{}); (err == nil) != ok || !ok && !errors.Is(err, errDamaged) {
			t.Errorf("a batch of %d events without bytes: %v", count, err)
		}
	}
	if _, err := decodeDeletes(binary.AppendUvarint(nil, 1<<60)); !errors.Is(err, errDamaged) {
		t.Errorf("%v", err)
	}
	for mod, ok := range map[kv.Revision]bool{14: false, 15: true, 16: false} {
		body := appendBatch(nil, &kv.Batch{Revision: 15, Events: []kv.Event{{KV: put("/k", mod)}}}, 9)
		if _, err := decodeBatch(body, map[string]*kv.KeyValue{}); (err == nil) != ok {
			t.Errorf("an event of revision %d in a batch of revision 15: %v", mod, err)
		}
	}
}
