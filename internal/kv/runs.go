package kv

import (
	"cmp"
	"iter"
	"slices"
)

// Runs yields the indexes of ranges in groups of adjacent ranges: within a group, each range
// ends where the next one starts. Each index is in one group. Overlapping ranges are in
// different groups.
func Runs(ranges []Range) iter.Seq[[]int] {
	order := make([]int, len(ranges))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(ranges[a].Start, ranges[b].Start), cmp.Compare(a, b))
	})
	var runs [][]int
	ends := make(map[string]int) // by end: the run that no range continues yet
	for _, i := range order {
		r := ranges[i]
		at, found := ends[r.Start]
		if found {
			delete(ends, r.Start)
		} else {
			at, runs = len(runs), append(runs, nil)
		}
		runs[at] = append(runs[at], i)
		if r.End != "" { // else there is nothing after it
			ends[r.End] = at
		}
	}
	return slices.Values(runs)
}

// Split yields the events of b per range, with the index of the range. Ranges without events are
// skipped. The ranges are in the order of their keys and do not overlap. Events outside of all
// ranges are left out.
func (b *Batch) Split(ranges []Range) iter.Seq2[int, Batch] {
	if at := rangeOf(ranges, b.Events[0].KV.Key()); at >= 0 && !slices.ContainsFunc(b.Events, func(e Event) bool { return !ranges[at].ContainsBytes(e.KV.Key()) }) {
		return func(yield func(int, Batch) bool) { yield(at, *b) }
	}
	parts := make(map[int][]Event)
	var touched []int
	for i := range b.Events {
		at := rangeOf(ranges, b.Events[i].KV.Key())
		if at < 0 {
			continue
		}
		if parts[at] == nil {
			touched = append(touched, at)
		}
		parts[at] = append(parts[at], b.Events[i])
	}
	return func(yield func(int, Batch) bool) {
		for _, at := range touched {
			part := *b
			part.Events = parts[at]
			if !yield(at, part) {
				return
			}
		}
	}
}

// rangeOf returns the index of the range with the key, below 0 if there is none.
func rangeOf(ranges []Range, key []byte) int {
	at, found := slices.BinarySearchFunc(ranges, key, func(r Range, key []byte) int { return cmp.Compare(r.Start, string(key)) })
	if !found {
		at--
	}
	if at >= 0 && !ranges[at].ContainsBytes(key) {
		return -1
	}
	return at
}
