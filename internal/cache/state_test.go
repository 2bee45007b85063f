package cache

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/data/keytree"
	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// Every kept revision equals a full copy of the state at it, and no bound is exceeded.
func TestReadsAgainstCopies(t *testing.T) {
	rng := testseed.Rand(t)
	for _, bytes := range []int64{0, 20 << 10, 1 << 30} {
		cfg := small(nil)
		cfg.RootsBytes = bytes
		c := loaded(cfg, 1)
		copies := []map[string]kv.Revision{nil, {}} // by revision
		for revision := kv.Revision(2); revision < 1500; revision++ {
			next := maps.Clone(copies[revision-1])
			copies = append(copies, next)
			if rng.IntN(10) == 0 {
				c.advance(revision)
				continue
			}
			b := batch(revision)
			for range 1 + rng.IntN(4) {
				k := fmt.Sprintf("%03d", rng.IntN(300))
				if _, twice := next[k]; twice && next[k] == revision {
					continue
				}
				if _, there := next[k]; there && rng.IntN(3) == 0 {
					delete(next, k)
					b.Events = append(b.Events, del(k, revision))
				} else {
					next[k] = revision
					b.Events = append(b.Events, put(k, revision))
				}
			}
			c.apply(&b)
			if c.roots.Bytes > bytes || len(c.roots.Roots) > 0 && bytes == 0 {
				t.Fatalf("%d bytes in old roots, the bound is %d", c.roots.Bytes, bytes)
			}
		}
		read := 0
		for revision := range copies {
			if revision == 0 {
				continue
			}
			snap, err := c.At(t.Context(), kv.Revision(revision))
			var compacted *kv.CompactedError
			if errors.As(err, &compacted) {
				if read > 0 || compacted.Floor <= kv.Revision(revision) {
					t.Fatalf("revision %d cannot be read, though %d could: %v", revision, read, err)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			read++
			got := map[string]kv.Revision{}
			snap.Ascend(all, func(item *kv.KeyValue) bool {
				got[string(item.Key())] = item.ModRevision()
				return true
			})
			if !maps.Equal(got, copies[revision]) || snap.Len() != len(got) {
				t.Fatalf("at %d: %d keys, not %d, or others", revision, len(got), len(copies[revision]))
			}
			k := fmt.Sprintf("%03d", rng.IntN(300))
			if item := snap.Get(k); (item != nil) != (got[k] != 0) || item != nil && item.ModRevision() != got[k] {
				t.Fatalf("at %d: Get(%q) = %v", revision, k, item)
			}
		}
		t.Logf("bound %d: %d of %d revisions can be read", bytes, read, len(copies)-1)
		if bytes == 1<<30 && read != len(copies)-1 {
			t.Error("not all revisions within the bound can be read")
		}
	}
}

func TestRootsAge(t *testing.T) {
	l := keytree.Versions{MaxBytes: 1 << 20, MaxAge: time.Minute}
	now := time.Now()
	for revision := range kv.Revision(100) {
		l.Push(revision+1, keytree.New(), 10, now.Add(time.Duration(revision)*time.Second))
	}
	l.Trim(now.Add(99 * time.Second))
	if root, oldest := l.At(39); root != nil || oldest != 40 {
		t.Errorf("at 39: %v, oldest %d", root, oldest)
	}
	if root, _ := l.At(40); root == nil {
		t.Error("40 is gone")
	}
	l.Trim(now.Add(time.Hour))
	if root, oldest := l.At(100); root != nil || oldest != 0 || l.Bytes != 0 {
		t.Errorf("an hour later: %v, oldest %d, %d bytes", root, oldest, l.Bytes)
	}
}

// A transaction puts a key and then deletes it: as in etcd, the previous value of
// the delete is the value before the transaction.
func TestPreviousValueWithinARevision(t *testing.T) {
	c := loaded(small(nil), 10)
	w := watch(t, c, all, 11, &wakes{})
	for _, b := range []kv.Batch{
		batch(11, put("a", 11)),
		batch(12, put("a", 12), del("a", 12), put("new", 12), del("new", 12)),
		batch(13, put("a", 13)),
		batch(14, del("a", 14), put("a", 14)),
	} {
		c.apply(&b)
	}
	var got []string
	for {
		revision, events, err := w.Next(nil)
		if err != nil || revision == 0 {
			break
		}
		for _, e := range events {
			prev := kv.Revision(0)
			if e.Prev != nil {
				prev = e.Prev.ModRevision()
			}
			got = append(got, fmt.Sprintf("%d %s<%d", e.KV.ModRevision(), e.KV.Key(), prev))
		}
	}
	want := []string{"11 a<0", "12 a<11", "12 a<11", "12 new<0", "12 new<0", "13 a<0", "14 a<13", "14 a<0"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if s, err := c.At(t.Context(), 14); err != nil || s.Len() != 1 {
		t.Errorf("%v: %v", s, err)
	}
}
