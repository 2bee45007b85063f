package shard

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// Plan returns the moves that bring the map nearer to where its shards belong
// on these members; none when they are there, or when nobody is left.
//
// Where a shard belongs is rendezvous hashing: the Spec.Replicas nodes with the
// highest scores, a node of a zone that has fewer of them first. It depends on
// nothing but the shard's ID and the members, so when a node goes only its
// shards move, and when it returns only those come back. Members that are
// alive or suspect can have shards; those that drain only when there are no
// others.
//
// One plan is one step, and a step is careful with what is warm: among the
// replicas that result there is always one that has the shard and lives, and
// newcomers stand behind all that have it. So a node is a replica before it
// becomes owner, by a later plan, and a shard may have one replica too many
// meanwhile. Two plans, each applied, are enough to arrive.
func Plan(m *Map, members []Member) []Move {
	p := newPlanner(members)
	var moves []Move
	for i := range m.Shards {
		s := &m.Shards[i]
		if next := p.step(s, m.Spec.Replicas); len(next) > 0 && !slices.Equal(next, s.Replicas) {
			moves = append(moves, Move{Shard: s.ID, Replicas: next})
		}
	}
	return moves
}

// Place returns f with the replicas that its shards belong on.
func Place(f Found, members []Member) (Found, error) {
	f.Replicas = nil
	m, err := Apply(nil, Command{Change: f})
	if err != nil {
		return Found{}, err
	}
	p := newPlanner(members)
	for i := range m.Shards {
		f.Replicas = append(f.Replicas, p.step(&m.Shards[i], f.Spec.Replicas))
	}
	return f, nil
}

type planner struct {
	nodes []planNode // candidates
	zones []int      // scratch: replicas per zone
	live  map[NodeID]bool
	drain map[NodeID]bool
}

type planNode struct {
	name  NodeID
	hash  uint64
	zone  int // index; a node without a zone is one by itself
	score uint64
	taken bool
}

func newPlanner(members []Member) *planner {
	members = slices.Clone(members)
	slices.SortFunc(members, func(a, b Member) int { return cmp.Compare(a.Name, b.Name) })
	p := &planner{live: map[NodeID]bool{}, drain: map[NodeID]bool{}}
	zones := map[string]int{}
	add := func(m Member) {
		z, ok := zones[m.Zone]
		if m.Zone == "" || !ok {
			z = len(p.zones)
			p.zones = append(p.zones, 0)
			zones[m.Zone] = z
		}
		p.nodes = append(p.nodes, planNode{name: m.Name, hash: xxhash.Sum64String(string(m.Name)), zone: z})
	}
	for _, m := range members {
		if m.State != Alive && m.State != Suspect {
			continue
		}
		p.live[m.Name] = true
		if m.Draining {
			p.drain[m.Name] = true
		} else {
			add(m)
		}
	}
	if len(p.nodes) == 0 { // only draining ones are left: better than nobody
		for _, m := range members {
			if p.live[m.Name] {
				add(m)
			}
		}
		clear(p.drain)
	}
	return p
}

// step returns the shard's next replicas; empty when there is no candidate.
func (p *planner) step(s *Shard, replicas int) []NodeID {
	desired := p.desired(s.ID, replicas)
	if len(desired) == 0 {
		return nil
	}
	var have, fresh []NodeID
	for _, n := range desired {
		if slices.Contains(s.Replicas, n) {
			have = append(have, n)
		} else {
			fresh = append(fresh, n)
		}
	}
	if len(have) == 0 {
		if keep := p.keep(s); keep != "" {
			have = []NodeID{keep}
		}
	}
	return append(have, fresh...)
}

// keep returns the live replica to keep when none of them is desired: the
// first that does not drain, else the first.
func (p *planner) keep(s *Shard) NodeID {
	var keep NodeID
	for _, n := range s.Replicas {
		if p.live[n] && !p.drain[n] {
			return n
		}
		if p.live[n] && keep == "" {
			keep = n
		}
	}
	return keep
}

// desired returns where the shard belongs, in order of preference.
func (p *planner) desired(id ID, replicas int) []NodeID {
	for i := range p.nodes {
		n := &p.nodes[i]
		n.score, n.taken = score(id, n.hash), false
	}
	clear(p.zones)
	out := make([]NodeID, 0, min(replicas, len(p.nodes)))
	for len(out) < cap(out) {
		var best *planNode
		for i := range p.nodes {
			n := &p.nodes[i]
			if !n.taken && (best == nil || p.zones[n.zone] < p.zones[best.zone] ||
				(p.zones[n.zone] == p.zones[best.zone] && n.score > best.score)) {
				best = n
			}
		}
		best.taken = true
		p.zones[best.zone]++
		out = append(out, best.name)
	}
	return out
}

// score is how much the shard wants to be on the node. Nodes come in the order
// of their names, so that equal scores have an order too.
func score(id ID, node uint64) uint64 {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:8], uint64(id))
	binary.LittleEndian.PutUint64(b[8:], node)
	return xxhash.Sum64(b[:])
}
