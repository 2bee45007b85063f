package planner

import (
	"maps"
	"slices"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// Owners are spread evenly, with as few changes of owners as possible. Hashing alone
// chooses the nodes of a shard, but not its owner: of 16 shards on five nodes it gives one
// node six and another node one. The load is bounded as in consistent hashing with bounded
// loads (Mirrokni, Thorup, Zadimoghaddam, 2016), with the tightest bound: no node owns more
// than ceil(shards/nodes), and none owns fewer than floor(shards/nodes), where the replicas
// allow it. Nodes of different weights own shares in proportion, rounded as Webster's
// method rounds: the sum of owned²/weight is least. Only the choice among a shard's
// replicas changes, so no copy moves. This is an optimal semi-matching (Harvey, Ladner,
// Lovász, Tamir, 2003): as long as there is a path of shards along which ownership can pass
// from a node to one that owns at least two fewer, or less of its share, it is passed.
//
// Among equally good choices, neighbours get the same owner: a node watches adjacent shards
// with one watch at etcd, whose events prove the progress of all of them.
//
// Few nodes own all shards as long as their load is small (Spec.Owners, which [Balance]
// sets): a revision needs no report of an owner that has no event of it.
//
// Spreading starts from the owners in the map, so a change of the members changes no more
// owners than the bound requires. It depends only on the map and the members, so every
// leader makes the same plan.

// unit has one owner: it is a shard, or neighbours that are about to be merged,
// which count as one shard.
type unit struct {
	shards []shard.Shard
	wanted []int32 // the nodes where it belongs, as slots, ordered by hash or by pins
	pinned bool    // the owner is wanted[0]
	holder int32   // the owner before owners are spread; one of wanted
	able   []int32 // the nodes of wanted that may own it: at least one
	owner  int32
}

// units returns the units of m that can be placed.
func (p *Planner) units(m *shard.Map) []unit {
	units := make([]unit, 0, len(m.Shards))
	for group := range m.MergeGroups() {
		s := &group[0]
		u := unit{shards: group, wanted: p.belongs(s, s.Wanted(m.Spec)), holder: -1}
		if slices.ContainsFunc(u.wanted, func(slot int32) bool { return p.bars(s, slot) }) {
			live := len(slices.DeleteFunc(slices.Clone(s.Replicas), func(n shard.NodeID) bool { return !p.live[n] }))
			if free := p.choose(s.Seat(), s.Wanted(m.Spec), s.Home.Pins, s); len(free) >= live { // otherwise a draining node waits with its copy
				u.wanted = free
			}
		}
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

// current returns the slot of the shard's owner, below 0 when it is not in wanted.
func (p *Planner) current(s *shard.Shard, wanted []int32) int32 {
	for _, slot := range wanted {
		if p.nodes[slot].name == s.Owner() {
			return slot
		}
	}
	return -1
}

// spread sets the owner of each unit, and the holder of units that have none.
func (p *Planner) spread(units []unit) {
	o := owners{p: p, units: units, owned: make([][]int, len(p.candidates)), from: make([]hop, len(p.candidates)), closed: make([]bool, len(p.candidates))}
	o.few(p.owners)
	for i := range units {
		if units[i].holder >= 0 {
			o.give(i, units[i].holder)
		}
	}
	for i := range units {
		if u := &units[i]; u.holder < 0 {
			u.holder = o.heir(i)
			o.give(i, u.holder)
		}
	}
	o.even()
}

// owners assigns an owner to each unit. Nodes are identified by their rank among the
// candidates, which, unlike their slots, does not depend on the planner's memory.
type owners struct {
	p      *Planner
	units  []unit
	owned  [][]int // the units that each node owns
	from   []hop   // of the latest search
	search int     // numbers searches, from 1
	closed []bool  // nodes that may own nothing, and nodes from which no path leads to a node that can take a unit

	weights int // of all nodes
}

// hop records how a search reached a node: the owner of unit passes the unit to it.
type hop struct {
	unit, search int
}

func (o *owners) rank(slot int32) int { return o.p.nodes[slot].rank }

// cost returns the cost of the n-th shard of a node: 2*(n-1/2), divided by the node's
// weight. If all weights are equal, costs are in the order of n.
func (o *owners) cost(rank, n int) fraction {
	return fraction{2*n - 1, o.p.candidates[rank].weight}
}

// next returns the cost of an additional shard on the node, last the cost of its last shard.
func (o *owners) next(rank int) fraction { return o.cost(rank, len(o.owned[rank])+1) }
func (o *owners) last(rank int) fraction { return o.cost(rank, len(o.owned[rank])) }

// fraction is the number of/by; by is above 0.
type fraction struct{ of, by int }

func (f fraction) less(g fraction) bool { return f.of*g.by < g.of*f.by }

func (o *owners) give(i int, slot int32) {
	o.units[i].owner = slot
	o.owned[o.rank(slot)] = append(o.owned[o.rank(slot)], i)
}

// heir returns the fittest node that may own a unit without an owner. Among equally fit nodes it prefers
// the owner of a neighbour, until that owns its share, then the node that owns the least of its share.
func (o *owners) heir(i int) int32 {
	u := &o.units[i]
	best, most, nearest := int32(-1), 0, false
	for _, slot := range u.able {
		rank, fit := o.rank(slot), o.fit(u, slot)
		near := o.beside(i, slot) > 0 && len(o.owned[rank])+1 <= len(o.units)*o.p.candidates[rank].weight/o.weights
		if best < 0 || fit > most || (fit == most && ((near && !nearest) ||
			(near == nearest && o.nearer(i, slot, best)))) {
			best, most, nearest = slot, fit, near
		}
	}
	return best
}

// fit returns how fit a node is to own the unit. A node with a copy is fitter than one without,
// and, if the unit has no owner yet, a node that is not suspect is fitter than a suspect one.
func (o *owners) fit(u *unit, slot int32) (fit int) {
	n := &o.p.nodes[slot]
	if slices.Contains(u.shards[0].Replicas, n.name) {
		fit = 2
	}
	if u.holder < 0 && !n.suspect {
		fit++
	}
	return fit
}

// nearer reports whether the unit costs less on node a than on node b, or costs the same and a
// owns more of its neighbours.
func (o *owners) nearer(i int, a, b int32) bool {
	x, y := o.next(o.rank(a)), o.next(o.rank(b))
	return x.less(y) || (!y.less(x) && o.beside(i, a) > o.beside(i, b))
}

// beside returns how many neighbours of a unit the node owns: at most 2.
func (o *owners) beside(i int, slot int32) (n int) {
	for _, j := range []int{i - 1, i + 1} {
		if j < 0 || j >= len(o.units) || o.units[j].holder < 0 || o.units[j].owner != slot {
			continue
		}
		a, b := &o.units[min(i, j)], &o.units[max(i, j)]
		if a.shards[len(a.shards)-1].Range.End == b.shards[0].Range.Start {
			n++
		}
	}
	return n
}

// few chooses the nodes that may own units: at least least nodes, but no more than units, and as
// many more as it takes for each unit to have one. 0 chooses all nodes. The present owners stay,
// unless a choice without them needs fewer nodes. A unit loses its holder if that may no longer
// own it.
func (o *owners) few(least int) {
	least = min(least, len(o.units))
	if least <= 0 || least >= len(o.p.candidates) {
		for i := range o.units {
			o.units[i].able = o.units[i].wanted
		}
		for _, c := range o.p.candidates {
			o.weights += c.weight
		}
		return
	}
	heirs := o.heirs()
	may, most := cover(heirs, len(o.p.candidates), least, o.holders(func(*unit) bool { return true }))
	if anew, n := cover(heirs, len(o.p.candidates), least, o.holders(func(u *unit) bool { return u.pinned })); n < most {
		may = anew
	}
	for r, c := range o.p.candidates {
		if o.closed[r] = !may[r]; may[r] {
			o.weights += c.weight
		}
	}
	for i := range o.units {
		u := &o.units[i]
		u.able = slices.DeleteFunc(slices.Clone(u.wanted), func(slot int32) bool { return !may[o.rank(slot)] })
		if !slices.Contains(u.able, u.holder) {
			u.holder = -1
		}
	}
}

// holders returns the ranks of the holders of the units that of accepts.
func (o *owners) holders(of func(*unit) bool) (ranks []int) {
	for i := range o.units {
		if u := &o.units[i]; u.holder >= 0 && of(u) {
			ranks = append(ranks, o.rank(u.holder))
		}
	}
	return ranks
}

// cover chooses nodes, by rank, until there are least of them and each unit has one of its heirs. It
// begins with first, then always takes the node with the most uncovered units (the greedy set cover:
// Chvátal, 1979), or with the most units if that is equal. It returns the number of chosen nodes.
func cover(heirs [][]int, nodes, least int, first []int) (chosen []bool, n int) {
	chosen = make([]bool, nodes)
	on, gain := make([][]int, nodes), make([]int, nodes) // each node's units, and how many of them are not covered
	for i := range heirs {
		for _, r := range heirs[i] {
			on[r] = append(on[r], i)
			gain[r]++
		}
	}
	covered, left := make([]bool, len(heirs)), len(heirs)
	choose := func(r int) {
		chosen[r] = true
		n++
		for _, i := range on[r] {
			if covered[i] {
				continue
			}
			covered[i] = true
			left--
			for _, heir := range heirs[i] {
				gain[heir]--
			}
		}
	}
	for _, r := range first {
		if !chosen[r] {
			choose(r)
		}
	}
	for left > 0 || n < least {
		best := -1
		for r := range chosen {
			if !chosen[r] && (best < 0 || gain[r] > gain[best] || (gain[r] == gain[best] && len(on[r]) > len(on[best]))) {
				best = r
			}
		}
		choose(best)
	}
	return chosen, n
}

// heirs returns, for each unit, the ranks of the fittest of its wanted nodes.
func (o *owners) heirs() [][]int {
	heirs := make([][]int, len(o.units))
	for i := range o.units {
		u, most := &o.units[i], 0
		for _, slot := range u.wanted {
			fit := o.fit(u, slot)
			if fit > most {
				most, heirs[i] = fit, heirs[i][:0]
			}
			if fit == most {
				heirs[i] = append(heirs[i], o.rank(slot))
			}
		}
	}
	return heirs
}

// fewestOwners returns how many nodes a greedy set cover takes to have a copy of each shard, which need not be the
// fewest possible. It ranks nodes as the planner does, so that both find the same number.
func fewestOwners(m *shard.Map) int {
	ranks := make(map[shard.NodeID]int)
	for i := range m.Shards {
		for _, name := range m.Shards[i].Replicas {
			ranks[name] = 0
		}
	}
	for rank, name := range slices.Sorted(maps.Keys(ranks)) {
		ranks[name] = rank
	}
	heirs := make([][]int, 0, len(m.Shards))
	for i := range m.Shards {
		var on []int
		for _, name := range m.Shards[i].Replicas {
			on = append(on, ranks[name])
		}
		if len(on) > 0 {
			heirs = append(heirs, on)
		}
	}
	_, n := cover(heirs, len(ranks), 0, nil)
	return n
}

// even passes units on until no node can pass a unit to a node where it costs less.
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
			// On each node that this node reaches, an additional unit costs at least as much as this node's
			// last unit, the most expensive of all. So no path through those nodes helps any other node.
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

// path searches the nodes to which the start can pass a unit at a gain. Of the nearest ones
// it returns the slot of the node that owns the least of its share, below 0 if there is none.
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
				for _, slot := range u.able {
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

// pass moves one unit along each step of the path from start to the node. It prefers the unit
// that leaves the fewest neighbours with different owners.
func (o *owners) pass(start int, to int32) {
	for o.rank(to) != start {
		from := o.units[o.from[o.rank(to)].unit].owner
		owned, at, most := o.owned[o.rank(from)], -1, 0
		for k, i := range owned {
			if u := &o.units[i]; u.pinned || !slices.Contains(u.able, to) {
				continue
			}
			gain := o.beside(i, to) - o.beside(i, from)
			if o.units[i].shards[0].Owner() != o.p.nodes[from].name { // its owner changes anyway
				gain += 4
			}
			if at < 0 || gain > most {
				at, most = k, gain
			}
		}
		i := owned[at]
		o.owned[o.rank(from)] = slices.Delete(owned, at, at+1)
		o.give(i, to)
		to = from
	}
}
