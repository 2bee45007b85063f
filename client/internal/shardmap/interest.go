package shardmap

import (
	"slices"
	"sort"

	"github.com/shardwatch/shardwatch/client/internal/keyrange"
)

const (
	// followAll is how many shards a map may have for a client to follow all of it.
	followAll = 128
	// maxInterest bounds the ranges whose shards are followed. Beyond that neighbours are merged.
	maxInterest = 256
)

// Interest is the part of the map that a client requests from a node.
type Interest struct {
	All    bool             // all shards
	Ranges []keyrange.Range // shards with keys of these; ordered, disjoint
	fresh  []keyrange.Range // those of Ranges whose shards are unknown
}

// Need returns the part of the map that a client needs: the shards that overlap ranges,
// or all if they are few.
func (t *Topology) Need(ranges []keyrange.Range) Interest {
	if t != nil && t.all && len(t.Shards) <= followAll {
		return Interest{All: true}
	}
	wide := make([]keyrange.Range, len(ranges))
	for i, r := range ranges {
		wide[i] = t.widened(r)
	}
	in := Interest{Ranges: keyrange.Union(wide, maxInterest)}
	for _, r := range in.Ranges {
		if !t.Covers(r) {
			in.fresh = append(in.fresh, r)
		}
	}
	return in
}

// Narrower reports whether a client that follows in may follow less, because it needs only now.
func (t *Topology) Narrower(in, now Interest) bool {
	return !now.All && (t.all || !slices.Equal(now.Ranges, in.Ranges))
}

// Covers reports whether t has all shards with keys of r.
func (t *Topology) Covers(r keyrange.Range) bool {
	return t != nil && (t.all || keyrange.Covers(t.known, r))
}

// widened returns r, extended to the bounds of the known shards that it overlaps:
// further watches within them need no further shards.
func (t *Topology) widened(r keyrange.Range) keyrange.Range {
	if t == nil {
		return r
	}
	shards := t.Shards
	first := sort.Search(len(shards), func(i int) bool { return shards[i].Keys.End == "" || shards[i].Keys.End > r.Start })
	last := len(shards)
	if r.End != "" {
		last = sort.Search(len(shards), func(i int) bool { return shards[i].Keys.Start >= r.End })
	}
	if first < last {
		r.Start = min(r.Start, shards[first].Keys.Start)
		if end := shards[last-1].Keys.End; r.End != "" && (end == "" || end > r.End) {
			r.End = end
		}
	}
	return r
}

// Narrowed returns t without the shards outside of in, which are no longer followed.
func (t *Topology) Narrowed(in Interest) *Topology {
	if t == nil || in.All {
		return t
	}
	next := *t
	next.all, next.known = false, slices.DeleteFunc(slices.Clone(in.Ranges), func(r keyrange.Range) bool { return slices.Contains(in.fresh, r) })
	next.Shards = nil
	for _, s := range t.Shards {
		if keyrange.Touches(in.Ranges, s.Keys) {
			next.Shards = append(next.Shards, s)
		}
	}
	return &next
}
