package shard

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Delta is the difference between a map and an earlier one of the same cluster. It is immutable.
type Delta struct {
	// From is the version of the earlier map.
	From uint64
	// Map is the later map, but only with the new and changed shards, in key order.
	Map Map
	// Removed are the shards of the earlier map that the later one does not have.
	// In a delta from another node, only their IDs are set.
	Removed []Shard

	encode  sync.Once
	encoded []byte
	failed  error
}

// Version returns the version of the later map.
func (d *Delta) Version() uint64 { return d.Map.Version }

// Size returns how many shards the delta names.
func (d *Delta) Size() int { return len(d.Map.Shards) + len(d.Removed) }

// Diff returns the delta from the earlier map to the later one. It shares memory with both.
func Diff(earlier, later *Map) *Delta {
	d := &Delta{From: earlier.Version, Map: *later}
	d.Map.Shards = nil
	before := make(map[ID]*Shard)
	i := 0
	for j := range later.Shards {
		s := &later.Shards[j]
		// Most maps differ in few places: equal shards are skipped in step.
		for i < len(earlier.Shards) && earlier.Shards[i].ID != s.ID && earlier.Shards[i].Range.Start <= s.Range.Start {
			before[earlier.Shards[i].ID] = &earlier.Shards[i]
			i++
		}
		if i < len(earlier.Shards) && earlier.Shards[i].ID == s.ID {
			if !earlier.Shards[i].equal(s) {
				d.Map.Shards = append(d.Map.Shards, *s)
			}
			i++
			continue
		}
		d.Map.Shards = append(d.Map.Shards, *s)
	}
	for ; i < len(earlier.Shards); i++ {
		before[earlier.Shards[i].ID] = &earlier.Shards[i]
	}
	for _, s := range before {
		d.Removed = append(d.Removed, *s)
	}
	slices.SortFunc(d.Removed, func(a, b Shard) int { return cmp.Compare(a.ID, b.ID) })
	return d
}

func (s *Shard) equal(o *Shard) bool {
	return s.ID == o.ID && s.Range == o.Range && s.Epoch == o.Epoch && slices.Equal(s.Replicas, o.Replicas) && s.Home.equal(o.Home)
}

func (h Home) equal(o Home) bool {
	return h.Seat == o.Seat && slices.Equal(h.Pins, o.Pins) && h.Replicas == o.Replicas && h.Parting == o.Parting && h.Whole == o.Whole
}

// ErrOtherMap reports that a delta was made for another map than the given one.
var ErrOtherMap = errors.New("the delta of the shard map was made for another map")

// Apply returns the later map. It fails with [ErrOtherMap], or with the error of Validate if the
// result is not a valid map.
func (d *Delta) Apply(m *Map) (*Map, error) {
	if m == nil || m.Version != d.From || m.ClusterID != d.Map.ClusterID {
		return nil, ErrOtherMap
	}
	gone := make(map[ID]bool, d.Size())
	for i := range d.Removed {
		gone[d.Removed[i].ID] = true
	}
	for i := range d.Map.Shards {
		gone[d.Map.Shards[i].ID] = true
	}
	next := d.Map
	next.Shards = slices.DeleteFunc(slices.Clone(m.Shards), func(s Shard) bool { return gone[s.ID] })
	next.Shards = append(next.Shards, d.Map.Shards...)
	slices.SortFunc(next.Shards, func(a, b Shard) int { return cmp.Compare(a.Range.Start, b.Range.Start) })
	if err := next.Validate(); err != nil {
		return nil, fmt.Errorf("apply the delta from version %d to %d: %w", d.From, d.Version(), err)
	}
	return &next, nil
}

// Then combines two deltas: next starts from the map that d leads to.
func (d *Delta) Then(next *Delta) *Delta {
	out := &Delta{From: d.From, Map: next.Map}
	gone := make(map[ID]bool, next.Size())
	for i := range next.Removed {
		gone[next.Removed[i].ID] = true
	}
	for i := range next.Map.Shards {
		gone[next.Map.Shards[i].ID] = true
	}
	out.Map.Shards = slices.DeleteFunc(slices.Clone(d.Map.Shards), func(s Shard) bool { return gone[s.ID] })
	out.Map.Shards = append(out.Map.Shards, next.Map.Shards...)
	slices.SortFunc(out.Map.Shards, func(a, b Shard) int { return cmp.Compare(a.Range.Start, b.Range.Start) })
	// A shard that was added and removed in between is removed too, which does nothing
	// if the map does not have it.
	out.Removed = slices.Concat(d.Removed, next.Removed)
	return out
}

type wireDelta struct {
	From    uint64  `json:"from"`
	Map     wireMap `json:"map"`
	Removed []ID    `json:"removed,omitempty"`
}

// Encode returns the stable encoding of the delta. It is made once, for all callers.
func (d *Delta) Encode() ([]byte, error) {
	d.encode.Do(func() {
		w := wireDelta{From: d.From, Map: toWireMap(&d.Map)}
		for i := range d.Removed {
			w.Removed = append(w.Removed, d.Removed[i].ID)
		}
		d.encoded, d.failed = encode(byte(d.Map.Level()), w) //nolint:gosec // few
	})
	return d.encoded, d.failed
}

// DecodeDelta decodes the output of Encode. It fails with [ErrNewer] or
// [ErrMalformed]. [Delta.Apply] checks whether the delta is valid.
func DecodeDelta(b []byte) (*Delta, error) {
	var w wireDelta
	if err := decode(b, &w); err != nil {
		return nil, fmt.Errorf("decode the delta of a shard map: %w", err)
	}
	d := &Delta{From: w.From, Map: *fromWireMap(w.Map)}
	for _, id := range w.Removed {
		d.Removed = append(d.Removed, Shard{ID: id})
	}
	return d, nil
}
