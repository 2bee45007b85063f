package shard

import (
	"iter"
	"slices"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// MergeGroups yields the shards in key order: neighbours that are about to be merged
// together, and each other shard alone.
func (m *Map) MergeGroups() iter.Seq[[]Shard] {
	return func(yield func([]Shard) bool) {
		for i := 0; i < len(m.Shards); {
			from := i
			for i++; i < len(m.Shards) && m.joins(i); i++ {
			}
			if !yield(m.Shards[from:i:i]) {
				return
			}
		}
	}
}

// Joins reports whether m.Shards[i] is about to be merged with a neighbour.
func (m *Map) Joins(i int) bool { return m.joins(i) || m.joins(i+1) }

// Joining returns by how much the number of shards falls once all pending merges are
// made.
func (m *Map) Joining() (n int) {
	for i := range m.Shards {
		if m.joins(i) {
			n++
		}
	}
	return n
}

// Mergeable reports whether m.Shards[i] and the next shard are adjacent in one
// served range.
func (m *Map) Mergeable(i int) bool {
	return i >= 0 && i+1 < len(m.Shards) && m.Shards[i].Range.End == m.Shards[i+1].Range.Start &&
		!slices.ContainsFunc(m.Spec.Ranges, func(r kv.Range) bool { return r.Start == m.Shards[i+1].Range.Start })
}

// joins reports whether the shard at i will be merged with the shard before it.
func (m *Map) joins(i int) bool {
	if !m.Mergeable(i - 1) {
		return false
	}
	a, b := &m.Shards[i-1], &m.Shards[i]
	return a.Seat() == b.Seat() && a.Home.Replicas == b.Home.Replicas && slices.Equal(a.Home.Pins, b.Home.Pins) &&
		len(a.Replicas) > 0
}
