package planner

import (
	"slices"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// Together returns the change that begins a merge: it gives the parts the home of
// to. The planner then moves them to the same nodes, and once all have the same
// replicas [Merges] returns the merge. The parts must be neighbours of to, or of
// other parts; otherwise they are never merged.
func Together(m *shard.Map, to shard.ID, parts ...shard.ID) (shard.Rehome, error) {
	target, ok := m.Shard(to)
	if !ok {
		return shard.Rehome{}, shard.ErrUnknownShard
	}
	var r shard.Rehome
	for _, id := range parts {
		if _, ok := m.Shard(id); !ok {
			return shard.Rehome{}, shard.ErrUnknownShard
		}
		if id != to {
			r.Homes = append(r.Homes, shard.ShardHome{Shard: id, Home: target.HomeFor(id)})
		}
	}
	return r, nil
}

// Merges returns the merges that [Together] has prepared and that can be made:
// neighbours with one home and the same replicas, in any order. The caller must check
// how long they have had these replicas, and whether the replicas are loaded.
func Merges(m *shard.Map) []shard.Merge {
	var merges []shard.Merge
	for parts := range m.MergeGroups() {
		if len(parts) == 1 || slices.ContainsFunc(parts[1:], func(s shard.Shard) bool { return !sameNodes(s.Replicas, parts[0].Replicas) }) {
			continue
		}
		merge := shard.Merge{Replicas: slices.Clone(parts[0].Replicas)}
		for _, s := range parts {
			merge.Shards = append(merge.Shards, s.ID)
		}
		merges = append(merges, merge)
	}
	return merges
}

func sameNodes(a, b []shard.NodeID) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(n shard.NodeID) bool { return !slices.Contains(b, n) })
}

// Loosen returns the change that drops all pins, with the numbers of replicas of pinned
// shards, and ends all merges that are not made yet, so that hashing alone places the
// shards. It has no homes when there is nothing to do. Shards that splits and merges have
// left in place stay there, and are balanced like all others. Shards without pins keep the
// extra replicas that they have for their load.
func Loosen(m *shard.Map) shard.Rehome {
	seats := make(map[shard.ID]int, len(m.Shards))
	for i := range m.Shards {
		seats[m.Shards[i].Seat()]++
	}
	var r shard.Rehome
	for i := range m.Shards {
		s := &m.Shards[i]
		h := s.Home
		if len(h.Pins) > 0 || h.Replicas < m.Spec.Replicas { // fewer replicas without pins: set by an older version
			h.Pins, h.Replicas = nil, 0
		}
		if seats[s.Seat()] > 1 {
			h.Seat = 0
		}
		if h.Seat != s.Home.Seat || len(s.Home.Pins) > 0 || h.Replicas != s.Home.Replicas {
			r.Homes = append(r.Homes, shard.ShardHome{Shard: s.ID, Home: h})
		}
	}
	return r
}
