package cache

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/data/keytree"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// Changes since a revision include the deletes after it, and no earlier ones.
func TestDeletesAreKnownFromARevisionOn(t *testing.T) {
	c := loaded(small(nil), 10)
	for i := range kv.Revision(3) {
		b := puts(11+2*i, fmt.Sprintf("k%d", i))
		c.apply(&b)
		b = batch(12+2*i, del(fmt.Sprintf("k%d", i), 12+2*i))
		c.apply(&b)
	}
	ask := func(since kv.Revision) (deleted []string, floor kv.Revision) {
		found, err := c.Changes(t.Context(), all, since, 16)
		var compacted *kv.CompactedError
		if errors.As(err, &compacted) {
			if compacted.Requested != since+1 {
				t.Errorf("since %d: %+v", since, compacted)
			}
			return nil, compacted.Floor
		}
		if err != nil {
			t.Fatal(err)
		}
		return found.Deleted, 0
	}
	for since, want := range map[kv.Revision][]string{10: {"k0", "k1", "k2"}, 11: {"k0", "k1", "k2"}, 12: {"k1", "k2"}, 15: {"k2"}, 16: nil} {
		deleted, floor := ask(since)
		slices.Sort(deleted)
		if !slices.Equal(deleted, want) || floor != 0 {
			t.Errorf("since %d: %v, floor %d", since, deleted, floor)
		}
	}
	if _, floor := ask(9); floor != 11 {
		t.Errorf("before the start: floor %d", floor)
	}
}

// The cache knows the deletes since the ends of a leap, but not since a revision inside it.
// If there are too many leaps, the oldest is dropped with all deletes before its end.
func TestPositionsAroundLeaps(t *testing.T) {
	l := &changeLog{maxBytes: 1 << 20, maxAge: time.Hour}
	now := time.Now()
	l.reset(keytree.New(), nil, 1, now)
	over := func(i int) hole { return hole{after: kv.Revision(10 * i), before: kv.Revision(10*i + 5)} }
	leap := func(i int) {
		behind := kv.Tombstone{Key: fmt.Sprint("behind ", i), Revision: over(i).before + 1}
		l.leap(keytree.New(), over(i), []string{fmt.Sprint("lost ", i)}, []kv.Tombstone{behind}, now)
	}
	ask := func(since kv.Revision, want ...string) {
		t.Helper()
		_, deletes, err := l.since(since)
		var got []string
		for _, d := range deletes {
			got = append(got, d.Key)
		}
		if err != nil || len(want) > 0 && !slices.Equal(got[:1], want) {
			t.Errorf("since %d: %v, %v, want %v first", since, got, err, want)
		}
	}
	refuse := func(since, floor kv.Revision) {
		t.Helper()
		var compacted *kv.CompactedError
		if _, _, err := l.since(since); !errors.As(err, &compacted) || compacted.Floor != floor || compacted.Requested != since+1 {
			t.Errorf("since %d: %v, want a floor of %d", since, err, floor)
		}
	}
	for i := 1; i <= maxHoles; i++ {
		leap(i)
	}
	for i := 1; i <= maxHoles; i++ {
		h := over(i)
		ask(h.after, fmt.Sprint("lost ", i))
		refuse(h.after+1, h.before+1)
		refuse(h.before-1, h.before+1)
		ask(h.before, fmt.Sprint("behind ", i))
	}
	leap(maxHoles + 1)
	for since := over(1).after; since < over(1).before; since++ {
		refuse(since, over(1).before+1)
	}
	ask(over(1).before, "behind 1")
	ask(over(1).before+1, "lost 2")
	var bytes int64
	for i := range l.deletes {
		bytes += int64(l.deletes[i].Size())
	}
	if l.bytes != bytes {
		t.Errorf("counted %d bytes of deletes, want the %d that are kept", l.bytes, bytes)
	}
}
