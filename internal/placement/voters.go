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

// The changes. One that learns gets the log and has no vote; who is demoted learns
// from then on, and so hears what becomes of him.
const (
	learnVoter  voterDeed = "learn"
	addVoter    voterDeed = "add"
	demoteVoter voterDeed = "demote"
	removeVoter voterDeed = "remove"
	stepDown    voterDeed = "step_down"
)

// voterFacts is what a leader decides on about the voters.
type voterFacts struct {
	servers []raft.Server
	self    raft.ServerID
	// expect is how many voters there shall be.
	expect  int
	members []shard.Member
	// reports tell who has the log; nil: nobody is replaced.
	reports *Reports
	// drained are nodes that an operator has taken out of service.
	drained func(shard.NodeID) bool
	// lost reports whether a voter is gone for so long that it is replaced.
	lost func(shard.NodeID) bool
}

// decideVoter returns the next change that brings raft's configuration in
// line with the members, and false when there is none. One at a time: each is
// committed before the next is decided.
//
// A voter that is dead for a while stays: it will be back. One that is lost, or
// drained, is replaced by a node that may vote (see Config.BootstrapExpect), from
// the zone with the fewest voters, once that has caught up as a learner. Of one
// that is lost the vote is taken first, so that a majority never depends on the
// new one; one that is drained counts until the new one does. Without anybody to
// take its place a voter stays one.
//
// One that is back under its name with another UUID has lost its log: its old
// identity goes, and it is added as somebody new.
//
// Addresses are found through gossip (see addresses), so a voter that comes
// back at another one is reached at once. The configuration is corrected when
// that voter leads: raft v1.7.3 reads a follower's entry without a lock while
// it replicates (replication.go, updateLastAppended), and to change it then is
// a data race.
func decideVoter(f voterFacts) (voterChange, bool) {
	for _, m := range f.standing() {
		id, addr := serverID(m.Name, m.UUID), raft.ServerAddress(m.RaftAddress)
		if m.Name == nameOf(f.self) && id != f.self {
			continue // somebody else with our name: gossip will tell it
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
	var voters, learners []raft.ServerID
	for _, s := range f.servers {
		if s.Suffrage == raft.Voter {
			voters = append(voters, s.ID)
		} else {
			learners = append(learners, s.ID)
		}
	}
	next, ok := f.candidate(voters, learners)
	if len(voters) < f.expect {
		return voterChange{do: addVoter, id: next.id, address: next.address, why: "a voter is missing"}, ok
	}
	if c, ok := f.release(voters); ok {
		return c, true
	}
	if f.reports == nil {
		return voterChange{}, false
	}
	if len(voters) == f.expect && ok {
		if c, ok := f.replace(voters, learners, next); ok {
			return c, true
		}
	}
	return f.learn(learners)
}

// standing returns the members that may vote and live, in the order of their names.
func (f *voterFacts) standing() []shard.Member {
	members := slices.DeleteFunc(slices.Clone(f.members), func(m shard.Member) bool {
		return m.State != shard.Alive || m.BootstrapExpect == 0 || m.UUID == "" || m.RaftAddress == ""
	})
	slices.SortFunc(members, func(a, b shard.Member) int { return cmp.Compare(a.Name, b.Name) })
	return members
}

type voterCandidate struct {
	id      raft.ServerID
	address raft.ServerAddress
}

// candidate returns who is to vote next: from the zone with the fewest voters, one
// that learns already before one that does not.
func (f *voterFacts) candidate(voters, learners []raft.ServerID) (best voterCandidate, ok bool) {
	zone, votes := make(map[shard.NodeID]string), make(map[string]int)
	for _, m := range f.members {
		zone[m.Name] = m.Zone
	}
	for _, v := range voters {
		if !f.drained(nameOf(v)) && !f.lost(nameOf(v)) {
			votes[zone[nameOf(v)]]++
		}
	}
	var rank [2]int
	for _, m := range f.standing() {
		id := serverID(m.Name, m.UUID)
		taken := slices.ContainsFunc(voters, func(v raft.ServerID) bool { return nameOf(v) == m.Name })
		if taken || m.Draining || f.drained(m.Name) || m.Name == nameOf(f.self) {
			continue
		}
		r := [2]int{votes[m.Zone], 1}
		if slices.Contains(learners, id) {
			r[1] = 0
		}
		if !ok || slices.Compare(r[:], rank[:]) < 0 {
			best, rank, ok = voterCandidate{id: id, address: raft.ServerAddress(m.RaftAddress)}, r, true
		}
	}
	return best, ok
}

// release takes the vote from one when there is one too many: from one that is
// drained, or lost. A leader lets another lead first.
func (f *voterFacts) release(voters []raft.ServerID) (voterChange, bool) {
	if len(voters) <= f.expect {
		return voterChange{}, false
	}
	for _, v := range voters {
		switch name := nameOf(v); {
		case f.lost(name):
			return voterChange{do: removeVoter, id: v, why: "it is gone, and another votes for it"}, true
		case !f.drained(name):
		case v == f.self:
			return voterChange{do: stepDown, id: v, why: "it is drained, and another votes for it"}, true
		default:
			return voterChange{do: demoteVoter, id: v, why: "it is drained, and another votes for it"}, true
		}
	}
	return voterChange{}, false
}

// replace begins to replace a voter by next, or goes on with it.
func (f *voterFacts) replace(voters, learners []raft.ServerID, next voterCandidate) (voterChange, bool) {
	for _, v := range voters {
		name := nameOf(v)
		lost := f.lost(name) && v != f.self
		switch {
		case !lost && !f.drained(name):
			continue
		case !slices.Contains(learners, next.id):
			return voterChange{do: learnVoter, id: next.id, address: next.address, why: "it is to vote instead of " + string(name)}, true
		case !f.reports.caughtUp(nameOf(next.id)):
			return voterChange{}, false
		case lost:
			return voterChange{do: removeVoter, id: v, why: "it is gone for long, and another can vote"}, true
		default:
			return voterChange{do: addVoter, id: next.id, address: next.address, why: "it votes instead of " + string(name)}, true
		}
	}
	return voterChange{}, false
}

// learn lets those have the log again that had it and vote no more: else they would
// stand for election for ever, as voters of an old configuration. And it forgets
// learners that are gone.
func (f *voterFacts) learn(learners []raft.ServerID) (voterChange, bool) {
	for _, l := range learners {
		if f.lost(nameOf(l)) {
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

// absence tells since when nodes are gone. It is the leader's, of one goroutine.
type absence struct {
	after time.Duration // when one is lost; 0: never
	since map[shard.NodeID]time.Time
}

// look takes the members of now into account, and returns which of nodes are lost
// and when that will be more of them; zero: not by waiting.
func (a *absence) look(nodes []shard.NodeID, members []shard.Member, now time.Time) (lost func(shard.NodeID) bool, again time.Time) {
	states := stateOf(members)
	since, gone := make(map[shard.NodeID]time.Time), make(map[shard.NodeID]bool)
	for _, n := range nodes {
		if serves(states, n) {
			continue
		}
		at, ok := a.since[n]
		if m, seen := states[n]; !ok {
			if at = now; seen { // dead or left: gossip knows since when
				at = m.Since
			}
		}
		since[n] = at
		switch until := at.Add(a.after); {
		case a.after == 0:
		case !now.Before(until):
			gone[n] = true
		case again.IsZero() || until.Before(again):
			again = until
		}
	}
	a.since = since
	return func(n shard.NodeID) bool { return gone[n] }, again
}

// keepVoters makes the changes that decideVoter asks for, until ctx ends.
func (p *Placement) keepVoters(ctx context.Context, r *raft.Raft) {
	absent := absence{after: p.cfg.ReplaceVoterAfter}
	for {
		changed := p.members.wait()
		m, moved := p.board.watch()
		servers, members := r.GetConfiguration().Configuration().Servers, p.ourMembers()
		var nodes []shard.NodeID
		for _, s := range servers {
			nodes = append(nodes, nameOf(s.ID))
		}
		lost, again := absent.look(nodes, members, time.Now())
		c, ok := decideVoter(voterFacts{
			servers: servers, self: p.self, expect: p.cfg.BootstrapExpect, members: members, reports: p.reported(), lost: lost,
			drained: func(n shard.NodeID) bool { return m != nil && m.IsDrained(n) },
		})
		if ok {
			if err := p.changeVoter(ctx, r, c); err == nil {
				continue
			} else if ctx.Err() == nil {
				p.log.Warn("could not change the voters, trying again", "err", err)
			}
		}
		wait := time.Until(again)
		if ok {
			wait = p.cfg.Heartbeat
		}
		if !pause(ctx, wait, ok || !again.IsZero(), changed, moved) {
			return
		}
	}
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
