package keyrange

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// randomRange is a range of keys of one byte.
func randomRange(rng *rand.Rand) Range {
	a, b := rng.IntN(26), rng.IntN(27)
	if a > b {
		a, b = b, a
	}
	r := Range{Start: string(rune('a' + a))}
	if b < 26 {
		r.End = string(rune('a' + max(b, a+1)))
	}
	if a == 0 {
		r.Start = ""
	}
	return r
}

// Ranges behave like the sets of their keys, in every notation.
func TestRangesAsSets(t *testing.T) {
	var probes []string
	for c := 'a'; c <= 'z'; c++ {
		probes = append(probes, string(c), string(c)+"m")
	}
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var ranges []Range
		for range rng.IntN(6) {
			ranges = append(ranges, randomRange(rng))
		}
		in := func(rs []Range, key string) bool {
			return slices.ContainsFunc(rs, func(r Range) bool { return has(r, key) })
		}
		got := Union(ranges, 10)
		for i := 1; i < len(got); i++ {
			if got[i-1].End == "" || got[i-1].End >= got[i].Start {
				t.Fatalf("seed %d: %v are not disjoint", seed, got)
			}
		}
		few := Union(ranges, 2)
		if len(few) > 2 {
			t.Fatalf("seed %d: %v", seed, few)
		}
		r := randomRange(rng)
		covered, touched := true, false
		for _, key := range probes {
			if in(got, key) != in(ranges, key) || in(ranges, key) && !in(few, key) {
				t.Fatalf("seed %d: %s of %v is in %v: %t, in %v: %t", seed, key, ranges, got, in(got, key), few, in(few, key))
			}
			if has(r, key) {
				covered, touched = covered && in(ranges, key), touched || in(ranges, key)
			}
		}
		if Covers(got, r) != covered && r.End != "" || Touches(got, r) != touched {
			t.Fatalf("seed %d: %v covers %v: %t, touches it: %t", seed, got, r, Covers(got, r), Touches(got, r))
		}
	}
	if Union(nil, 3) != nil || Covers(nil, Range{}) || Touches(nil, Range{}) {
		t.Error("an empty list of ranges has keys")
	}
}

// has reports whether r has key.
func has(r Range, key string) bool { return key >= r.Start && (r.End == "" || key < r.End) }
