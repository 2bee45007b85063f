package planner_test

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/maptest"
)

func numbered(format string, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf(format, i))
	}
	return out
}

func cuts(keys iter.Seq[string], ranges []kv.Range, n int) []string {
	c := planner.NewCutter(ranges, n)
	for k := range keys {
		c.Add(k)
	}
	return c.Cuts()
}

func TestCuts(t *testing.T) {
	for _, c := range []struct {
		name   string
		keys   []string
		ranges []kv.Range
		n      int
		want   []string
	}{
		{"empty", nil, []kv.Range{{}}, 16, nil},
		{"one part", numbered("k%03d", 100), []kv.Range{{}}, 1, nil},
		{"too few keys", numbered("k%03d", 7), []kv.Range{{}}, 2, nil},
		{"no slash: whole keys", numbered("k%03d", 100), []kv.Range{{}}, 4, []string{"k025", "k050", "k075"}},
		{"one flat directory", numbered("/demo/%03d", 100), []kv.Range{{}}, 2, []string{"/demo/050"}},
		{
			"directories near the ideal place", slices.Concat(numbered("/a/%02d", 45), numbered("/b/%02d", 55)),
			[]kv.Range{{}},
			2,
			[]string{"/b/"},
		},
		{
			"the highest directory wins", slices.Concat(numbered("/a/x/%02d", 45), numbered("/a/y/%02d", 5), numbered("/b/x/%02d", 50)),
			[]kv.Range{{}},
			2,
			[]string{"/b/"},
		},
		{
			"ranges get parts by their keys", slices.Concat(numbered("/a/%02d", 90), numbered("/b/%02d", 10), numbered("/c/%02d", 99)),
			[]kv.Range{kv.Prefix("/a/"), kv.Prefix("/b/")},
			4,
			[]string{"/a/30", "/a/60"},
		},
		{
			"more ranges than parts", numbered("/a/%02d", 90),
			[]kv.Range{kv.Prefix("/a/"), kv.Prefix("/b/")},
			1, nil,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := cuts(slices.Values(c.keys), c.ranges, c.n); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// For any keys: the cuts found a map, no part is empty, and none is far larger
// than its share.
func TestCutsBalance(t *testing.T) {
	rng := testseed.Rand(t)
	for range 60 {
		n := 1 + rng.IntN(40)
		set := map[string]bool{}
		depth, width := 1+rng.IntN(4), 2+rng.IntN(60)
		for range 1 + rng.IntN(20000) {
			var b strings.Builder
			for range depth {
				fmt.Fprintf(&b, "/%d", rng.IntN(width))
			}
			fmt.Fprintf(&b, "-%d", rng.IntN(500))
			set[b.String()] = true
		}
		var keys []string
		for k := range set {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		ranges := []kv.Range{{End: "/5"}, {Start: "/5"}}
		cuts := cuts(slices.Values(keys), ranges, n)
		m := maptest.Found(t, maptest.Spec(n, 1, ranges...), cuts...)
		if len(m.Shards) > max(n, len(ranges)) {
			t.Fatalf("%d shards, %d wanted", len(m.Shards), n)
		}
		parts := map[shard.ID]int{}
		for _, k := range keys {
			s, ok := m.Find(k)
			if !ok {
				t.Fatalf("%q is not served", k)
			}
			parts[s.ID]++
		}
		for _, s := range m.Shards {
			// Two ranges may differ by one part, and a cut may lie a quarter
			// part from its place on either side.
			if share := len(keys) / len(m.Shards); len(cuts) > 0 && parts[s.ID] > share*5/2+8 {
				t.Errorf("%v has %d of %d keys in %d shards", s.Range, parts[s.ID], len(keys), len(m.Shards))
			}
			if len(cuts) > 0 && parts[s.ID] == 0 && !slices.ContainsFunc(ranges, func(r kv.Range) bool { return r == s.Range }) {
				t.Errorf("%v is empty", s.Range)
			}
		}
	}
}

// A million keys need no more memory than a few thousand.
func TestCutterOfMany(t *testing.T) {
	c := planner.NewCutter([]kv.Range{{}}, 16)
	for i := range 1_000_000 {
		c.Add(fmt.Sprintf("/flat/%07d", i))
	}
	cuts := c.Cuts()
	if len(cuts) != 15 {
		t.Fatalf("%d cuts", len(cuts))
	}
	for i, k := range cuts {
		var at int
		if _, err := fmt.Sscanf(k, "/flat/%d", &at); err != nil {
			t.Fatal(err)
		}
		if want := (i + 1) * 62_500; at < want-1000 || at > want+1000 {
			t.Errorf("cut %d is at %d, want about %d", i, at, want)
		}
	}
}

func TestSplits(t *testing.T) {
	m := maptest.Found(t, maptest.Spec(5, 1), "m")
	cuts := []string{"b", "c", "d", "e", "f", "g", "m", "p"}
	// Three more shards are wanted; most cuts lie in the first.
	got := planner.Splits(m, cuts)
	n := len(m.Shards)
	for _, s := range got {
		next, err := shard.Apply(m, shard.Command{IfVersion: m.Version, Change: s})
		if err != nil {
			t.Fatal(err)
		}
		m = next
		n += len(s.At)
	}
	if n != 5 || len(m.Shards) != 5 {
		t.Fatalf("%d shards after %+v", len(m.Shards), got)
	}
	if again := planner.Splits(m, cuts); len(again) > 0 {
		t.Errorf("more splits, but there are enough shards: %+v", again)
	}
	if none := planner.Splits(maptest.Found(t, maptest.Spec(5, 1), "m"), []string{"", "m"}); len(none) > 0 {
		t.Errorf("more splits, but every cut is made: %+v", none)
	}
}
