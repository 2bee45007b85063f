package client

import (
	"cmp"
	"context"
	"slices"
	"sort"
	"time"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
)

const (
	// followAll is how many shards a map may have for a client to follow all of it.
	followAll = 128
	// maxInterest bounds the ranges of which shards are followed. Neighbours become
	// one range beyond that.
	maxInterest = 256
	// mapWait is how long a new watch waits for the shards of its range. Any node
	// serves it then, and it moves home later.
	mapWait = 250 * time.Millisecond
	// narrowEvery is how often a client looks for shards that it need not follow any
	// more.
	narrowEvery = time.Minute
)

// interest is what a client asks a node to send of the map.
type interest struct {
	all    bool    // all shards
	ranges []Range // shards with keys of these; ordered, disjoint
	fresh  []Range // those of ranges whose shards are not known
}

// interest returns what the client needs of the map: the shards that its watches are
// in, or all if they are few.
func (f *follower) interest() interest {
	t := f.topology.Load()
	if t != nil && t.all && len(t.shards.shards) <= followAll {
		return interest{all: true}
	}
	var ranges []Range
	for _, w := range f.c.living() {
		ranges = append(ranges, t.widened(w.asm.rng)) // which never changes
	}
	in := interest{ranges: union(ranges, maxInterest)}
	for _, r := range in.ranges {
		if !t.covers(r) {
			in.fresh = append(in.fresh, r)
		}
	}
	return in
}

// outgrown returns when what was asked for is not what the client needs, or when ctx
// ends.
func (f *follower) outgrown(ctx context.Context, in interest) {
	tick := time.NewTicker(narrowEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.grown:
			t := f.topology.Load()
			if slices.ContainsFunc(f.c.living(), func(w *Watcher) bool { return !t.covers(w.asm.rng) }) {
				return
			}
		case <-tick.C:
			if now := f.interest(); !now.all && (f.topology.Load().all || !slices.Equal(now.ranges, in.ranges)) {
				return
			}
		}
	}
}

// grow has the shards of further ranges followed.
func (f *follower) grow() {
	select {
	case f.grown <- struct{}{}:
	default:
	}
}

// covers reports whether t has all shards with keys of r.
func (t *topology) covers(r Range) bool {
	return t != nil && (t.all || covers(t.known, r))
}

// widened returns r up to the bounds of the known shards that it lies in: further
// watches there need no further shards.
func (t *topology) widened(r Range) Range {
	if t == nil {
		return r
	}
	shards := t.shards.shards
	first := sort.Search(len(shards), func(i int) bool { return shards[i].keys.End == "" || shards[i].keys.End > r.Start })
	last := len(shards)
	if r.End != "" {
		last = sort.Search(len(shards), func(i int) bool { return shards[i].keys.Start >= r.End })
	}
	if first < last {
		r.Start = min(r.Start, shards[first].keys.Start)
		if end := shards[last-1].keys.End; r.End != "" && (end == "" || end > r.End) {
			r.End = end
		}
	}
	return r
}

// narrowed returns t without the shards that in is not about: they are not followed
// any more.
func (t *topology) narrowed(in interest) *topology {
	if t == nil || in.all {
		return t
	}
	next := *t
	next.all, next.known = false, slices.DeleteFunc(slices.Clone(in.ranges), func(r Range) bool { return slices.Contains(in.fresh, r) })
	next.shards.shards = nil
	for _, s := range t.shards.shards {
		if touches(in.ranges, s.keys) {
			next.shards.shards = append(next.shards.shards, s)
		}
	}
	return &next
}

// union returns the keys of ranges as ordered, disjoint ranges, most of them at
// most. Beyond that neighbours become one, with the keys between them.
func union(ranges []Range, most int) []Range {
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

// covers reports whether one of ordered, disjoint ranges has all keys of r.
func covers(ranges []Range, r Range) bool {
	i := at(ranges, r.Start)
	return i < len(ranges) && ranges[i].Start <= r.Start && (ranges[i].End == "" || r.End != "" && r.End <= ranges[i].End)
}

// touches reports whether ordered, disjoint ranges have keys of r.
func touches(ranges []Range, r Range) bool {
	i := at(ranges, r.Start)
	return i < len(ranges) && ranges[i].overlaps(r)
}

func keyRanges(ranges []Range) []*pb.KeyRange {
	var out []*pb.KeyRange
	for _, r := range ranges {
		one := new(pb.KeyRange)
		one.Key, one.RangeEnd = r.wire()
		out = append(out, one)
	}
	return out
}
