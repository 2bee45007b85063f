package cache

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/kv"
)

func TestIndexAgainstList(t *testing.T) {
	rng := testseed.Rand(t)
	for _, size := range []int{3, 50, 400} {
		var x index
		live := map[*Watcher]bool{}
		var list []*Watcher
		for range 4000 {
			if len(live) == 0 || (len(live) < size && rng.IntN(2) == 0) {
				r := randomRange(rng)
				w := &Watcher{r: r, single: r.IsSingle(), watches: 2}
				x.add(w)
				live[w] = true
				list = append(list, w)
			} else {
				at := rng.IntN(len(list))
				w := list[at]
				list[at] = list[len(list)-1]
				list = list[:len(list)-1]
				delete(live, w)
				x.remove(w)
				x.remove(w) // the second call has no effect
			}
			if x.readers != len(live) || x.count != 2*len(live) {
				t.Fatalf("%d watchers and a count of %d, want %d watchers", x.readers, x.count, len(live))
			}
			keys := make([][]byte, 1+rng.IntN(5)) // may contain a key twice
			for i := range keys {
				keys[i] = []byte(randomKey(rng))
			}
			slices.SortFunc(keys, bytes.Compare)
			found := map[*Watcher]bool{}
			x.find(keys, func(e *watchers) {
				for i, w := range e.list {
					if found[w] || !live[w] || w.place != int32(i) || w.r != e.r {
						t.Fatalf("%q: watcher of %v is found twice, is closed, or is in the wrong place", keys, w.r)
					}
					found[w] = true
				}
			})
			for w := range live {
				if want := slices.ContainsFunc(keys, w.r.ContainsBytes); want != found[w] {
					t.Fatalf("%q: watcher of %v found: %v", keys, w.r, found[w])
				}
			}
		}
		n := 0
		x.all(func(e *watchers) { n += len(e.list) })
		if n != len(live) {
			t.Errorf("all has %d watchers, not %d", n, len(live))
		}
		for w := range live {
			x.remove(w)
		}
		if x.count != 0 || len(x.single) != 0 || len(x.byKey) != 0 || x.ranges != nil {
			t.Error("the index is not empty")
		}
	}
}

// Ranges that are added in order do not degrade the tree into a list.
func TestIndexStaysShallow(t *testing.T) {
	var x index
	const n = 10_000
	for i := range n {
		x.add(&Watcher{r: kv.Prefix(fmt.Sprintf("/%05d/", i))})
	}
	var depth func(n *node) int
	depth = func(n *node) int {
		if n == nil {
			return 0
		}
		return 1 + max(depth(n.left), depth(n.right))
	}
	if d, most := depth(x.ranges), int(6*math.Log2(n)); d > most {
		t.Errorf("depth %d exceeds %d", d, most)
	}
}
