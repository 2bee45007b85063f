package history

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// A record is accepted only in its own place, and only if it is complete.
func TestNoRecordIsTakenForAnother(t *testing.T) {
	at, key := place{salt: 5, shard: 7, kind: kindBatch, after: 9}, revisionKey(12)
	value := seal(at, key, []byte("body"))
	if body, err := unseal(at, key, value); err != nil || string(body) != "body" {
		t.Fatalf("%q, %v", body, err)
	}
	for name, other := range map[string]place{
		"salt": {6, 7, kindBatch, 9}, "shard": {5, 8, kindBatch, 9}, "kind": {5, 7, kindDeletes, 9}, "segment": {5, 7, kindBatch, 10},
	} {
		if _, err := unseal(other, key, value); err == nil {
			t.Errorf("a record is accepted in another %s", name)
		}
	}
	if _, err := unseal(at, revisionKey(13), value); err == nil {
		t.Error("a record is accepted at another revision")
	}
	for i := range value {
		for bit := range 8 {
			b := slices.Clone(value)
			b[i] ^= 1 << bit
			if _, err := unseal(at, key, b); err == nil {
				t.Errorf("a record is accepted with bit %d of byte %d changed", bit, i)
			}
		}
		if _, err := unseal(at, key, value[:i]); err == nil {
			t.Errorf("a record is accepted with %d bytes of %d", i, len(value))
		}
	}
}

// sample writes a segment that begins after revision 9, has changes at 10, 12 and 15, and is complete up to 20. It
// applies change, and then reads the segment.
func sample(t *testing.T, change func(b *bbolt.Bucket, at place) error) (*segment, error) {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(t.TempDir(), "db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	at := place{salt: 5, shard: 7, kind: kindBatch, after: 9}
	var got *segment
	var torn error
	err = db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket([]byte("segment"))
		if err != nil {
			return err
		}
		var prev *kv.KeyValue
		before := at.after
		for _, r := range []kv.Revision{10, 12, 15} {
			k := kv.NewKeyValue(kv.Fields{Key: []byte("/k"), Value: []byte("v"), CreateRevision: 10, ModRevision: r, Version: 1})
			batch := &kv.Batch{Revision: r, Events: []kv.Event{{KV: k, Prev: prev}}}
			if err := b.Put(revisionKey(r), seal(at, revisionKey(r), appendBatch(appendRevision(nil, before), batch, at.after))); err != nil {
				return err
			}
			prev, before = k, r
		}
		if err := b.Put([]byte(extentKey), seal(at, []byte(extentKey), appendExtent(nil, &extent{progress: 20, last: 15}))); err != nil {
			return err
		}
		if err := change(b, at); err != nil {
			return err
		}
		got, torn = readSegment(b, at, kv.Range{Start: "/a", End: "/z"})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got, torn
}

// The used part of a segment is its longest prefix without an invalid or missing record.
func TestSegmentsAreReadUpToTheFirstGap(t *testing.T) {
	put := func(r kv.Revision, of func(at place) []byte) func(*bbolt.Bucket, place) error {
		return func(b *bbolt.Bucket, at place) error { return b.Put(revisionKey(r), seal(at, revisionKey(r), of(at))) }
	}
	batch := func(before, r, mod kv.Revision, key string) func(place) []byte {
		return func(at place) []byte {
			k := kv.NewKeyValue(kv.Fields{Key: []byte(key), CreateRevision: mod, ModRevision: mod, Version: 1})
			return appendBatch(appendRevision(nil, before), &kv.Batch{Revision: r, Events: []kv.Event{{KV: k}}}, at.after)
		}
	}
	remove := func(r kv.Revision) func(*bbolt.Bucket, place) error {
		return func(b *bbolt.Bucket, _ place) error { return b.Delete(revisionKey(r)) }
	}
	ends := func(e extent) func(*bbolt.Bucket, place) error {
		return func(b *bbolt.Bucket, at place) error {
			return b.Put([]byte(extentKey), seal(at, []byte(extentKey), appendExtent(nil, &e)))
		}
	}
	for name, c := range map[string]struct {
		change  func(b *bbolt.Bucket, at place) error
		want    string // revisions and progress
		because string // part of the error; "": the segment is complete
	}{
		"whole":                   {func(*bbolt.Bucket, place) error { return nil }, "[10 12 15] 20", ""},
		"the first is missing":    {remove(10), "[] 9", "the record before revision 12 is that of 10, not 9"},
		"one is missing":          {remove(12), "[10] 10", "the record before revision 15 is that of 12, not 10"},
		"the last is missing":     {remove(15), "[10 12] 12", "the last record is that of revision 12, not 15"},
		"one more than was noted": {put(16, batch(15, 16, 16, "/k")), "[10 12 15 16] 20", ""},
		"more than was noted":     {put(22, batch(15, 22, 22, "/k")), "[10 12 15 22] 22", ""},
		"a record from before":    {put(9, batch(9, 9, 9, "/k")), "[] 9", "revision 9 follows 9"},
		"of another revision":     {put(15, batch(12, 14, 14, "/k")), "[10 12] 12", "revision 14 at 15"},
		"an event of another":     {put(15, batch(12, 15, 14, "/k")), "[10 12] 12", "event of revision 15"},
		"of another range":        {put(15, batch(12, 15, 15, "/zz")), "[10 12] 12", `"/zz" is not in`},
		"no revision is the key":  {func(b *bbolt.Bucket, at place) error { return b.Put([]byte{9}, []byte("what")) }, "[10 12 15] 15", "a record of 4 bytes"},
		"nothing noted":           {func(b *bbolt.Bucket, _ place) error { return b.Delete([]byte(extentKey)) }, "[10 12 15] 15", ""},
		"damaged note":            {func(b *bbolt.Bucket, _ place) error { return b.Put([]byte(extentKey), make([]byte, 20)) }, "[10 12 15] 15", "wrong checksum"},
		"a note that is too long": {func(b *bbolt.Bucket, at place) error {
			return b.Put([]byte(extentKey), seal(at, []byte(extentKey), []byte{20, 15, 0, 0}))
		}, "[10 12 15] 15", "extent"},
		"progress before the last": {ends(extent{progress: 14, last: 15}), "[10 12 15] 15", "extent"},
		"noted before the last":    {ends(extent{progress: 13, last: 12}), "[10 12 15] 15", ""},
		"nothing but progress":     {ends(extent{progress: 15, last: 15}), "[10 12 15] 15", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, torn := sample(t, c.change)
			revisions := []kv.Revision{}
			for _, b := range s.batches {
				revisions = append(revisions, b.Revision)
			}
			if got := fmt.Sprint(revisions, s.progress); got != c.want || (torn == nil) != (c.because == "") {
				t.Errorf("got revisions and progress %s, error %v, want %s", got, torn, c.want)
			}
			if torn != nil && !strings.Contains(torn.Error(), c.because) {
				t.Errorf("error %v, want %q", torn, c.because)
			}
		})
	}
	if s, torn := readSegment(nil, place{after: 9}, kv.Range{}); s.progress != 9 || torn == nil {
		t.Errorf("a segment without a bucket: %+v, %v", s, torn)
	}
}

// Segments are joined if the older one is complete up to the beginning of the newer one. A gap of one revision
// ends the used part.
func TestSegmentsJoinWithoutAGap(t *testing.T) {
	of := func(after, progress kv.Revision, revisions ...kv.Revision) *segment {
		s := &segment{after: after, progress: progress}
		for _, r := range revisions {
			s.batches = append(s.batches, &kv.Batch{Revision: r})
			s.deletes = append(s.deletes, kv.Tombstone{Revision: r})
		}
		return s
	}
	for name, c := range map[string]struct {
		segments []*segment
		want     string // after, progress, revisions
		used     int
	}{
		"none":             {nil, "0 0 []", 0},
		"one":              {[]*segment{of(4, 9, 5, 9)}, "4 9 [5 9]", 1},
		"two":              {[]*segment{of(4, 9, 5, 9), of(9, 12, 10)}, "4 12 [5 9 10]", 2},
		"a gap of one":     {[]*segment{of(4, 8, 5, 8), of(9, 12, 10)}, "9 12 [10]", 1},
		"overlapping":      {[]*segment{of(4, 10, 5, 9, 10), of(9, 12, 10, 11)}, "4 12 [5 9 10 11]", 2},
		"the older longer": {[]*segment{of(4, 20, 5, 20), of(9, 12, 10)}, "4 20 [5 20]", 2},
		"a gap below":      {[]*segment{of(1, 3, 2), of(4, 9, 5), of(9, 12, 12)}, "4 12 [5 12]", 2},
		"the newest empty": {[]*segment{of(4, 9, 5), of(9, 9)}, "4 9 [5]", 2},
	} {
		t.Run(name, func(t *testing.T) {
			got, used := chain(c.segments)
			revisions := []kv.Revision{}
			for i, b := range got.batches {
				if revisions = append(revisions, b.Revision); got.deletes[i].Revision != b.Revision {
					t.Errorf("delete %d has revision %d, want that of its batch", i, got.deletes[i].Revision)
				}
			}
			if s := fmt.Sprint(got.after, " ", got.progress, " ", revisions); s != c.want || used != c.used || len(got.deletes) != len(got.batches) {
				t.Errorf("got %s from %d segments, want %s from %d", s, used, c.want, c.used)
			}
		})
	}
}

// Deletes are used if they continue without a gap up to the beginning of the window, which contains the later
// ones.
func TestDeletesJoinTheWindow(t *testing.T) {
	deletes := func(after, progress kv.Revision, revisions ...kv.Revision) *segment {
		s := &segment{after: after, progress: progress}
		for _, r := range revisions {
			s.deletes = append(s.deletes, kv.Tombstone{Key: "/k", Revision: r})
		}
		return s
	}
	window := &segment{after: 20, progress: 30}
	for name, c := range map[string]struct {
		deletes *segment
		want    string // delta floor, deletes
	}{
		"none":          {nil, "21 []"},
		"longer":        {deletes(9, 30, 10, 20, 21, 30), "10 [10 20]"},
		"just":          {deletes(9, 20, 10, 20), "10 [10 20]"},
		"a gap of one":  {deletes(9, 19, 10, 19), "21 []"},
		"as the window": {deletes(20, 30, 21), "21 []"},
		"one more":      {deletes(19, 30, 20, 21), "20 [20]"},
		"less than it":  {deletes(25, 30, 26), "21 []"},
	} {
		t.Run(name, func(t *testing.T) {
			h := join(window, c.deletes)
			revisions := []kv.Revision{}
			for _, d := range h.Tombstones {
				revisions = append(revisions, d.Revision)
			}
			if got := fmt.Sprint(h.DeltaFloor, " ", revisions); got != c.want || h.Floor != 21 || h.Progress != 30 {
				t.Errorf("got %s, floor %d, progress %d, want %s", got, h.Floor, h.Progress, c.want)
			}
		})
	}
}
