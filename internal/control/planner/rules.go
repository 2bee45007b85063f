package planner

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// Rules decide when a planned move is made. Gossip is a hint: the planner computes
// the placement, and the rules decide how certain its inputs must be.
type Rules struct {
	// Settle is how long members must be alive before a cluster is bootstrapped
	// or founded with them, and before a new node is given shards.
	Settle time.Duration
	// DeadGrace is how long a member is dead before its shards move.
	DeadGrace time.Duration
	// MoveInterval is the least time between two moves of one shard that deaths
	// cause.
	MoveInterval time.Duration
	// PromoteDelay is how long a shard rests after any change before a move
	// that is not urgent, so that a new replica can load.
	PromoteDelay time.Duration
	// MaxFills is how many newcomers (new replicas) load shards at a time in the cluster,
	// and MaxNodeFills how many load from one node or on one node; 0: no bound. A newcomer
	// counts until it reports that it has loaded. Without reports it counts for
	// PromoteDelay, and while it reports that it is loading, for FillTimeout at most.
	// FillTimeout also bounds how long a loading replica delays other moves of its shard.
	MaxFills, MaxNodeFills int
	FillTimeout            time.Duration
	// Planner remembers earlier plans; nil: none are remembered.
	Planner *Planner
}

// DefaultRules returns the rules for a cluster of machines.
func DefaultRules() Rules {
	return Rules{
		Settle: 2 * time.Second, DeadGrace: 5 * time.Second, MoveInterval: 30 * time.Second, PromoteDelay: 5 * time.Second,
		MaxFills: 256, MaxNodeFills: 8, FillTimeout: 10 * time.Minute,
	}
}

// Validate names every mistake.
func (r *Rules) Validate() error {
	var errs checks
	errs.check(r.MaxFills >= 0 && r.MaxNodeFills >= 0, "bounds of newcomers (%d, %d) must not be negative", r.MaxFills, r.MaxNodeFills)
	errs.check(r.FillTimeout >= r.PromoteDelay, "fill timeout (%s) must not be shorter than promote delay (%s)", r.FillTimeout, r.PromoteDelay)
	errs.check(r.Settle >= 0 && r.DeadGrace >= 0 && r.MoveInterval >= 0 && r.PromoteDelay >= 0, "settle, dead grace, move interval and promote delay must not be negative")
	return errors.Join(errs...)
}

// checks collects mistakes in a configuration.
type checks []error

func (c *checks) check(ok bool, format string, args ...any) {
	if !ok {
		*c = append(*c, fmt.Errorf("placement: "+format, args...))
	}
}

// Observations are a leader's records of the cluster and of its actions. The zero
// Observations are those of a new leader.
type Observations struct {
	changed map[shard.ID]time.Time     // last move, split or merge
	nextID  shard.ID                   // of the map that was observed last
	buried  map[shard.ID]time.Time     // last move that a death caused
	missing map[shard.NodeID]time.Time // since when gossip does not show a node that has shards
	fills   map[shard.ID]fill          // newcomers that may still be loading
	// presence has the deaths and returns of nodes.
	presence map[shard.NodeID]presence
	reports  *Reports // the nodes' reports of their replicas; nil: none
}

// fill is a shard that newcomers load from its owner, the donor.
type fill struct {
	donor     shard.NodeID
	newcomers []shard.NodeID
	since     time.Time
}

// Decision has the moves to make now, and the time to decide again even if
// nothing changes; zero: no need.
type Decision struct {
	Moves []shard.Move
	Again time.Time
}

// Record returns the observations after the moves were made at now.
func (h Observations) Record(m *shard.Map, d Decision, members []shard.Member, now time.Time) Observations {
	next := Observations{
		changed: make(map[shard.ID]time.Time), buried: make(map[shard.ID]time.Time), fills: make(map[shard.ID]fill),
		missing: h.missing, presence: h.presence, reports: h.reports, nextID: h.nextID,
	}
	for i := range m.Shards { // shards that no longer exist are dropped
		id := m.Shards[i].ID
		if t, ok := h.changed[id]; ok {
			next.changed[id] = t
		}
		if t, ok := h.buried[id]; ok {
			next.buried[id] = t
		}
		if f, ok := h.fills[id]; ok {
			next.fills[id] = f
		}
	}
	states := stateOf(members)
	for s, mv := range moved(m, d.Moves) {
		next.changed[mv.Shard] = now
		if newcomers := removed(mv.Replicas, s.Replicas); len(newcomers) > 0 && len(s.Replicas) > 0 {
			next.fills[mv.Shard] = fill{donor: mv.Replicas[0], newcomers: newcomers, since: now}
		}
		if slices.ContainsFunc(removed(s.Replicas, mv.Replicas), func(n shard.NodeID) bool { return !gone(states, n) && !serves(states, n) }) {
			next.buried[mv.Shard] = now
		}
	}
	return next
}

// Observe returns the observations after the current map, members and reports. Shards that are
// new in the map rest like shards that were moved, because their caches have just begun. At a
// leader's first observation all shards rest: those that the previous leader has moved may
// still be loading. Newcomers that no longer have their shard are dropped: they would never
// report it as loaded.
func (h Observations) Observe(m *shard.Map, members []shard.Member, reports *Reports, now time.Time) Observations {
	h.reports = reports
	if h.nextID < m.NextID {
		h.changed = maps.Clone(h.changed)
		if h.changed == nil {
			h.changed = make(map[shard.ID]time.Time)
		}
		for i := range m.Shards {
			if id := m.Shards[i].ID; id >= h.nextID {
				h.changed[id] = now
			}
		}
	}
	h.nextID = m.NextID
	h.fills = h.stillHere(m)
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
	h.missing, h.presence = missing, h.presences(members)
	return h
}

// stillHere returns the fills without newcomers that no longer have the shard in m.
func (h Observations) stillHere(m *shard.Map) map[shard.ID]fill {
	if len(h.fills) == 0 {
		return nil
	}
	fills := make(map[shard.ID]fill, len(h.fills))
	for i := range m.Shards {
		s := &m.Shards[i]
		f := h.fills[s.ID]
		f.newcomers = slices.DeleteFunc(slices.Clone(f.newcomers), func(n shard.NodeID) bool { return !slices.Contains(s.Replicas, n) })
		if len(f.newcomers) > 0 {
			fills[s.ID] = f
		}
	}
	return fills
}

// Filling returns the nodes on which newcomers may be loading.
func (r Rules) Filling(h Observations, now time.Time) []shard.NodeID {
	var out []shard.NodeID
	for id, f := range h.fills {
		if now.Before(r.filledBy(id, f, h, now)) {
			out = append(out, f.newcomers...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// moved yields each move with its shard in m. Moves are in the order of the map.
func moved(m *shard.Map, moves []shard.Move) iter.Seq2[*shard.Shard, shard.Move] {
	return func(yield func(*shard.Shard, shard.Move) bool) {
		i := 0
		for _, mv := range moves {
			for m.Shards[i].ID != mv.Shard {
				i++
			}
			if !yield(&m.Shards[i], mv) {
				return
			}
		}
	}
}

// Decide returns the moves to make now:
//   - moves from nodes that left or drain, at once;
//   - moves from nodes that are dead (or not seen) for DeadGrace, once per
//     MoveInterval and shard, without that interval if no live node has the shard;
//   - moves that only add live replicas that a shard lacks, when the newcomer has
//     been alive for Settle;
//   - all other moves, to newcomers and back home, when the newcomer has been alive
//     for Settle, the shard has rested for PromoteDelay, and no replica is known to
//     be loading.
//
// No move takes a shard from the last live node that has loaded it, while the
// remaining nodes are known to be loading, or do not report.
//
// A node that dies repeatedly is held down: it keeps its shards, and gets none
// until it has lived for a growing time (see presence).
//
// A node that is suspect, or dead for less than DeadGrace, or that gossips but does
// not answer the leader, keeps its shards and gets none. A node that is held down or
// does not answer may stay so, and other nodes get shards in its place.
//
// Shards go to at most MaxFills newcomers at a time in the cluster, and to at most
// MaxNodeFills from or on one node: first the shards that have the fewest live
// replicas. A move that waits for this still removes replicas at once from
// nodes that left, drain or are dead. If no node has a shard, its move does not wait.
func (r Rules) Decide(m *shard.Map, members []shard.Member, h Observations, now time.Time) Decision {
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
	view, shaky, barred := r.view(m, members, h, wait)
	states := stateOf(view)
	plans := r.Planner
	if plans == nil {
		plans = new(Planner)
	}
	var due []dueMove
	for s, mv := range moved(m, plans.plan(m, view, barred)) {
		if trusts(s.Replicas, mv.Replicas, shaky) && !wait(r.notBefore(m.Spec, s, mv, states, h, now)) {
			due = append(due, dueMove{s, mv})
		}
	}
	d.Moves = r.admit(due, states, h, now, wait)
	return d
}

// view returns the members that the planner plans with. The planner sees the shaky ones, which are
// given nothing, as suspect. Barred are the shaky nodes that may stay so for long. view calls wait
// with the times at which members change.
func (r Rules) view(m *shard.Map, members []shard.Member, h Observations, wait func(time.Time) bool) (view []shard.Member, shaky, barred map[shard.NodeID]bool) {
	holds := make(map[shard.NodeID]bool)
	for _, s := range m.Shards {
		for _, n := range s.Replicas {
			holds[n] = true
		}
	}
	shaky, barred = make(map[shard.NodeID]bool), make(map[shard.NodeID]bool)
	for _, n := range members {
		n.Draining = n.Draining || m.IsDrained(n.Name)
		switch n.State {
		case shard.Alive:
			heard := h.reports.heard(n.Name)
			settle := h.presence[n.Name].hold(r.Settle)
			if !holds[n.Name] && (!heard || wait(n.Since.Add(settle))) {
				continue
			}
			if !heard || (settle > r.Settle && wait(n.Since.Add(settle))) {
				shaky[n.Name], barred[n.Name] = true, true
				n.State = shard.Suspect
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
	return view, shaky, barred
}

// dueMove is a move whose shard allows it now.
type dueMove struct {
	shard *shard.Shard
	move  shard.Move
}

// admit returns the moves that are made now, limited so that not too many
// newcomers load at a time, and the possible parts of the other moves. They are in
// the order of the map.
func (r Rules) admit(due []dueMove, states map[shard.NodeID]shard.Member, h Observations, now time.Time, wait func(time.Time) bool) []shard.Move {
	all, of := 0, make(map[shard.NodeID]int)
	count := func(f fill) {
		all += len(f.newcomers)
		of[f.donor] += len(f.newcomers)
		for _, n := range f.newcomers {
			of[n]++
		}
	}
	var first time.Time // the earliest time at which a fill may be over
	for id, f := range h.fills {
		if until := r.filledBy(id, f, h, now); now.Before(until) {
			count(f)
			if first.IsZero() || until.Before(first) {
				first = until
			}
		}
	}
	live, turn := make([]int, len(due)), make([]int, len(due))
	for i := range due {
		turn[i] = i
		for _, n := range due[i].shard.Replicas {
			if serves(states, n) {
				live[i]++
			}
		}
	}
	slices.SortStableFunc(turn, func(a, b int) int { return cmp.Compare(live[a], live[b]) })
	made := make([]shard.Move, len(due))
	for _, i := range turn {
		s, mv := due[i].shard, due[i].move
		f := fill{donor: mv.Replicas[0], newcomers: removed(mv.Replicas, s.Replicas)}
		full := func(n shard.NodeID) bool { return r.MaxNodeFills > 0 && of[n] >= r.MaxNodeFills }
		switch {
		case len(f.newcomers) == 0 || live[i] == 0:
			made[i] = mv
		case (r.MaxFills == 0 || all < r.MaxFills) && !full(f.donor) && !slices.ContainsFunc(f.newcomers, full):
			count(f)
			made[i] = mv
		default:
			if first.IsZero() {
				first = now.Add(r.PromoteDelay) // after the newcomers admitted now
			}
			wait(first)
			rest := slices.DeleteFunc(slices.Clone(mv.Replicas), func(n shard.NodeID) bool { return slices.Contains(f.newcomers, n) })
			lost := removed(s.Replicas, rest)
			if len(rest) > 0 && len(lost) > 0 && serves(states, rest[0]) && !slices.ContainsFunc(lost, func(n shard.NodeID) bool { return serves(states, n) && !states[n].Draining }) {
				made[i] = shard.Move{Shard: mv.Shard, Replicas: rest}
			}
		}
	}
	return slices.DeleteFunc(made, func(mv shard.Move) bool { return mv.Shard == 0 })
}

// filledBy returns when the fill is over, or is to be checked again. It is over
// when all newcomers report that they have loaded.
func (r Rules) filledBy(id shard.ID, f fill, h Observations, now time.Time) time.Time {
	if h.reports.loaded(id, f.newcomers, f.since) {
		return f.since
	}
	soonest, latest := f.since.Add(r.PromoteDelay), f.since.Add(r.FillTimeout)
	if !now.Before(soonest) && now.Before(latest) && h.reports.loading(id, f.newcomers) {
		return now.Add(coldCheck)
	}
	return soonest
}

// coldCheck is the time until the next check whether a replica has loaded. A
// report that it has ends the wait earlier.
const coldCheck = 5 * time.Second

// Merges returns the prepared merges that may be made now: their shards have
// rested, and none of their replicas is known to be loading.
func (r Rules) Merges(m *shard.Map, h Observations, now time.Time) (ready []shard.Merge, again time.Time) {
	for _, merge := range Merges(m) {
		var until time.Time
		for _, id := range merge.Shards {
			if at := r.restedAt(id, merge.Replicas, h, now); at.After(until) {
				until = at
			}
		}
		if !now.Before(until) {
			ready = append(ready, merge)
		} else if again.IsZero() || until.Before(again) {
			again = until
		}
	}
	return ready, again
}

// restedAt returns when the shard has rested for long enough that all of nodes are
// warm, or is to be checked again.
func (r Rules) restedAt(id shard.ID, nodes []shard.NodeID, h Observations, now time.Time) time.Time {
	since := h.changed[id]
	rested := since.Add(r.PromoteDelay)
	if !now.Before(rested) && now.Before(since.Add(r.FillTimeout)) && h.reports.loading(id, nodes) {
		return now.Add(coldCheck)
	}
	return rested
}

// notBefore returns when the move may be made.
func (r Rules) notBefore(spec shard.Spec, s *shard.Shard, mv shard.Move, states map[shard.NodeID]shard.Member, h Observations, now time.Time) time.Time {
	rested := r.restedAt(s.ID, s.Replicas, h, now)
	if !slices.ContainsFunc(s.Replicas, func(n shard.NodeID) bool { return serves(states, n) }) {
		return time.Time{} // no live node has it: now
	}
	out := removed(s.Replicas, mv.Replicas)
	if takesLastWarm(s, out, states, h.reports) {
		return now.Add(coldCheck)
	}
	if slices.ContainsFunc(out, func(n shard.NodeID) bool { return !gone(states, n) && !serves(states, n) }) {
		return h.buried[s.ID].Add(r.MoveInterval)
	}
	if slices.ContainsFunc(out, func(n shard.NodeID) bool { return states[n].State == shard.Left }) {
		return time.Time{}
	}
	if slices.ContainsFunc(out, func(n shard.NodeID) bool { return states[n].Draining }) {
		if len(removed(mv.Replicas, s.Replicas)) == 0 { // the next owner may be a new replica
			return r.restedAt(s.ID, mv.Replicas[:1], h, now)
		}
		return time.Time{}
	}
	if len(out) == 0 && mv.Replicas[0] == s.Replicas[0] && lacks(spec, s, states) {
		return time.Time{}
	}
	return rested
}

// takesLastWarm reports whether one of the nodes that go is live and has loaded the
// shard, and none of the remaining replicas is known to have.
func takesLastWarm(s *shard.Shard, goes []shard.NodeID, states map[shard.NodeID]shard.Member, reports *Reports) bool {
	warm := func(n shard.NodeID) bool {
		return serves(states, n) && reports.heard(n) && !reports.loading(s.ID, []shard.NodeID{n})
	}
	return slices.ContainsFunc(goes, warm) && !slices.ContainsFunc(removed(s.Replicas, goes), warm)
}

// lacks reports whether the shard has fewer live replicas on nodes that stay than are wanted.
func lacks(spec shard.Spec, s *shard.Shard, states map[shard.NodeID]shard.Member) bool {
	live := 0
	for _, n := range s.Replicas {
		if serves(states, n) && !states[n].Draining {
			live++
		}
	}
	return live < s.Wanted(spec)
}

// Owed returns how many shards of m lack live replicas and will get one on self by
// the leader's plan. A node that gossip does not show counts as alive, as for the
// leader at first.
func Owed(m *shard.Map, members []shard.Member, self shard.NodeID) int {
	view := slices.Clone(members)
	for i := range view {
		view[i].Draining = view[i].Draining || m.IsDrained(view[i].Name)
	}
	states := stateOf(view)
	lacking := make(map[shard.ID]bool)
	for i := range m.Shards {
		s := &m.Shards[i]
		for _, n := range s.Replicas {
			if _, seen := states[n]; !seen {
				view = append(view, shard.Member{Name: n, State: shard.Suspect})
				states[n] = view[len(view)-1]
			}
		}
		if !slices.Contains(s.Replicas, self) && lacks(m.Spec, s, states) {
			lacking[s.ID] = true
		}
	}
	if len(lacking) == 0 {
		return 0 // the usual case, which saves an expensive plan
	}
	owed := 0
	for _, mv := range Plan(m, view) {
		if lacking[mv.Shard] && slices.Contains(mv.Replicas, self) {
			owed++
		}
	}
	return owed
}

// trusts reports whether next gives a shaky node neither the shard nor its
// ownership.
func trusts(current, next []shard.NodeID, shaky map[shard.NodeID]bool) bool {
	if shaky[next[0]] && (len(current) == 0 || current[0] != next[0]) {
		return false
	}
	return !slices.ContainsFunc(removed(next, current), func(n shard.NodeID) bool { return shaky[n] })
}

// removed returns the nodes that are in was but not in is.
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

// serves reports whether gossip shows the node as alive or suspect.
func serves(states map[shard.NodeID]shard.Member, n shard.NodeID) bool {
	return states[n].State == shard.Alive || states[n].State == shard.Suspect
}

// gone reports whether the node has left.
func gone(states map[shard.NodeID]shard.Member, n shard.NodeID) bool {
	return states[n].State == shard.Left
}
