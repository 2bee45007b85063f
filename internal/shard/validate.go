package shard

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// Validate returns every mistake in the specification, joined.
func (s *Spec) Validate() error {
	var errs []error
	if len(s.Ranges) == 0 {
		errs = append(errs, errors.New("spec: no range to serve"))
	}
	for i, r := range s.Ranges {
		if r.End != "" && r.End <= r.Start {
			errs = append(errs, fmt.Errorf("spec: range %v is empty", r))
		}
		if i > 0 && !before(s.Ranges[i-1], r) {
			errs = append(errs, fmt.Errorf("spec: range %v overlaps or precedes %v", r, s.Ranges[i-1]))
		}
	}
	if s.Shards < 1 {
		errs = append(errs, fmt.Errorf("spec: %d shards; at least 1 is needed", s.Shards))
	}
	if s.Replicas < 1 {
		errs = append(errs, fmt.Errorf("spec: %d replicas; at least 1 is needed", s.Replicas))
	}
	if s.Owners < 0 {
		errs = append(errs, fmt.Errorf("spec: %d owners; 0 lets all nodes own shards", s.Owners))
	}
	return errors.Join(errs...)
}

// before reports whether a ends before b starts.
func before(a, b kv.Range) bool { return a.End != "" && a.End <= b.Start }

// Validate returns every violation of the map's invariants, joined.
func (m *Map) Validate() error {
	errs := []error{m.Spec.Validate()}
	if m.ClusterID == "" {
		errs = append(errs, errors.New("map: no cluster ID"))
	}
	if m.Lineage == 0 {
		errs = append(errs, errors.New("map: no lineage"))
	}
	if m.Version == 0 {
		errs = append(errs, errors.New("map: version 0"))
	}
	if m.Finalized != 0 && (m.Finalized < LevelSettings || m.Finalized > Level) {
		errs = append(errs, fmt.Errorf("map: finalized feature level %d is not in [%d, %d]", m.Finalized, LevelSettings, Level))
	}
	if m.Generation > m.Version {
		errs = append(errs, fmt.Errorf("map: version %d of generation %d, which begins later", m.Version, m.Generation))
	}
	seen := make(map[ID]bool, len(m.Shards))
	for i := range m.Shards {
		s := &m.Shards[i]
		switch {
		case s.ID == 0 || s.ID >= m.NextID:
			errs = append(errs, fmt.Errorf("shard %d: ID is not in [1, %d)", s.ID, m.NextID))
		case seen[s.ID]:
			errs = append(errs, fmt.Errorf("shard %d: ID is used twice", s.ID))
		}
		seen[s.ID] = true
		if s.Epoch == 0 {
			errs = append(errs, fmt.Errorf("shard %d: epoch 0", s.ID))
		}
		errs = append(errs, validateNodes(s.ID, s.Replicas), validateHome(s, m.NextID))
	}
	for i, n := range m.Drained {
		if n == "" || !utf8.ValidString(string(n)) || (i > 0 && n <= m.Drained[i-1]) {
			errs = append(errs, fmt.Errorf("map: drained node %q is empty, not UTF-8, or out of order", n))
		}
	}
	errs = append(errs, m.validateCover())
	return errors.Join(errs...)
}

// MaxReplicas is the greatest number of replicas, and of pins, that one shard may
// be given. The owner sends every event to each.
const MaxReplicas = 64

func validateHome(s *Shard, next ID) error {
	var errs []error
	h := &s.Home
	if h.Seat >= next || (h.Seat != 0 && h.Seat == s.ID) {
		errs = append(errs, fmt.Errorf("shard %d: seat %d is its own ID, or not a shard's ID so far", s.ID, h.Seat))
	}
	if h.Replicas < 0 || h.Replicas > MaxReplicas || len(h.Pins) > MaxReplicas {
		errs = append(errs, fmt.Errorf("shard %d: %d replicas and %d pins; each is from 0 to %d", s.ID, h.Replicas, len(h.Pins), MaxReplicas))
	}
	if h.Parting < 0 || h.Whole < 0 {
		errs = append(errs, fmt.Errorf("shard %d: watches to part (%d, %d) must not be negative", s.ID, h.Parting, h.Whole))
	}
	return errors.Join(append(errs, validateNodes(s.ID, h.Pins))...)
}

// validateNodes checks a list of nodes. It may be empty, because a cluster may
// be founded before any node can take a shard.
func validateNodes(id ID, nodes []NodeID) error {
	var errs []error
	for i, n := range nodes {
		if n == "" || !utf8.ValidString(string(n)) {
			errs = append(errs, fmt.Errorf("shard %d: node name %q is empty or not UTF-8", id, n))
		}
		for _, o := range nodes[:i] {
			if o == n {
				errs = append(errs, fmt.Errorf("shard %d: node %q is named twice", id, n))
			}
		}
	}
	return errors.Join(errs...)
}

// validateCover walks shards and served ranges in parallel: shards must tile
// each range without gap or overlap, and must not lie outside.
func (m *Map) validateCover() error {
	i := 0
	for _, r := range m.Spec.Ranges {
		at := r.Start
		for {
			if i == len(m.Shards) {
				return fmt.Errorf("map: hole in %v from %q on", r, at)
			}
			s := m.Shards[i].Range
			switch {
			case s.Start < at:
				return fmt.Errorf("shard %d: %v overlaps the shard before it, or is outside the served ranges", m.Shards[i].ID, s)
			case s.Start > at:
				return fmt.Errorf("map: hole from %q to %q", at, s.Start)
			case s.End != "" && s.End <= s.Start:
				return fmt.Errorf("shard %d: %v is empty", m.Shards[i].ID, s)
			case !r.Covers(s):
				return fmt.Errorf("shard %d: %v extends beyond %v", m.Shards[i].ID, s, r)
			}
			i++
			if s.End == r.End {
				break
			}
			at = s.End
		}
	}
	if i < len(m.Shards) {
		return fmt.Errorf("shard %d: %v lies outside the served ranges", m.Shards[i].ID, m.Shards[i].Range)
	}
	return nil
}
