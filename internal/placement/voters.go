package placement

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// voterChange is one change of raft's configuration.
type voterChange struct {
	do      voterDeed
	id      raft.ServerID
	address raft.ServerAddress
	why     string
}

type voterDeed string

// The changes. A learner gets the log and has no vote; a demoted voter learns from
// then on, and so is told what became of its vote. awaitVoter changes nothing: the
// learner has not got all of the log yet.
const (
	learnVoter  voterDeed = "learn"
	awaitVoter  voterDeed = "await"
	addVoter    voterDeed = "add"
	demoteVoter voterDeed = "demote"
	removeVoter voterDeed = "remove"
	stepDown    voterDeed = "step_down"
)

const (
	// learnPatience is how long a learner may lack some of the log before another
	// node is preferred to it.
	learnPatience = 30 * time.Second
	// returnAfter is how long a node must be alive before a vote moves to it from a
	// voter that is well.
	returnAfter = 30 * time.Second
	// awaitEvery is how often a learner is asked whether it has the log.
	awaitEvery = 100 * time.Millisecond
)

// voterFacts is what a leader decides on about the voters.
type voterFacts struct {
	servers []raft.Server
	self    raft.ServerID
	// expect is how many voters there shall be.
	expect  int
	members []shard.Member
	// reports tell which nodes have the log; nil: no voter is replaced.
	reports *Reports
	// drained are nodes that an operator has taken out of service.
	drained func(shard.NodeID) bool
	// away is for how long a node of servers is gone, or its log does not follow.
	away func(shard.NodeID) time.Duration
	// lostAfter is how long a voter may be away before it is replaced; 0: for ever.
	lostAfter time.Duration
	now       time.Time

	voters, learners []raft.ServerID
	states           map[shard.NodeID]shard.Member
}

// decideVoter returns the next change that brings raft's configuration in line
// with the members, and false when there is none. One at a time: each is committed
// before the next is decided.
//
// There is one set of nodes that shall vote (see wanted), which depends on the
// members and not on how the votes came to be where they are. So votes return to
// the first ordinals, which a StatefulSet keeps when it is scaled down, and a
// change that is no longer wanted is undone half-way.
//
// A voter that is dead for a while stays: it will be back. A voter that has left,
// is leaving, is drained, or is lost, is replaced by a node that may vote (see
// Config.BootstrapExpect), once that has learned the log. The vote of a voter that
// is gone is taken first, so that a majority never depends on the new voter; a
// voter that still answers counts until the new one does. Without a node to take
// its place a voter stays one.
//
// A node that is back under its name with another UUID has lost its log: its old
// identity goes, and it is added as a new one.
//
// Addresses are found through gossip (see addresses), so a voter that comes
// back at another one is reached at once. The configuration is corrected when
// that voter leads: raft v1.7.3 reads a follower's entry without a lock while
// it replicates (replication.go, updateLastAppended), and to change it then is
// a data race.
func decideVoter(f voterFacts) (voterChange, bool) {
	f.states = stateOf(f.members)
	if c, ok := f.correct(); ok {
		return c, true
	}
	for _, s := range f.servers {
		if s.Suffrage == raft.Voter {
			f.voters = append(f.voters, s.ID)
		} else {
			f.learners = append(f.learners, s.ID)
		}
	}
	wanted := f.wanted()
	var surplus []raft.ServerID // those to go first in front
	for _, v := range f.voters {
		if !slices.Contains(wanted, nameOf(v)) {
			surplus = append(surplus, v)
		}
	}
	slices.SortFunc(surplus, func(a, b raft.ServerID) int {
		return cmp.Or(cmp.Compare(f.class(nameOf(b)), f.class(nameOf(a))), compareNames(nameOf(b), nameOf(a)))
	})
	missing := slices.DeleteFunc(wanted, func(n shard.NodeID) bool {
		return slices.ContainsFunc(f.voters, func(v raft.ServerID) bool { return nameOf(v) == n })
	})
	switch {
	case len(f.voters) > f.expect && len(surplus) > 0:
		return f.release(surplus[0], "another votes for it"), true
	case len(f.voters) < f.expect && len(missing) > 0:
		return f.promote(missing[0], "a voter is missing"), true
	case f.reports != nil && len(missing) > 0 && len(surplus) > 0:
		if c, ok := f.replace(surplus[0], missing[0]); ok {
			return c, true
		}
	}
	if f.reports == nil {
		return voterChange{}, false
	}
	return f.learn()
}

// correct returns the change that makes the identities and the leader's address in
// raft's configuration those of the members.
func (f *voterFacts) correct() (voterChange, bool) {
	for _, m := range f.standing() {
		id, addr := serverID(m.Name, m.UUID), raft.ServerAddress(m.RaftAddress)
		if m.Name == nameOf(f.self) && id != f.self {
			continue // another node with our name: gossip will tell it
		}
		i := slices.IndexFunc(f.servers, func(s raft.Server) bool { return nameOf(s.ID) == m.Name })
		switch {
		case i < 0:
		case f.servers[i].ID != id:
			return voterChange{do: removeVoter, id: f.servers[i].ID, why: "it lost its disk and is back as another"}, true
		case id == f.self && f.servers[i].Address != addr:
			return voterChange{do: addVoter, id: id, address: addr, why: "its address has changed"}, true
		}
	}
	return voterChange{}, false
}

// standing returns the members that may vote and live, in the order of their names.
func (f *voterFacts) standing() []shard.Member {
	members := slices.DeleteFunc(slices.Clone(f.members), func(m shard.Member) bool {
		return m.State != shard.Alive || m.BootstrapExpect == 0 || m.UUID == "" || m.RaftAddress == ""
	})
	slices.SortFunc(members, func(a, b shard.Member) int { return compareNames(a.Name, b.Name) })
	return members
}

// class says how fit a voter is: one that is well or may be back, one that leaves,
// one that is lost.
func (f *voterFacts) class(n shard.NodeID) int {
	switch {
	case f.lost(n):
		return 2
	case f.leaves(n):
		return 1
	}
	return 0
}

func (f *voterFacts) lost(n shard.NodeID) bool {
	return n != nameOf(f.self) && f.lostAfter > 0 && f.away(n) >= f.lostAfter
}

// leaves reports whether the node is drained, shuts down, or has done so.
func (f *voterFacts) leaves(n shard.NodeID) bool {
	m := f.states[n]
	return f.drained(n) || m.Draining || m.State == shard.Left
}

// wanted returns the nodes that shall vote: from as many zones as possible, and of
// each zone the first by ordinal. Voters that leave or are lost are taken only when
// there are too few others.
func (f *voterFacts) wanted() (out []shard.NodeID) {
	type node struct {
		name  shard.NodeID
		class int
	}
	var pool []node
	for _, v := range f.voters {
		pool = append(pool, node{nameOf(v), f.class(nameOf(v))})
	}
	for _, m := range f.standing() {
		taken := slices.ContainsFunc(f.voters, func(v raft.ServerID) bool { return nameOf(v) == m.Name })
		if taken || f.leaves(m.Name) || f.away(m.Name) >= learnPatience || m.Name == nameOf(f.self) {
			continue
		}
		pool = append(pool, node{m.Name, 0})
	}
	votes := make(map[string]int)
	for len(out) < f.expect && len(pool) > 0 {
		best := slices.MinFunc(pool, func(a, b node) int {
			return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(votes[f.states[a.name].Zone], votes[f.states[b.name].Zone]), compareNames(a.name, b.name))
		})
		pool = slices.DeleteFunc(pool, func(n node) bool { return n == best })
		votes[f.states[best.name].Zone]++
		out = append(out, best.name)
	}
	return out
}

// release takes the vote from a voter. A leader lets another lead first; a node
// that gossip does not see cannot learn.
func (f *voterFacts) release(v raft.ServerID, why string) voterChange {
	switch {
	case v == f.self:
		return voterChange{do: stepDown, id: v, why: why}
	case !serves(f.states, nameOf(v)):
		return voterChange{do: removeVoter, id: v, why: why}
	}
	return voterChange{do: demoteVoter, id: v, why: why}
}

// promote lets a node learn the log, and then vote.
func (f *voterFacts) promote(n shard.NodeID, why string) voterChange {
	m := f.states[n]
	c := voterChange{do: addVoter, id: serverID(n, m.UUID), address: raft.ServerAddress(m.RaftAddress), why: why}
	switch {
	case f.reports == nil:
	case !slices.Contains(f.learners, c.id):
		c.do = learnVoter
	case !f.reports.caughtUp(n):
		c.do = awaitVoter
	}
	return c
}

// replace begins to replace a voter by next, or goes on with it. From a voter that
// is well, the vote moves only while all are well, and to a node that is there for
// a while.
func (f *voterFacts) replace(v raft.ServerID, next shard.NodeID) (voterChange, bool) {
	name := nameOf(v)
	if f.class(name) == 0 && !f.calm(next) {
		return voterChange{}, false
	}
	c := f.promote(next, "it is to vote instead of "+string(name))
	if c.do == addVoter && (f.lost(name) || !serves(f.states, name)) && v != f.self {
		return f.release(v, "it is gone, and another can vote"), true
	}
	return c, true
}

func (f *voterFacts) calm(next shard.NodeID) bool {
	return f.now.Sub(f.states[next].Since) >= returnAfter && !slices.ContainsFunc(f.voters, func(v raft.ServerID) bool {
		return f.states[nameOf(v)].State != shard.Alive || f.away(nameOf(v)) > 0
	})
}

// learn lets nodes have the log again that had it and vote no more: else they would
// stand for election for ever, as voters of an old configuration. And it forgets
// learners that are gone.
func (f *voterFacts) learn() (voterChange, bool) {
	for _, l := range f.learners {
		if f.lost(nameOf(l)) && !serves(f.states, nameOf(l)) {
			return voterChange{do: removeVoter, id: l, why: "it is gone for long, and had no vote"}, true
		}
	}
	for _, m := range f.standing() {
		id := serverID(m.Name, m.UUID)
		known := slices.ContainsFunc(f.servers, func(s raft.Server) bool { return nameOf(s.ID) == m.Name })
		if !known && f.reports.hasLog(m.Name) {
			return voterChange{do: learnVoter, id: id, address: raft.ServerAddress(m.RaftAddress), why: "it has voted before"}, true
		}
	}
	return voterChange{}, false
}

// absence remembers since when nodes are away. It is the leader's, of one goroutine.
type absence struct {
	self  shard.NodeID
	since map[shard.NodeID]time.Time
}

// look takes the members and reports of now into account, and returns for how long
// each of nodes is away: gossip calls it dead, or it reports that its raft log does
// not follow the leader's. Gossip does not see a raft port that is closed, or a disk
// that hangs.
func (a *absence) look(nodes []shard.NodeID, members []shard.Member, reports *Reports, now time.Time) func(shard.NodeID) time.Duration {
	states := stateOf(members)
	since := make(map[shard.NodeID]time.Time)
	for _, n := range nodes {
		m, seen := states[n]
		alive := serves(states, n)
		if n == a.self || (alive && (reports == nil || !reports.heard(n) || reports.caughtUp(n))) {
			continue
		}
		at, ok := a.since[n]
		if !ok {
			if at = now; seen && !alive { // gossip knows since when
				at = m.Since
			}
		}
		since[n] = at
	}
	a.since = since
	return func(n shard.NodeID) time.Duration {
		if at, ok := since[n]; ok {
			return max(now.Sub(at), 1)
		}
		return 0
	}
}

// next returns when the first of those that are away becomes lost; zero: none.
func (a *absence) next(lostAfter time.Duration, now time.Time) (again time.Time) {
	for _, at := range a.since {
		if until := at.Add(lostAfter); lostAfter > 0 && until.After(now) && (again.IsZero() || until.Before(again)) {
			again = until
		}
	}
	return again
}

// keepVoters makes the changes that decideVoter asks for, until ctx ends.
func (p *Placement) keepVoters(ctx context.Context, r *raft.Raft) {
	absent := absence{self: p.cfg.Name}
	for {
		changed := p.members.wait()
		m, moved := p.board.watch()
		servers, members, reports, now := r.GetConfiguration().Configuration().Servers, p.ourMembers(), p.reported(), time.Now()
		if reports == nil && p.cfg.Reports != nil {
			reports = new(Reports) // none yet
		}
		var nodes []shard.NodeID
		for _, s := range servers {
			nodes = append(nodes, nameOf(s.ID))
		}
		c, ok := decideVoter(voterFacts{
			servers: servers, self: p.self, expect: p.cfg.BootstrapExpect, members: members, reports: reports, now: now,
			away: absent.look(nodes, members, reports, now), lostAfter: p.cfg.ReplaceVoterAfter,
			drained: func(n shard.NodeID) bool { return m != nil && m.IsDrained(n) },
		})
		again := absent.next(p.cfg.ReplaceVoterAfter, now)
		wait := time.Until(again)
		switch {
		case !ok:
		case c.do == awaitVoter:
			p.askReport(ctx, r, nameOf(c.id))
			wait = awaitEvery
		default:
			err := p.changeVoter(ctx, r, c)
			if err == nil {
				continue
			}
			if ctx.Err() == nil && r.State() == raft.Leader {
				p.log.Warn("voters not changed, trying again", "err", err)
			}
			wait = p.cfg.Heartbeat
		}
		if !pause(ctx, wait, ok || !again.IsZero(), changed, moved) {
			return
		}
	}
}

// askNodes asks nodes for their reports. A raft log of an older generation counts as
// none.
func (p *Placement) askNodes(ctx context.Context, nodes []shard.NodeID) []Report {
	reports, m := p.cfg.Reports(ctx, nodes), p.Map()
	for i := range reports {
		if m != nil && reports[i].MapVersion < m.Generation {
			reports[i].RaftIndex = 0
		}
	}
	return reports
}

// askReport asks one node for its report.
func (p *Placement) askReport(ctx context.Context, r *raft.Raft, n shard.NodeID) {
	index := r.AppliedIndex()
	reports := p.askNodes(ctx, []shard.NodeID{n})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reports = p.reports.Add(time.Now(), index, reports)
}

// HandOverVote waits until this node, which drains by gossip, has no vote: the leader
// gives it to another node. It returns at once when no node can take it, and false
// when the node keeps its vote.
func (p *Placement) HandOverVote(ctx context.Context) bool {
	for p.IsVoter(p.cfg.Name) {
		if !hasVoteHeir(p.cfg.Name, p.ourMembers(), p.Voters(), p.Map()) || !pause(ctx, awaitEvery, true, p.members.wait()) {
			return false
		}
	}
	return true
}

// hasVoteHeir reports whether a node could vote in place of one. m is nil while there is
// no map.
func hasVoteHeir(of shard.NodeID, members []shard.Member, voters []shard.NodeID, m *shard.Map) bool {
	return slices.ContainsFunc(members, func(o shard.Member) bool {
		return o.Name != of && o.State == shard.Alive && o.BootstrapExpect > 0 && !o.Draining &&
			(m == nil || !m.IsDrained(o.Name)) && !slices.Contains(voters, o.Name)
	})
}

func (p *Placement) changeVoter(ctx context.Context, r *raft.Raft, c voterChange) error {
	var f raft.Future
	switch c.do {
	case learnVoter:
		f = r.AddNonvoter(c.id, c.address, 0, p.cfg.BarrierTimeout)
	case addVoter:
		f = r.AddVoter(c.id, c.address, 0, p.cfg.BarrierTimeout)
	case demoteVoter:
		f = r.DemoteVoter(c.id, 0, p.cfg.BarrierTimeout)
	case removeVoter:
		f = r.RemoveServer(c.id, 0, p.cfg.BarrierTimeout)
	case stepDown:
		f = r.LeadershipTransfer()
	}
	if err := p.await(ctx, f); err != nil {
		return fmt.Errorf("%s voter %s: %w", c.do, c.id, err)
	}
	p.figures.didVoter(c.do)
	p.log.Info("voters changed", "change", string(c.do), "voter", c.id, "why", c.why)
	return nil
}
