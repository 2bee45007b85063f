package tree

import (
	"fmt"
	"slices"
	"testing"

	"github.com/shardwatch/shardwatch/client/internal/keyrange"
	"github.com/shardwatch/shardwatch/internal/files/testseed"
)

// The tree equals a map, and its differences equal those of a full comparison.
func TestTree(t *testing.T) {
	rng := testseed.Rand(t)
	h := NewHasher()
	var tr, last *Tree
	model, lastModel := map[string]int64{}, map[string]int64{}
	for i := range 5000 {
		key := fmt.Sprintf("%03d", rng.IntN(200))
		if rng.IntN(3) == 0 {
			tr = tr.Remove([]byte(key))
			delete(model, key)
		} else {
			tr = tr.Put(h, &KeyValue{Key: []byte(key), ModRevision: int64(i)})
			model[key] = int64(i)
		}
		if tr.Len() != len(model) {
			t.Fatalf("step %d: %d keys, want %d", i, tr.Len(), len(model))
		}
		if rng.IntN(10) != 0 {
			continue
		}
		r := keyrange.Range{Start: fmt.Sprintf("%03d", rng.IntN(100)), End: fmt.Sprintf("%03d", 100+rng.IntN(100))}
		var got []string
		tr.Walk(r, func(kv *KeyValue) bool { got = append(got, string(kv.Key)); return true })
		var want []string
		for k, m := range model {
			if k >= r.Start && k < r.End {
				want = append(want, k)
			}
			if kv := tr.Get(k); kv == nil || kv.ModRevision != m {
				t.Fatalf("get %q: %+v, want %d", k, kv, m)
			}
		}
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("walk %v: %q, want %q", r, got, want)
		}
		prev := ""
		n := 0
		Diff(last, tr, func(before, after *KeyValue) {
			n++
			kv := after
			if kv == nil {
				kv = before
			}
			k := string(kv.Key)
			b, hadB := lastModel[k]
			a, hasA := model[k]
			if k <= prev || hadB != (before != nil) || hasA != (after != nil) || hadB && b != before.ModRevision || hasA && a != after.ModRevision || hadB == hasA && a == b {
				t.Fatalf("diff of %q: %v to %v", k, before, after)
			}
			prev = k
		})
		for k, a := range model {
			if b, ok := lastModel[k]; !ok || a != b {
				n--
			}
			delete(lastModel, k)
		}
		if n -= len(lastModel); n != 0 {
			t.Fatalf("diff has %d entries too many", n)
		}
		last = tr
		clear(lastModel)
		for k, m := range model {
			lastModel[k] = m
		}
	}
}
