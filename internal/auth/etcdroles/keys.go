package etcdroles

import (
	"cmp"
	"slices"
	"sort"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// Keys is a set of keys, as ranges. The zero Keys has none.
type Keys struct {
	// Invariant: ascending, and apart: between two of them lies a key that is
	// not in the set. None is empty.
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

// Cover reports whether every key of r is in the set. A range that ends before
// it begins is covered by a right to its key.
func (k Keys) Cover(r kv.Range) bool {
	r = normal(r)
	// The ranges are apart, so that r lies in one of them or is not covered:
	// only the last that does not begin behind r can be it.
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
			if r.Start == "" { // no key is left of it: the start of a normal range is not ""
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

// lowest is the lowest key there can be.
const lowest = "\x00"

// normal returns r with its start at a key that can be, because "" and lowest
// begin the same ranges, and the one key for a range that ends before it
// begins: such an empty range needs the right to read its key. (etcd
// says so, too, or denies it, as its tree happens to stand.)
func normal(r kv.Range) kv.Range {
	r.Start = max(r.Start, lowest)
	if r.End != "" && r.End <= r.Start {
		return kv.Single(r.Start)
	}
	return r
}

// union returns the keys that are in any of the ranges, which are normal, as
// ranges that ascend and are apart.
func union(all []kv.Range) (apart []kv.Range) {
	slices.SortFunc(all, func(a, b kv.Range) int { return cmp.Compare(a.Start, b.Start) })
	for _, r := range all {
		if len(apart) == 0 {
			apart = append(apart, r)
			continue
		}
		last := &apart[len(apart)-1]
		switch {
		case last.End == "": // it has all that follows
		case r.Start > last.End:
			apart = append(apart, r)
		case r.End == "" || r.End > last.End:
			last.End = r.End
		}
	}
	return apart
}
