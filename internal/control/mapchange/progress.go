package mapchange

import (
	"slices"

	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// Progress is how far a plan has come.
type Progress struct {
	// Version is the version of the map.
	Version uint64
	// Left is the number of steps that are not done.
	Left int
	// Filling are replicas that are being loaded.
	Filling []Filling
	Done    bool
}

// Filling is a replica that is being loaded.
type Filling struct {
	Shard shard.ID
	Node  shard.NodeID
	// Bytes is how much of about OfBytes it has loaded; 0: not known.
	Bytes, OfBytes int64
}

// Progress compares the plan with the state c. Moves that the planner would still make
// count as left, and so does a replica that c.Copies does not report as ready.
func (p *Plan) Progress(c *Cluster, plans *planner.Planner) Progress {
	out := Progress{Version: c.Map.Version}
	moving := make(map[shard.ID]bool)
	for _, mv := range plans.Plan(c.Map, c.Members) {
		moving[mv.Shard] = true
	}
	for _, step := range p.Steps {
		left := false
		now := c.Map.Overlapping(step.Range)
		for i := range now {
			s := &now[i]
			left = left || moving[s.ID] || c.joins(s.ID)
			for _, n := range s.Replicas {
				copies, asked := c.Copies[n]
				if held := copies[s.ID]; asked && !held.Ready {
					out.Filling = append(out.Filling, Filling{Shard: s.ID, Node: n, Bytes: held.Bytes, OfBytes: max(0, c.bytes(s))})
				} else if asked {
					continue
				}
				left = true
			}
		}
		if left {
			out.Left++
		}
	}
	out.Done = out.Left == 0
	return out
}

// Ask returns the nodes whose copies [Plan.Progress] needs, sorted by name: the
// replicas of the plan's shards.
func (p *Plan) Ask(m *shard.Map) []shard.NodeID {
	var nodes []shard.NodeID
	for _, step := range p.Steps {
		for _, s := range m.Overlapping(step.Range) {
			nodes = append(nodes, s.Replicas...)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}
