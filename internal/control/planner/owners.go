package planner

import (
	"slices"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// Owners are spread evenly, with as few changes as that takes. Hashing alone says
// which nodes have a shard, but not which of them owns it: of 16 shards on five nodes
// it gives one node six and another one. The load is bounded as in consistent
// hashing with bounded loads (Mirrokni, Thorup, Zadimoghaddam, 2016), with the
// tightest bound: no node owns more than ceil(shards/nodes), and none owns fewer than
// floor(shards/nodes), where the replicas allow it. Nodes of different weights own
// shares in proportion, rounded as Webster's method rounds: the sum of owned²/weight is
// least. Only the choice among a shard's replicas changes: no copy moves for it. This is
// an optimal semi-matching (Harvey, Ladner, Lovász, Tamir, 2003): as long as there is a
// path of shards along which ownership can pass from a node to one that owns at least
// two fewer, or less of its share, it is passed.
//
// It starts from the owners in the map, so a change of the members changes no more
// owners than the bound asks for, and it depends on only the map and the
// members, so every leader plans the same.

// unit has one owner: it is a shard, or neighbours that are about to become one.
// They count as one shard.
type unit struct {
	shards []shard.Shard
	wanted []int32 // the nodes they belong on, as slots, in the order of the hash or of pins
	pinned bool    // the owner is wanted[0]
	holder int32   // owns it before owners are spread; one of wanted
	owner  int32
}

// units returns the units of m that can be placed.
func (p *Planner) units(m *shard.Map) []unit {
	units := make([]unit, 0, len(m.Shards))
	for group := range m.MergeGroups() {
		s := &group[0]
		u := unit{shards: group, wanted: p.belongs(s, s.Wanted(m.Spec)), holder: -1}
		if len(u.wanted) == 0 {
			continue
		}
		if u.pinned = slices.Contains(s.Home.Pins, p.nodes[u.wanted[0]].name); u.pinned {
			u.holder = u.wanted[0]
		}
		for j := range u.shards {
			if slot := p.current(&u.shards[j], u.wanted); u.holder < 0 {
				u.holder = slot
			}
		}
		units = append(units, u)
	}
	p.spread(units)
	return units
}

// current returns the slot of the shard's owner, below 0 when it is none of wanted.
func (p *Planner) current(s *shard.Shard, wanted []int32) int32 {
	for _, slot := range wanted {
		if p.nodes[slot].name == s.Owner() {
			return slot
		}
	}
	return -1
}

// spread sets the owner of each unit, and the holder of those that have none.
func (p *Planner) spread(units []unit) {
	o := owners{p: p, units: units, owned: make([][]int, len(p.candidates)), from: make([]hop, len(p.candidates)), closed: make([]bool, len(p.candidates))}
	for i := range units {
		if units[i].holder >= 0 {
			o.give(i, units[i].holder)
		}
	}
	for i := range units {
		if u := &units[i]; u.holder < 0 {
			u.holder = o.heir(u)
			o.give(i, u.holder)
		}
	}
	o.even()
}

// owners has the owner of each shard. Nodes are named by their rank among the candidates, which
// does not depend on the planner's memory, unlike their slots.
type owners struct {
	p      *Planner
	units  []unit
	owned  [][]int // the units that each node owns
	from   []hop   // of the latest search
	search int     // numbers searches, from 1
	closed []bool  // nodes that can pass nothing on, nor can those they reach
}

// hop is how a search reached a node: the owner of unit passes it on.
type hop struct {
	unit, search int
}

func (o *owners) rank(slot int32) int { return o.p.nodes[slot].rank }

// cost returns the cost of the n-th shard of a node, as a fraction: n-1/2 times 2, by
// the node's weight. If all weights are equal, costs are in the order of n.
func (o *owners) cost(rank, n int) fraction {
	return fraction{2*n - 1, o.p.candidates[rank].weight}
}

// next returns the cost of an additional shard on the node, last the cost of its last one.
func (o *owners) next(rank int) fraction { return o.cost(rank, len(o.owned[rank])+1) }
func (o *owners) last(rank int) fraction { return o.cost(rank, len(o.owned[rank])) }

// fraction is a number; by is above 0.
type fraction struct{ of, by int }

func (f fraction) less(g fraction) bool { return f.of*g.by < g.of*f.by }

func (o *owners) give(i int, slot int32) {
	o.units[i].owner = slot
	o.owned[o.rank(slot)] = append(o.owned[o.rank(slot)], i)
}

// heir returns the node that owns least of its share of those that the unit belongs on, of those
// that have a copy if there are any.
func (o *owners) heir(u *unit) int32 {
	best, warmest := int32(-1), false
	for _, slot := range u.wanted {
		warm := slices.Contains(u.shards[0].Replicas, o.p.nodes[slot].name)
		if best < 0 || (warm && !warmest) || (warm == warmest && o.next(o.rank(slot)).less(o.next(o.rank(best)))) {
			best, warmest = slot, warm
		}
	}
	return best
}

// even passes units on until no node can pass one to a node that it costs less.
func (o *owners) even() {
	for {
		most, fewest := -1, -1
		for r := range o.owned {
			if o.closed[r] {
				continue
			}
			if most < 0 || o.last(most).less(o.last(r)) {
				most = r
			}
			if fewest < 0 || o.next(r).less(o.next(fewest)) {
				fewest = r
			}
		}
		if most < 0 || !o.next(fewest).less(o.last(most)) {
			return
		}
		to := o.path(most)
		if to < 0 {
			// One more costs each node that this one reaches as much as this one's last
			// does, which costs most, so no path through there helps any other node either.
			for r := range o.from {
				if o.from[r].search == o.search {
					o.closed[r] = true
				}
			}
			continue
		}
		o.pass(most, to)
	}
}

// path returns the slot of the node that owns least of its share among the nearest ones
// to which the node can pass a unit at a gain, below 0 if there is none.
func (o *owners) path(start int) int32 {
	o.search++
	o.from[start] = hop{unit: -1, search: o.search}
	for level := []int{start}; len(level) > 0; {
		var next []int
		best := int32(-1)
		for _, r := range level {
			for _, i := range o.owned[r] {
				u := &o.units[i]
				if u.pinned {
					continue
				}
				for _, slot := range u.wanted {
					w := o.rank(slot)
					if o.closed[w] || o.from[w].search == o.search {
						continue
					}
					o.from[w] = hop{unit: i, search: o.search}
					next = append(next, w)
					if o.next(w).less(o.last(start)) && (best < 0 || o.next(w).less(o.next(o.rank(best)))) {
						best = slot
					}
				}
			}
		}
		if best >= 0 {
			return best
		}
		level = next
	}
	return -1
}

// pass moves one unit along each step of the path from start to the node.
func (o *owners) pass(start int, to int32) {
	for o.rank(to) != start {
		i := o.from[o.rank(to)].unit
		from := o.units[i].owner
		at := slices.Index(o.owned[o.rank(from)], i)
		o.owned[o.rank(from)] = slices.Delete(o.owned[o.rank(from)], at, at+1)
		o.give(i, to)
		to = from
	}
}
