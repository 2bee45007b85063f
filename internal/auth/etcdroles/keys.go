package etcdroles

import (
	"cmp"
	"slices"
	"sort"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// Keys is a set of keys, as ranges. The zero Keys has none.
type Keys struct {
	// Invariant: ascending, not empty, and apart: between two of them lies a key that is not in the set.
	ranges []kv.Range
}

// KeysOf returns the keys that are in any of the ranges.
func KeysOf(ranges []kv.Range) Keys {
	all := make([]kv.Range, len(ranges))
	for i, r := range ranges {
		all[i] = normal(r)
	}
	return Keys{ranges: union(all)}
}

// Cover reports whether every key of r is in the set. For a range that ends before it begins, its start key
// must be.
func (k Keys) Cover(r kv.Range) bool {
	r = normal(r)
	// The ranges are apart, so r is covered only by one of them: the last that does not begin after r.
	i := sort.Search(len(k.ranges), func(i int) bool { return k.ranges[i].Start > r.Start })
	return i > 0 && k.ranges[i-1].Covers(r)
}

// Without returns the keys of k that are not in the other set.
func (k Keys) Without(other Keys) (left Keys) {
	for _, r := range k.ranges {
		for _, cut := range other.ranges {
			if !cut.Overlaps(r) {
				continue
			}
			if cut.Start > r.Start {
				left.ranges = append(left.ranges, kv.Range{Start: r.Start, End: cut.Start})
			}
			if r.Start = cut.End; r.End != "" && r.Start >= r.End {
				r.Start = ""
			}
			if r.Start == "" { // no key of it is left: a normal range does not start with ""
				break
			}
		}
		if r.Start != "" {
			left.ranges = append(left.ranges, r)
		}
	}
	return left
}

// None reports whether the set is empty.
func (k Keys) None() bool { return len(k.ranges) == 0 }

// lowest is the lowest possible key.
const lowest = "\x00"

// normal returns r with its start at a possible key, because "" and lowest begin the same ranges. It returns
// the start key alone for a range that ends before it begins: an empty range needs the right to read this key.
// (etcd requires this right, too, or denies the request, depending on its tree.)
func normal(r kv.Range) kv.Range {
	r.Start = max(r.Start, lowest)
	if r.End != "" && r.End <= r.Start {
		return kv.Single(r.Start)
	}
	return r
}

// union returns the keys in any of the ranges, which are normal, as ranges that ascend and are apart.
func union(all []kv.Range) (apart []kv.Range) {
	slices.SortFunc(all, func(a, b kv.Range) int { return cmp.Compare(a.Start, b.Start) })
	for _, r := range all {
		if len(apart) == 0 {
			apart = append(apart, r)
			continue
		}
		last := &apart[len(apart)-1]
		switch {
		case last.End == "": // it has no end
		case r.Start > last.End:
			apart = append(apart, r)
		case r.End == "" || r.End > last.End:
			last.End = r.End
		}
	}
	return apart
}
