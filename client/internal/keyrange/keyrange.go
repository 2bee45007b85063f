// Package keyrange converts ranges of keys, those k with start <= k < end or every
// k >= start if end is empty, from and to the form that etcd's API and ours have, and
// computes with sets of them. All of it is values.
package keyrange

import (
	"cmp"
	"slices"
	"sort"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
)

// Encode returns the range as etcd writes it: an empty end for a single key,
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

// Decode reads what [Encode] writes.
func Decode(key, rangeEnd []byte) (start, end string) {
	start, end = string(key), string(rangeEnd)
	switch {
	case len(rangeEnd) == 0:
		end = start + "\x00"
	case end == "\x00":
		end = ""
	}
	if start == "\x00" && len(rangeEnd) > 0 {
		start = "" // no key lies below "\x00"
	}
	return start, end
}

// Range is a set of keys: those k with Start <= k < End, or every k >= Start if End is empty.
type Range struct{ Start, End string }

// Overlaps reports whether a key may be in both ranges.
func (r Range) Overlaps(o Range) bool {
	return (r.End == "" || o.Start < r.End) && (o.End == "" || r.Start < o.End)
}

// Message returns the ranges as the API has them.
func Message(ranges []Range) []*pb.KeyRange {
	var out []*pb.KeyRange
	for _, r := range ranges {
		one := new(pb.KeyRange)
		one.Key, one.RangeEnd = Encode(r.Start, r.End)
		out = append(out, one)
	}
	return out
}

// Union returns the keys of ranges as ordered, disjoint ranges, most of them at
// most. Beyond that neighbours become one, with the keys between them.
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

// at returns the first of ordered, disjoint ranges that ends after start; len(ranges):
// none.
func at(ranges []Range, start string) int {
	return sort.Search(len(ranges), func(i int) bool { return ranges[i].End == "" || ranges[i].End > start })
}

// Covers reports whether one of ordered, disjoint ranges has all keys of r.
func Covers(ranges []Range, r Range) bool {
	i := at(ranges, r.Start)
	return i < len(ranges) && ranges[i].Start <= r.Start && (ranges[i].End == "" || r.End != "" && r.End <= ranges[i].End)
}

// Touches reports whether ordered, disjoint ranges have keys of r.
func Touches(ranges []Range, r Range) bool {
	i := at(ranges, r.Start)
	return i < len(ranges) && ranges[i].Overlaps(r)
}
