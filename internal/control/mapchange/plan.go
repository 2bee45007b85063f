package mapchange

import (
	"slices"

	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// Plan is the effect of an order.
type Plan struct {
	// Version is the map version that the plan was made for.
	Version uint64
	// Change is the change to propose; nil: none, because it is already made.
	Change shard.Change
	// Steps are the changes of shards, in key order.
	Steps []Step
	// Warnings are the refusals that Force has overridden, the reason why the plan
	// is empty, and side effects of the change.
	Warnings []string
}

// Step is the change of one shard, or of several that are split or merged together.
type Step struct {
	// Range covers From and To.
	Range kv.Range
	// From are the shards before, To the shards after the step. Keys that are not served yet
	// have no shard in From, keys that are no longer served none in To. The IDs of split parts
	// assume that no other change comes before; the ID of a merged shard is 0.
	From, To []shard.Shard
	// Filling are the nodes that have to load the shard from others.
	Filling []shard.NodeID
	// Bytes estimates how much they load in total; -1: not known.
	Bytes int64
	// Freed estimates the bytes of the copies that nodes drop; -1: not known.
	Freed int64
}

// maxRounds bounds the planner's rounds: a move takes two, a merge two more.
const maxRounds = 8

// settled returns the map after all changes that the planner makes with these
// members.
func settled(m *shard.Map, members []shard.Member) (*shard.Map, error) {
	var plans planner.Planner
	for range maxRounds {
		var change shard.Change
		if moves := plans.Plan(m, members); len(moves) > 0 {
			change = shard.Assign{Moves: moves}
		} else if merges := planner.Merges(m); len(merges) > 0 {
			change = merges[0]
		} else {
			break
		}
		next, err := shard.Apply(m, shard.Command{IfVersion: m.Version, Change: change})
		if err != nil {
			return nil, err
		}
		m = next
	}
	return m, nil
}

// addSteps fills in the steps.
func (p *Plan) addSteps(c *Cluster, r Request) error {
	m := c.Map
	if p.Change != nil {
		var err error
		if m, err = shard.Apply(m, shard.Command{IfVersion: m.Version, Change: p.Change}); err != nil {
			return err
		}
	}
	end, err := settled(m, c.Members)
	if err != nil {
		return err
	}
	without, err := settled(c.Map, c.Members) // the changes that the planner makes anyway
	if err != nil {
		return err
	}
	spread := func(to shard.Shard) bool { // moves that make nodes own equal numbers of shards after the change
		s, ok := without.Shard(to.ID)
		return ok && !slices.Equal(s.Replicas, to.Replicas)
	}
	for _, s := range diff(c.Map, end) {
		for i := range s.To {
			if s.To[i].ID >= m.NextID {
				s.To[i].ID = 0
			}
		}
		if len(s.From) == 0 || len(s.To) == 0 || slices.ContainsFunc(s.To, spread) || slices.ContainsFunc(s.From, func(from shard.Shard) bool {
			return slices.ContainsFunc(s.To, func(to shard.Shard) bool { return r.touches(&from, &to) })
		}) {
			s.measure(c)
			p.Steps = append(p.Steps, s)
		}
	}
	return nil
}

// diff returns a step for each part of the key space in which the maps differ. The
// parts are as small as possible: each holds whole shards of both maps.
func diff(from, to *shard.Map) (steps []Step) {
	a, b := from.Shards, to.Shards
	for len(a) > 0 || len(b) > 0 {
		i, j := 0, 0
		var part kv.Range
		if len(b) == 0 || (len(a) > 0 && a[0].Range.Start <= b[0].Range.Start) {
			part, i = a[0].Range, 1
		} else {
			part, j = b[0].Range, 1
		}
		for {
			if i < len(a) && a[i].Range.Overlaps(part) {
				part.End = later(part.End, a[i].Range.End)
				i++
			} else if j < len(b) && b[j].Range.Overlaps(part) {
				part.End = later(part.End, b[j].Range.End)
				j++
			} else {
				break
			}
		}
		if i != 1 || j != 1 || a[0].ID != b[0].ID || !slices.Equal(a[0].Replicas, b[0].Replicas) {
			steps = append(steps, Step{Range: part, From: a[:i], To: b[:j]})
		}
		a, b = a[i:], b[j:]
	}
	return steps
}

// later returns the later of two range ends.
func later(a, b string) string {
	if a == "" || b == "" {
		return ""
	}
	return max(a, b)
}

// measure estimates the bytes to copy and the bytes freed. The keys of a shard count
// as evenly spread over its parts. The size of new keys is not known.
func (s *Step) measure(c *Cluster) {
	for i := range s.To {
		for _, n := range s.To[i].Replicas {
			if len(s.From) == 0 {
				s.fills(n, -1)
			}
			for j := range s.From {
				from := &s.From[j]
				if !from.Range.Overlaps(s.To[i].Range) || slices.Contains(from.Replicas, n) {
					continue
				}
				share := c.bytes(from)
				if share > 0 {
					share /= int64(len(s.To))
				}
				s.fills(n, share)
			}
		}
	}
	for i := range s.From {
		from := &s.From[i]
		for _, n := range from.Replicas {
			if !slices.ContainsFunc(s.To, func(to shard.Shard) bool {
				return to.Range.Overlaps(from.Range) && slices.Contains(to.Replicas, n)
			}) {
				s.Freed = sum(s.Freed, c.bytes(from))
			}
		}
	}
}

// fills records that the node has to load so many bytes; below 0: not known.
func (s *Step) fills(n shard.NodeID, bytes int64) {
	if !slices.Contains(s.Filling, n) {
		s.Filling = append(s.Filling, n)
	}
	s.Bytes = sum(s.Bytes, bytes)
}

// sum adds two byte counts, which may be unknown.
func sum(a, b int64) int64 {
	if a < 0 || b < 0 {
		return -1
	}
	return a + b
}

// bytes returns the size of the shard; -1: not known.
func (c *Cluster) bytes(s *shard.Shard) int64 {
	out := int64(-1)
	for _, n := range s.Replicas {
		if held, ok := c.Copies[n][s.ID]; ok && held.Ready {
			out = max(out, held.Bytes)
		}
	}
	return out
}

func (r Split) about(s *shard.Shard) bool { return s.ID == r.Shard }
func (r Merge) about(s *shard.Shard) bool { return s.ID == r.Shard || s.ID == r.With }
func (r Move) about(s *shard.Shard) bool  { return s.ID == r.Shard }
func (r Drain) about(s *shard.Shard) bool { return has(s, r.Nodes) }
func (Undrain) about(*shard.Shard) bool   { return true }
func (Rebalance) about(*shard.Shard) bool { return true }
func (Finalize) about(*shard.Shard) bool  { return true } // shards move to nodes of greater weight

func (r Split) touches(from, _ *shard.Shard) bool { return r.about(from) }
func (r Merge) touches(from, _ *shard.Shard) bool { return r.about(from) }
func (r Move) touches(from, _ *shard.Shard) bool  { return r.about(from) }
func (r Drain) touches(from, _ *shard.Shard) bool { return r.about(from) }
func (r Undrain) touches(_, to *shard.Shard) bool { return has(to, r.Nodes) }
func (Rebalance) touches(_, _ *shard.Shard) bool  { return true }
func (Finalize) touches(_, _ *shard.Shard) bool   { return false }

func has(s *shard.Shard, nodes []shard.NodeID) bool {
	return slices.ContainsFunc(s.Replicas, func(n shard.NodeID) bool { return slices.Contains(nodes, n) })
}

// Ask returns the nodes whose copies [NewPlan] needs, sorted by name.
func Ask(m *shard.Map, r Request) []shard.NodeID {
	var nodes []shard.NodeID
	for i := range m.Shards {
		if s := &m.Shards[i]; r.about(s) {
			nodes = append(nodes, s.Replicas...)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}
