package shard

import (
	"fmt"
	"slices"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// MaxRanges is the greatest number of served ranges that [Configure] accepts. Every
// node and every client holds them.
const MaxRanges = 256

func (c Configure) apply(m *Map) (*Map, error) {
	switch {
	case c.Replicas < 1 || c.Replicas > MaxReplicas:
		return nil, fmt.Errorf("%w: %d replicas; from 1 to %d are possible", ErrInvalid, c.Replicas, MaxReplicas)
	case len(c.Ranges) > MaxRanges:
		return nil, fmt.Errorf("%w: %d served ranges; at most %d are possible", ErrInvalid, len(c.Ranges), MaxRanges)
	}
	next := m.next()
	next.Spec.Replicas, next.Spec.Owners, next.Spec.Ranges = c.Replicas, c.Owners, slices.Clone(c.Ranges)
	if err := next.Spec.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	next.Shards = nil
	for _, r := range c.Ranges {
		next.tile(r, m)
	}
	for i := range next.Shards {
		// Extra replicas for watches end when all shards now have at least as many.
		if h := &next.Shards[i].Home; len(h.Pins) == 0 && h.Replicas <= c.Replicas {
			h.Replicas = 0
		}
	}
	return next, nil
}

// tile appends the shards of a served range: the shards of before where they cover
// it, and new shards for the gaps.
func (m *Map) tile(r kv.Range, before *Map) {
	add := func(s Shard) {
		s.ID, s.Epoch = m.NextID, 1
		m.Shards = append(m.Shards, s)
		m.NextID++
	}
	at := r.Start
	for _, s := range before.Overlapping(r) {
		part, _ := s.Range.Intersect(r)
		if at < part.Start {
			add(Shard{Range: kv.Range{Start: at, End: part.Start}})
		}
		if part == s.Range {
			m.Shards = append(m.Shards, s)
		} else {
			add(Shard{Range: part, Replicas: s.Replicas, Home: s.HomeFor(m.NextID)})
		}
		if at = part.End; at == r.End {
			return
		}
	}
	add(Shard{Range: kv.Range{Start: at, End: r.End}})
}
