package placement

import (
	"slices"
	"time"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// Rules say when a planned move is made. Gossip is a hint: the planner knows
// what should be where, the rules how sure one must be of it.
type Rules struct {
	// See Config for each.
	Settle, DeadGrace, MoveInterval, PromoteDelay time.Duration
}

// History is what a leader remembers of its own doing. The zero History is
// that of a new leader.
type History struct {
	changed map[shard.ID]time.Time     // any move
	buried  map[shard.ID]time.Time     // moves that a death caused
	missing map[shard.NodeID]time.Time // since when gossip does not show a node that has shards
}

// Decision is what to do now, and when to look again though nothing changes;
// zero: no need.
type Decision struct {
	Moves []shard.Move
	Again time.Time
}

// Record returns the history after the moves were made at now.
func (h History) Record(m *shard.Map, d Decision, members []shard.Member, now time.Time) History {
	next := History{changed: make(map[shard.ID]time.Time), buried: make(map[shard.ID]time.Time), missing: h.missing}
	for _, s := range m.Shards { // and forget shards that are gone
		if t, ok := h.changed[s.ID]; ok {
			next.changed[s.ID] = t
		}
		if t, ok := h.buried[s.ID]; ok {
			next.buried[s.ID] = t
		}
	}
	states := stateOf(members)
	for _, mv := range d.Moves {
		s, _ := m.Shard(mv.Shard)
		next.changed[mv.Shard] = now
		if slices.ContainsFunc(removed(s.Replicas, mv.Replicas), func(n shard.NodeID) bool { return !gone(states, n) && !serves(states, n) }) {
			next.buried[mv.Shard] = now
		}
	}
	return next
}

// Notice returns the history after a look at the members.
func (h History) Notice(m *shard.Map, members []shard.Member, now time.Time) History {
	states := stateOf(members)
	missing := make(map[shard.NodeID]time.Time)
	for _, s := range m.Shards {
		for _, n := range s.Replicas {
			if _, ok := states[n]; ok {
				continue
			}
			missing[n] = now
			if t, ok := h.missing[n]; ok {
				missing[n] = t
			}
		}
	}
	h.missing = missing
	return h
}

// Decide returns the moves to make now:
//   - those from nodes that left or drain, at once;
//   - those from nodes that are dead (or not seen) for DeadGrace, once per
//     MoveInterval and shard, unless nobody that lives has the shard;
//   - all others, to newcomers and back home, when the newcomer is there for
//     Settle and the shard has rested for PromoteDelay.
//
// A node that is suspect, or dead for less than DeadGrace, keeps what it has
// and gets nothing.
func (r Rules) Decide(m *shard.Map, members []shard.Member, h History, now time.Time) Decision {
	var d Decision
	wait := func(until time.Time) bool {
		if !now.Before(until) {
			return false
		}
		if d.Again.IsZero() || until.Before(d.Again) {
			d.Again = until
		}
		return true
	}
	holds := make(map[shard.NodeID]bool)
	for _, s := range m.Shards {
		for _, n := range s.Replicas {
			holds[n] = true
		}
	}
	var view []shard.Member
	shaky := make(map[shard.NodeID]bool)
	for _, n := range members {
		n.Draining = n.Draining || m.IsDrained(n.Name)
		switch n.State {
		case shard.Alive:
			if !holds[n.Name] && wait(n.Since.Add(r.Settle)) {
				continue
			}
		case shard.Suspect:
			if !holds[n.Name] {
				continue
			}
			shaky[n.Name] = true
		case shard.Dead:
			if holds[n.Name] && wait(n.Since.Add(r.DeadGrace)) {
				shaky[n.Name] = true
				n.State = shard.Suspect
			}
		}
		view = append(view, n)
	}
	for n, since := range h.missing {
		if wait(since.Add(r.DeadGrace)) {
			shaky[n] = true
			view = append(view, shard.Member{Name: n, State: shard.Suspect})
		}
	}
	states := stateOf(view)
	for _, mv := range shard.Plan(m, view) {
		s, _ := m.Shard(mv.Shard)
		if trusts(s.Replicas, mv.Replicas, shaky) && !wait(r.notBefore(s, mv, states, h)) {
			d.Moves = append(d.Moves, mv)
		}
	}
	return d
}

// notBefore returns when the move may be made.
func (r Rules) notBefore(s shard.Shard, mv shard.Move, states map[shard.NodeID]shard.Member, h History) time.Time {
	rested := h.changed[s.ID].Add(r.PromoteDelay)
	if !slices.ContainsFunc(s.Replicas, func(n shard.NodeID) bool { return serves(states, n) }) {
		return time.Time{} // nobody has it: now
	}
	out := removed(s.Replicas, mv.Replicas)
	if slices.ContainsFunc(out, func(n shard.NodeID) bool { return !gone(states, n) && !serves(states, n) }) {
		return h.buried[s.ID].Add(r.MoveInterval)
	}
	if slices.ContainsFunc(out, func(n shard.NodeID) bool { return states[n].State == shard.Left }) {
		return time.Time{}
	}
	if slices.ContainsFunc(out, func(n shard.NodeID) bool { return states[n].Draining }) {
		if len(removed(mv.Replicas, s.Replicas)) == 0 {
			return rested // its successors may have come a moment ago
		}
		return time.Time{}
	}
	return rested
}

// trusts reports whether next gives nothing to a shaky node: not the shard,
// not its ownership.
func trusts(current, next []shard.NodeID, shaky map[shard.NodeID]bool) bool {
	if shaky[next[0]] && (len(current) == 0 || current[0] != next[0]) {
		return false
	}
	return !slices.ContainsFunc(removed(next, current), func(n shard.NodeID) bool { return shaky[n] })
}

// removed returns the nodes of was that are not in is.
func removed(was, is []shard.NodeID) (out []shard.NodeID) {
	for _, n := range was {
		if !slices.Contains(is, n) {
			out = append(out, n)
		}
	}
	return out
}

func stateOf(members []shard.Member) map[shard.NodeID]shard.Member {
	states := make(map[shard.NodeID]shard.Member, len(members))
	for _, m := range members {
		states[m.Name] = m
	}
	return states
}

// serves reports whether gossip does not call the node dead.
func serves(states map[shard.NodeID]shard.Member, n shard.NodeID) bool {
	return states[n].State == shard.Alive || states[n].State == shard.Suspect
}

// gone reports whether the node said goodbye.
func gone(states map[shard.NodeID]shard.Member, n shard.NodeID) bool {
	return states[n].State == shard.Left
}
