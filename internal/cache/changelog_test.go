package cache

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// Changes since a revision have the deletes after it and not those up to it.
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
