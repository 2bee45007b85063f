package planner

import (
	"cmp"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// Plan returns the moves that bring the map closer to the right placement of its
// shards on these members; none when it is reached, or when no member is left.
//
// Rendezvous hashing chooses the nodes of a shard: as many as the shard's home, or
// else the specification, asks for, by highest score, and nodes of a zone that has
// fewer of them first. This depends on only the home and the members, so when a node
// goes only its copies move, and when it returns only those move back. Nodes of
// greater weight are chosen more often, once LevelSettings is finalized. Members that
// are alive or suspect can have shards. Members that drain, by gossip or in the map,
// get shards only when there are no others. Pinned nodes that can have shards come
// before all others, and the first of them owns the shard. Otherwise owners stay,
// unless nodes own unequal numbers of shards or more nodes than necessary own shards
// (see owners.go). Suspect nodes become owners last.
//
// One plan is one step, and a step keeps warm replicas: the resulting replicas always
// include a live one that already has the shard, and newcomers come after all
// replicas that have it. So a node is first a replica and becomes the owner by a
// later plan, and a shard may have one replica too many in between. Two plans, each
// applied, reach the placement.
func Plan(m *shard.Map, members []shard.Member) []shard.Move { return new(Planner).Plan(m, members) }

// Place returns f with the right replicas for its shards.
func Place(f shard.Found, members []shard.Member) (shard.Found, error) {
	f.Replicas = nil
	m, err := shard.Apply(nil, shard.Command{Change: f})
	if err != nil {
		return shard.Found{}, err
	}
	var p Planner
	p.meet(m, members)
	units := p.units(m)
	if len(units) == 0 { // no node can have a shard
		f.Replicas = make([][]shard.NodeID, len(m.Shards))
		return f, nil
	}
	for i := range units {
		f.Replicas = append(f.Replicas, p.step(&m.Shards[i], &units[i])) // none has neighbours to be merged with
	}
	return f, nil
}

// Planner is [Plan] for repeated use: it remembers the placement of each shard, and
// recomputes only the shards that a change of the members affects. Its plans do not
// depend on its memory. The zero Planner is ready for use, by one goroutine.
type Planner struct {
	nodes      []planNode             // all candidates so far, in order of appearance
	candidates []candidate            // ordered by name
	slots      map[shard.NodeID]int32 // the index of each candidate in nodes
	zones      map[string]int32
	known      map[shard.ID]*belonging

	weighted    bool // the candidates have different weights
	owners      int  // Spec.Owners of the map
	live, drain map[shard.NodeID]bool
	barred      map[shard.NodeID]bool
	scratch     []zoneScratch
}

// zoneScratch is the state of choose for one zone.
type zoneScratch struct {
	best  []pick // its nodes with the highest scores, in descending order
	next  int    // index in best
	taken int    // number of nodes chosen
}

// planNode is a node that is or was a candidate. A node that becomes a candidate
// again, or whose zone or weight changes, gets a new planNode.
type planNode struct {
	name shard.NodeID
	lane uint64
	zone int32 // below 0: no zone, which counts as a zone of its own

	weight  int
	in      bool // is a candidate
	suspect bool // a candidate that is suspect
	rank    int  // among the candidates, if it is one
}

// candidate holds the properties of a node that choose needs, close together in memory.
type candidate struct {
	lane   uint64
	slot   int32
	zone   int32
	weight int
}

// belonging is the placement of a shard without pins.
type belonging struct {
	seat  shard.ID
	count int
	nodes []int32 // in order of preference; fewer than count when there are no more
	seen  int     // len(Planner.nodes) when nodes was last valid
}

type pick struct {
	slot  int32
	score uint64
}

// Plan returns the same moves as the function [Plan].
func (p *Planner) Plan(m *shard.Map, members []shard.Member) []shard.Move {
	return p.plan(m, members, nil)
}

// plan is Plan, but gives no further shards to nodes that are barred.
func (p *Planner) plan(m *shard.Map, members []shard.Member, barred map[shard.NodeID]bool) []shard.Move {
	p.meet(m, members)
	p.barred = barred
	var moves []shard.Move
	units := p.units(m)
	for i := range units {
		u := &units[i]
		for j := range u.shards {
			s := &u.shards[j]
			if next := p.step(s, u); !slices.Equal(next, s.Replicas) {
				moves = append(moves, shard.Move{Shard: s.ID, Replicas: next})
			}
		}
	}
	if len(p.known) > 2*len(m.Shards)+64 { // mostly shards that no longer exist
		p.known = nil
	}
	return moves
}

// meet updates the candidates from the members.
func (p *Planner) meet(m *shard.Map, members []shard.Member) {
	members = slices.DeleteFunc(slices.Clone(members), func(n shard.Member) bool { return n.State != shard.Alive && n.State != shard.Suspect })
	slices.SortFunc(members, func(a, b shard.Member) int { return cmp.Compare(a.Name, b.Name) })
	weighted := m.FinalLevel() >= shard.LevelSettings && slices.ContainsFunc(members, func(n shard.Member) bool { return weightOf(&n) != weightOf(&members[0]) })
	if weighted != p.weighted {
		*p = Planner{weighted: weighted}
	}
	if len(p.nodes) > 2*len(p.candidates)+64 { // mostly nodes that are gone
		*p = Planner{weighted: weighted}
	}
	if p.zones == nil {
		p.zones = make(map[string]int32)
	}
	p.owners = m.Spec.Owners
	p.live, p.drain = make(map[shard.NodeID]bool, len(members)), make(map[shard.NodeID]bool)
	for _, n := range members {
		p.live[n.Name] = true
		if n.Draining || m.IsDrained(n.Name) {
			p.drain[n.Name] = true
		}
	}
	if len(p.drain) == len(members) { // all nodes drain: better than no node
		clear(p.drain)
	}
	for _, slot := range p.slots {
		p.nodes[slot].in = false
	}
	slots := make(map[shard.NodeID]int32, len(members))
	p.candidates = p.candidates[:0]
	for i := range members {
		n := &members[i]
		if p.drain[n.Name] {
			continue
		}
		zone, weight := p.zone(n.Zone), 1
		if weighted {
			weight = weightOf(n)
		}
		slot, ok := p.slots[n.Name]
		if !ok || p.nodes[slot].zone != zone || p.nodes[slot].weight != weight {
			slot = int32(len(p.nodes)) //nolint:gosec // nodes are few
			p.nodes = append(p.nodes, planNode{name: n.Name, lane: lane(xxhash.Sum64String(string(n.Name))), zone: zone, weight: weight})
		}
		p.nodes[slot].in, p.nodes[slot].suspect, p.nodes[slot].rank = true, n.State == shard.Suspect, len(p.candidates)
		slots[n.Name] = slot
		p.candidates = append(p.candidates, candidate{lane: p.nodes[slot].lane, slot: slot, zone: zone, weight: weight})
	}
	p.slots = slots
}

// score returns the score of a node for the seat whose hash state is start.
func (p *Planner) score(start, lane uint64, weight int) uint64 {
	s := score(start, lane)
	if p.weighted {
		return weigh(s, weight)
	}
	return s
}

func (p *Planner) zone(name string) int32 {
	if name == "" {
		return -1
	}
	z, ok := p.zones[name]
	if !ok {
		z = int32(len(p.zones)) //nolint:gosec // zones are few
		p.zones[name] = z
	}
	return z
}

// step returns the next replicas of a shard of the unit. It may return the present
// replicas: the order of replicas that are neither owner nor pinned does not matter.
func (p *Planner) step(s *shard.Shard, u *unit) []shard.NodeID {
	if p.rests(s, u) {
		return s.Replicas
	}
	order := make([]int32, 0, len(u.wanted)+3)
	order = append(order, u.owner)
	if !slices.Contains(s.Replicas, p.nodes[u.owner].name) { // until it is a replica
		if now := p.current(s, u.wanted); now >= 0 {
			order = append(order, now)
		}
		order = append(order, u.holder)
	}
	order = append(order, u.wanted...)
	have, fresh := make([]shard.NodeID, 0, len(u.wanted)+1), make([]shard.NodeID, 0, len(u.wanted))
	for _, slot := range order {
		switch n := p.nodes[slot].name; {
		case slices.Contains(have, n) || slices.Contains(fresh, n):
		case slices.Contains(s.Replicas, n):
			have = append(have, n)
		default:
			fresh = append(fresh, n)
		}
	}
	if len(have) == 0 {
		if keep := p.keep(s); keep != "" {
			have = append(have, keep)
		}
	}
	return append(have, fresh...)
}

// rests reports whether the shard has its wanted owner and replicas.
func (p *Planner) rests(s *shard.Shard, u *unit) bool {
	if len(s.Replicas) != len(u.wanted) || s.Replicas[0] != p.nodes[u.owner].name {
		return false
	}
	for i, slot := range u.wanted {
		if n := p.nodes[slot].name; !slices.Contains(s.Replicas, n) || (u.pinned && s.Replicas[i] != n) {
			return false
		}
	}
	return true
}

// keep returns the live replica to keep when none of them is wanted: the first
// that does not drain, otherwise the first.
func (p *Planner) keep(s *shard.Shard) shard.NodeID {
	var keep shard.NodeID
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

// belongs returns the nodes where the shard belongs, in order of preference.
func (p *Planner) belongs(s *shard.Shard, count int) []int32 {
	if len(s.Home.Pins) > 0 {
		return p.choose(s.Seat(), count, s.Home.Pins, nil)
	}
	b := p.known[s.ID]
	if b == nil || b.seat != s.Seat() || b.count != count || !p.holds(b) {
		b = &belonging{seat: s.Seat(), count: count, nodes: p.choose(s.Seat(), count, nil, nil)}
		if p.known == nil {
			p.known = make(map[shard.ID]*belonging)
		}
		p.known[s.ID] = b
	}
	b.seen = len(p.nodes)
	return b.nodes
}

// holds reports whether choose would still return b. The loss of a node that was
// not chosen makes no difference. A new node makes one if it would be chosen
// before one of b's nodes.
func (p *Planner) holds(b *belonging) bool {
	for _, slot := range b.nodes {
		if !p.nodes[slot].in {
			return false
		}
	}
	for slot := b.seen; slot < len(p.nodes); slot++ {
		if n := &p.nodes[slot]; n.in && p.displaces(b, n) {
			return false
		}
	}
	return true
}

// displaces reports whether choose would choose n before one of b's nodes.
func (p *Planner) displaces(b *belonging, n *planNode) bool {
	if len(b.nodes) < b.count {
		return true
	}
	start := start(b.seat)
	mine := p.score(start, n.lane, n.weight)
	for i, slot := range b.nodes {
		other := &p.nodes[slot]
		crowd, crowded := 0, 0 // chosen nodes in the zone of n, and in that of other
		for _, before := range b.nodes[:i] {
			if z := p.nodes[before].zone; z >= 0 {
				if z == n.zone {
					crowd++
				}
				if z == other.zone {
					crowded++
				}
			}
		}
		if theirs := p.score(start, other.lane, other.weight); crowd < crowded ||
			(crowd == crowded && (mine > theirs || (mine == theirs && n.name < other.name))) {
			return true
		}
	}
	return false
}

// choose returns at most count nodes: first the pins that are candidates, then the nodes
// with the highest scores, each from a zone with the fewest chosen nodes. If barring is
// set, it leaves out barred nodes that do not have that shard.
func (p *Planner) choose(seat shard.ID, count int, pins []shard.NodeID, barring *shard.Shard) []int32 {
	out := make([]int32, 0, min(count, len(p.candidates)))
	alone := len(p.zones) // index of the nodes without a zone, which counts as the emptiest
	for len(p.scratch) <= alone {
		p.scratch = append(p.scratch, zoneScratch{})
	}
	zones := p.scratch[:alone+1]
	for z := range zones {
		zones[z].best, zones[z].next, zones[z].taken = zones[z].best[:0], 0, 0
	}
	for _, n := range pins {
		if slot, ok := p.slots[n]; ok && !p.bars(barring, slot) {
			out = append(out, slot)
			if z := p.nodes[slot].zone; z >= 0 {
				zones[z].taken++
			}
		}
	}
	pinned, start := len(out), start(seat)
	for _, c := range p.candidates {
		z := int(c.zone)
		if z < 0 {
			z = alone
		}
		best, s := zones[z].best, p.score(start, c.lane, c.weight)
		if full := len(best) == count; full && s <= best[count-1].score {
			continue // true for most nodes
		} else if slices.Contains(out[:pinned], c.slot) || p.bars(barring, c.slot) {
			continue
		} else if full {
			best = best[:count-1]
		}
		at := len(best)
		for at > 0 && s > best[at-1].score { // equal scores keep the order of the names
			at--
		}
		zones[z].best = slices.Insert(best, at, pick{slot: c.slot, score: s})
	}
	for len(out) < cap(out) {
		var from *zoneScratch
		for z := range zones {
			if o := &zones[z]; o.next < len(o.best) && (from == nil || o.taken < from.taken ||
				(o.taken == from.taken && p.before(o.best[o.next], from.best[from.next]))) {
				from = o
			}
		}
		if from == nil {
			break // all others are barred
		}
		out = append(out, from.best[from.next].slot)
		from.next++
		if from != &zones[alone] {
			from.taken++
		}
	}
	return out
}

// bars reports whether the node must not be given the shard s; nil: no node is barred.
func (p *Planner) bars(s *shard.Shard, slot int32) bool {
	return s != nil && p.barred[p.nodes[slot].name] && !slices.Contains(s.Replicas, p.nodes[slot].name)
}

// before reports whether choose prefers a to b when their zones are equally full.
func (p *Planner) before(a, b pick) bool {
	return a.score > b.score || (a.score == b.score && p.nodes[a.slot].name < p.nodes[b.slot].name)
}
