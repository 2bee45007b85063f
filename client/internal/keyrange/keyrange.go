// Package keyrange converts ranges of keys (start <= k < end, or k >= start if end is
// empty) to and from the form of etcd's API and ours, and computes with sets of them.
// All types are values.
package keyrange

import (
	"cmp"
	"slices"
	"sort"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
)

// Encode returns the range in the form of etcd's API: an empty end for a single key,
// "\x00" for an open end, and "\x00" for the lowest key.
func Encode(start, end string) (key, rangeEnd []byte) {
	key = []byte(start)
	if start == "" {
		key = []byte{0}
	}
	switch end {
	case start + "\x00":
		return key, nil
	case "":
		return key, []byte{0}
	}
	return key, []byte(end)
}

// Decode is the inverse of [Encode].
func Decode(key, rangeEnd []byte) (start, end string) {
	start, end = string(key), string(rangeEnd)
	switch {
	case len(rangeEnd) == 0:
		end = start + "\x00"
	case end == "\x00":
		end = ""
	}
	if start == "\x00" && len(rangeEnd) > 0 {
		start = "" // no key is below "\x00"
	}
	return start, end
}

// Range is a set of keys: those k with Start <= k < End, or every k >= Start if End is empty.
type Range struct{ Start, End string }

// Overlaps reports whether a key may be in both ranges.
func (r Range) Overlaps(o Range) bool {
	return (r.End == "" || o.Start < r.End) && (o.End == "" || r.Start < o.End)
}

// Message returns the ranges in the form of the API.
func Message(ranges []Range) []*pb.KeyRange {
	var out []*pb.KeyRange
	for _, r := range ranges {
		one := new(pb.KeyRange)
		one.Key, one.RangeEnd = Encode(r.Start, r.End)
		out = append(out, one)
	}
	return out
}

// Union returns the keys of ranges as ordered, disjoint ranges. If there are more than
// most, it merges neighbours, including the keys between them.
func Union(ranges []Range, most int) []Range {
	ranges = slices.SortedFunc(slices.Values(ranges), func(a, b Range) int { return cmp.Compare(a.Start, b.Start) })
	var out []Range
	for _, r := range ranges {
		last := len(out) - 1
		switch {
		case last < 0 || out[last].End != "" && out[last].End < r.Start:
			out = append(out, r)
		case out[last].End != "" && (r.End == "" || r.End > out[last].End):
			out[last].End = r.End
		}
	}
	if len(out) <= most {
		return out
	}
	var fewer []Range
	for part := range slices.Chunk(out, (len(out)+most-1)/most) {
		fewer = append(fewer, Range{Start: part[0].Start, End: part[len(part)-1].End})
	}
	return fewer
}

// at returns the index of the first of ordered, disjoint ranges that ends after start;
// len(ranges): none.
func at(ranges []Range, start string) int {
	return sort.Search(len(ranges), func(i int) bool { return ranges[i].End == "" || ranges[i].End > start })
}

// Covers reports whether one of ordered, disjoint ranges contains r.
func Covers(ranges []Range, r Range) bool {
	i := at(ranges, r.Start)
	return i < len(ranges) && ranges[i].Start <= r.Start && (ranges[i].End == "" || r.End != "" && r.End <= ranges[i].End)
}

// Touches reports whether one of ordered, disjoint ranges overlaps r.
func Touches(ranges []Range, r Range) bool {
	i := at(ranges, r.Start)
	return i < len(ranges) && ranges[i].Overlaps(r)
}
