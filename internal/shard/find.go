package shard

import (
	"slices"
	"sort"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// Find returns the shard that has key, and false when the key is not served.
func (m *Map) Find(key string) (Shard, bool) {
	// The first shard that starts after key; the previous shard may contain it.
	i := sort.Search(len(m.Shards), func(i int) bool { return m.Shards[i].Range.Start > key })
	if i == 0 || !m.Shards[i-1].Range.Contains(key) {
		return Shard{}, false
	}
	return m.Shards[i-1], true
}

// Overlapping returns the shards that contain a key of r, in key order. The
// result is part of the map: it must not be changed.
func (m *Map) Overlapping(r kv.Range) []Shard {
	from := sort.Search(len(m.Shards), func(i int) bool {
		end := m.Shards[i].Range.End
		return end == "" || end > r.Start
	})
	to := len(m.Shards)
	if r.End != "" {
		to = sort.Search(len(m.Shards), func(i int) bool { return m.Shards[i].Range.Start >= r.End })
	}
	if from >= to {
		return nil
	}
	return m.Shards[from:to:to]
}

// Covers reports whether every key of r is served. Adjacent served ranges count
// as one.
func (m *Map) Covers(r kv.Range) bool { return m.Spec.Covers(r) }

// Covers reports whether the ranges contain every key of r; see [Map.Covers].
func (s *Spec) Covers(r kv.Range) bool {
	at := r.Start
	for _, s := range s.Ranges {
		if !s.Contains(at) {
			continue
		}
		if s.End == "" || (r.End != "" && r.End <= s.End) {
			return true
		}
		at = s.End
	}
	return false
}

// Shard returns the shard with the ID, and false when there is none.
func (m *Map) Shard(id ID) (Shard, bool) {
	for i := range m.Shards {
		if m.Shards[i].ID == id {
			return m.Shards[i], true
		}
	}
	return Shard{}, false
}

// Holds reports whether the node is a replica of some shard.
func (m *Map) Holds(n NodeID) bool {
	return slices.ContainsFunc(m.Shards, func(s Shard) bool { return slices.Contains(s.Replicas, n) })
}

// Clone returns a copy that shares nothing with m. The clone of nil is nil.
func (m *Map) Clone() *Map {
	if m == nil {
		return nil
	}
	c := *m
	c.Spec.Ranges = slices.Clone(m.Spec.Ranges)
	c.Shards = slices.Clone(m.Shards)
	c.Drained = slices.Clone(m.Drained)
	for i := range c.Shards {
		c.Shards[i].Replicas = slices.Clone(c.Shards[i].Replicas)
		c.Shards[i].Home = c.Shards[i].Home.clone()
	}
	return &c
}
