package shard

import (
	"slices"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// Together returns the change after which the parts belong where to does, which
// is how a merge begins: the planner brings them there, and once all have the same
// replicas [Merges] returns the merge. The parts must be to's neighbours, or those
// of other parts; else the merge never comes.
func Together(m *Map, to ID, parts ...ID) (Rehome, error) {
	at := m.positions()
	i, ok := at[to]
	if !ok {
		return Rehome{}, ErrUnknownShard
	}
	var r Rehome
	for _, id := range parts {
		if _, ok := at[id]; !ok {
			return Rehome{}, ErrUnknownShard
		}
		if id != to {
			r.Homes = append(r.Homes, ShardHome{Shard: id, Home: m.Shards[i].homeFor(id)})
		}
	}
	return r, nil
}

// Merges returns the merges that [Together] has prepared and that can be made:
// neighbours with one home and the same replicas, in whatever order. How long they
// have had them, and whether they are warm, is for the caller to know.
func Merges(m *Map) []Merge {
	var merges []Merge
	for i := 0; i < len(m.Shards); {
		run := 1
		for i+run < len(m.Shards) && m.joins(i+run) {
			run++
		}
		parts := m.Shards[i : i+run]
		i += run
		if run == 1 || slices.ContainsFunc(parts[1:], func(s Shard) bool { return !sameNodes(s.Replicas, parts[0].Replicas) }) {
			continue
		}
		merge := Merge{Replicas: slices.Clone(parts[0].Replicas)}
		for _, s := range parts {
			merge.Shards = append(merge.Shards, s.ID)
		}
		merges = append(merges, merge)
	}
	return merges
}

// Joins reports whether m.Shards[i] is about to be merged with a neighbour.
func (m *Map) Joins(i int) bool { return m.joins(i) || m.joins(i+1) }

// Joining returns how many shards there will be less once all that are about to be
// merged are.
func (m *Map) Joining() (n int) {
	for i := range m.Shards {
		if m.joins(i) {
			n++
		}
	}
	return n
}

// Mergeable reports whether m.Shards[i] and the one behind it lie side by side in
// one served range.
func Mergeable(m *Map, i int) bool {
	return i >= 0 && i+1 < len(m.Shards) && m.Shards[i].Range.End == m.Shards[i+1].Range.Start &&
		!slices.ContainsFunc(m.Spec.Ranges, func(r kv.Range) bool { return r.Start == m.Shards[i+1].Range.Start })
}

// joins reports whether the shard at i is to become one with the one before it.
func (m *Map) joins(i int) bool {
	if !Mergeable(m, i-1) {
		return false
	}
	a, b := &m.Shards[i-1], &m.Shards[i]
	return a.Seat() == b.Seat() && a.Home.Replicas == b.Home.Replicas && slices.Equal(a.Home.Pins, b.Home.Pins) &&
		len(a.Replicas) > 0
}

func sameNodes(a, b []NodeID) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(n NodeID) bool { return !slices.Contains(b, n) })
}

// Loosen returns the change that drops all pins and ends all merges that are not
// made yet, so that hashing alone says where shards belong: without homes when
// there is nothing to do. What splits and merges have left where it was stays
// there, as balanced as anything else.
func Loosen(m *Map) Rehome {
	seats := make(map[ID]int, len(m.Shards))
	for i := range m.Shards {
		seats[m.Shards[i].Seat()]++
	}
	var r Rehome
	for i := range m.Shards {
		s := &m.Shards[i]
		h := s.Home
		h.Pins = nil
		if seats[s.Seat()] > 1 {
			h.Seat = 0
		}
		if h.Seat != s.Home.Seat || len(s.Home.Pins) > 0 {
			r.Homes = append(r.Homes, ShardHome{Shard: s.ID, Home: h})
		}
	}
	return r
}
