package planner

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// VoterID is a voter's identity in raft.
type VoterID string

// NewVoterID returns the identity of a node with the UUID of its data directory.
func NewVoterID(node shard.NodeID, uuid string) VoterID { return VoterID(string(node) + "/" + uuid) }

// Node returns the node that has this identity.
func (id VoterID) Node() shard.NodeID {
	i := strings.LastIndexByte(string(id), '/')
	return shard.NodeID(id[:max(i, 0)])
}

// Server is one entry of raft's configuration: a voter, or a learner, which receives the
// log and has no vote.
type Server struct {
	ID      VoterID
	Address string
	Votes   bool
}

// VoterChange is one change of raft's configuration.
type VoterChange struct {
	Do      VoterStep
	ID      VoterID
	Address string
	Why     string
}

// VoterStep is the kind of a VoterChange.
type VoterStep string

// The steps. A demoted voter becomes a learner, and so learns that it has no vote.
// AwaitVoter changes nothing: the learner lacks some of the log.
const (
	LearnVoter  VoterStep = "learn"
	AwaitVoter  VoterStep = "await"
	AddVoter    VoterStep = "add"
	DemoteVoter VoterStep = "demote"
	RemoveVoter VoterStep = "remove"
	StepDown    VoterStep = "step_down"
)

const (
	// learnPatience is how long a learner may lack some of the log before other
	// nodes are preferred.
	learnPatience = 30 * time.Second
	// returnAfter is how long a node must be alive before a vote moves to it from a
	// healthy voter.
	returnAfter = 30 * time.Second
)

// Voters is the state from which a leader decides which nodes vote.
type Voters struct {
	Servers []Server
	Self    VoterID
	// Expect is the wanted number of voters.
	Expect  int
	Members []shard.Member
	// Reports show which nodes have the log; nil: no voter is replaced.
	Reports *Reports
	// Map shows the nodes that an operator has drained; nil: there is no map yet.
	Map *shard.Map
	// Away returns for how long a node of Servers has been gone, or its log has not followed.
	Away func(shard.NodeID) time.Duration
	// LostAfter is how long a voter may be away before it is replaced; 0: forever.
	LostAfter time.Duration
	Now       time.Time

	voters, learners []VoterID
	states           map[shard.NodeID]shard.Member
}

// Next returns the next change that brings raft's configuration in line with the
// members, and false when there is none. It returns one change at a time: each is
// committed before the next is decided.
//
// The set of nodes that should vote (see wanted) depends on the members and not on the
// history of the votes. So votes return to the first ordinals, which a StatefulSet keeps
// when it is scaled down, and a change that is no longer wanted is undone half-way.
//
// A voter that is dead for a while stays, because it will return. A voter that has left,
// is leaving, is drained, or is lost, is replaced by a node that may vote (see
// shard.Member.BootstrapExpect), once that node has learned the log. The vote of a voter
// that is gone is removed first, so that a majority never depends on the new voter. A
// voter that still answers votes until the new one does. A voter stays one if no node
// can replace it.
//
// A node that returns under its name with another UUID has lost its log: its old
// identity is removed, and it is added as a new node.
//
// Addresses are found through gossip, so a voter that returns at another address is
// reached at once. The configuration is corrected when that voter leads: raft v1.7.3
// reads a follower's entry without a lock while it replicates (replication.go,
// updateLastAppended), and a change at that time is a data race.
func (f Voters) Next() (VoterChange, bool) {
	f.states = stateOf(f.Members)
	if c, ok := f.correct(); ok {
		return c, true
	}
	for _, s := range f.Servers {
		if s.Votes {
			f.voters = append(f.voters, s.ID)
		} else {
			f.learners = append(f.learners, s.ID)
		}
	}
	wanted := f.wanted()
	var surplus []VoterID // in the order of their release
	for _, v := range f.voters {
		if !slices.Contains(wanted, v.Node()) {
			surplus = append(surplus, v)
		}
	}
	slices.SortFunc(surplus, func(a, b VoterID) int {
		return cmp.Or(cmp.Compare(f.class(b.Node()), f.class(a.Node())), compareNames(b.Node(), a.Node()))
	})
	missing := slices.DeleteFunc(wanted, func(n shard.NodeID) bool {
		return slices.ContainsFunc(f.voters, func(v VoterID) bool { return v.Node() == n })
	})
	switch {
	case len(f.voters) > f.Expect && len(surplus) > 0:
		return f.release(surplus[0], "another node votes in its place"), true
	case len(f.voters) < f.Expect && len(missing) > 0:
		return f.promote(missing[0], "a voter is missing"), true
	case f.Reports != nil && len(missing) > 0 && len(surplus) > 0:
		if c, ok := f.replace(surplus[0], missing[0]); ok {
			return c, true
		}
	}
	if f.Reports == nil {
		return VoterChange{}, false
	}
	return f.learn()
}

// correct returns the change that sets the identities and the leader's address in
// raft's configuration to those of the members.
func (f *Voters) correct() (VoterChange, bool) {
	for _, m := range f.standing() {
		id, addr := NewVoterID(m.Name, m.UUID), m.RaftAddress
		if m.Name == f.Self.Node() && id != f.Self {
			continue // another node with our name: gossip will report it
		}
		i := slices.IndexFunc(f.Servers, func(s Server) bool { return s.ID.Node() == m.Name })
		switch {
		case i < 0:
		case f.Servers[i].ID != id:
			return VoterChange{Do: RemoveVoter, ID: f.Servers[i].ID, Why: "it lost its disk and returned with a new identity"}, true
		case id == f.Self && f.Servers[i].Address != addr:
			return VoterChange{Do: AddVoter, ID: id, Address: addr, Why: "its address has changed"}, true
		}
	}
	return VoterChange{}, false
}

// standing returns the live members that may vote, ordered by name.
func (f *Voters) standing() []shard.Member {
	members := slices.DeleteFunc(slices.Clone(f.Members), func(m shard.Member) bool {
		return m.State != shard.Alive || m.BootstrapExpect == 0 || m.UUID == "" || m.RaftAddress == ""
	})
	slices.SortFunc(members, func(a, b shard.Member) int { return compareNames(a.Name, b.Name) })
	return members
}

// class ranks voters, lower is better: healthy or expected to return, leaving,
// lost.
func (f *Voters) class(n shard.NodeID) int {
	switch {
	case f.lost(n):
		return 2
	case f.leaves(n):
		return 1
	}
	return 0
}

func (f *Voters) lost(n shard.NodeID) bool {
	return n != f.Self.Node() && f.LostAfter > 0 && f.Away(n) >= f.LostAfter
}

// leaves reports whether the node is drained, is shutting down, or has left.
func (f *Voters) leaves(n shard.NodeID) bool {
	m := f.states[n]
	return (f.Map != nil && f.Map.IsDrained(n)) || m.Draining || m.State == shard.Left
}

// wanted returns the nodes that should vote: from as many zones as possible, and
// the first of each zone by ordinal. It includes voters that leave or are lost only
// when there are too few others.
func (f *Voters) wanted() (out []shard.NodeID) {
	type node struct {
		name  shard.NodeID
		class int
	}
	var pool []node
	for _, v := range f.voters {
		pool = append(pool, node{v.Node(), f.class(v.Node())})
	}
	for _, m := range f.standing() {
		taken := slices.ContainsFunc(f.voters, func(v VoterID) bool { return v.Node() == m.Name })
		if taken || f.leaves(m.Name) || f.Away(m.Name) >= learnPatience || m.Name == f.Self.Node() {
			continue
		}
		pool = append(pool, node{m.Name, 0})
	}
	votes := make(map[string]int)
	for len(out) < f.Expect && len(pool) > 0 {
		best := slices.MinFunc(pool, func(a, b node) int {
			return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(votes[f.states[a.name].Zone], votes[f.states[b.name].Zone]), compareNames(a.name, b.name))
		})
		pool = slices.DeleteFunc(pool, func(n node) bool { return n == best })
		votes[f.states[best.name].Zone]++
		out = append(out, best.name)
	}
	return out
}

// release takes the vote from a voter. A leader first hands over the
// leadership. A node that gossip does not see cannot become a learner.
func (f *Voters) release(v VoterID, why string) VoterChange {
	switch {
	case v == f.Self:
		return VoterChange{Do: StepDown, ID: v, Why: why}
	case !serves(f.states, v.Node()):
		return VoterChange{Do: RemoveVoter, ID: v, Why: why}
	}
	return VoterChange{Do: DemoteVoter, ID: v, Why: why}
}

// promote makes a node a learner, and then a voter.
func (f *Voters) promote(n shard.NodeID, why string) VoterChange {
	m := f.states[n]
	c := VoterChange{Do: AddVoter, ID: NewVoterID(n, m.UUID), Address: m.RaftAddress, Why: why}
	switch {
	case f.Reports == nil:
	case !slices.Contains(f.learners, c.ID):
		c.Do = LearnVoter
	case !f.Reports.caughtUp(n):
		c.Do = AwaitVoter
	}
	return c
}

// replace begins to replace a voter with next, or continues. The vote of a healthy
// voter moves only while all voters are healthy, and only to a node that has been
// alive for a while.
func (f *Voters) replace(v VoterID, next shard.NodeID) (VoterChange, bool) {
	name := v.Node()
	if f.class(name) == 0 && !f.calm(next) {
		return VoterChange{}, false
	}
	c := f.promote(next, "it votes in place of "+string(name))
	if c.Do == AddVoter && (f.lost(name) || !serves(f.states, name)) && v != f.Self {
		return f.release(v, "it is gone, and another node can vote"), true
	}
	return c, true
}

func (f *Voters) calm(next shard.NodeID) bool {
	return f.Now.Sub(f.states[next].Since) >= returnAfter && !slices.ContainsFunc(f.voters, func(v VoterID) bool {
		return f.states[v.Node()].State != shard.Alive || f.Away(v.Node()) > 0
	})
}

// learn makes nodes learners that have a log but no longer vote. Otherwise they
// would stand for election forever, as voters of an old configuration. It also
// removes learners that are gone.
func (f *Voters) learn() (VoterChange, bool) {
	for _, l := range f.learners {
		if f.lost(l.Node()) && !serves(f.states, l.Node()) {
			return VoterChange{Do: RemoveVoter, ID: l, Why: "it has been gone for long and had no vote"}, true
		}
	}
	for _, m := range f.standing() {
		id := NewVoterID(m.Name, m.UUID)
		known := slices.ContainsFunc(f.Servers, func(s Server) bool { return s.ID.Node() == m.Name })
		if !known && f.Reports.hasLog(m.Name) {
			return VoterChange{Do: LearnVoter, ID: id, Address: m.RaftAddress, Why: "it has voted before"}, true
		}
	}
	return VoterChange{}, false
}

// Absence records since when nodes are away. It belongs to the leader, and to one goroutine.
type Absence struct {
	Self  shard.NodeID
	since map[shard.NodeID]time.Time
}

// Observe evaluates the current members and reports, and returns for how long each of the
// servers has been away: gossip shows it as dead, or it reports that its raft log does not
// follow the leader's, or it is a learner that reports nothing. Gossip does not detect a
// closed raft port, or a disk that hangs.
func (a *Absence) Observe(servers []Server, members []shard.Member, reports *Reports, now time.Time) func(shard.NodeID) time.Duration {
	states := stateOf(members)
	since := make(map[shard.NodeID]time.Time)
	for _, s := range servers {
		n := s.ID.Node()
		m, seen := states[n]
		alive := serves(states, n)
		if n == a.Self || (alive && (reports == nil || reports.caughtUp(n) || (s.Votes && !reports.told(n)))) {
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

// Next returns when the next absent node becomes lost; zero: none.
func (a *Absence) Next(lostAfter time.Duration, now time.Time) (again time.Time) {
	for _, at := range a.since {
		if until := at.Add(lostAfter); lostAfter > 0 && until.After(now) && (again.IsZero() || until.Before(again)) {
			again = until
		}
	}
	return again
}

// HasVoteHeir reports whether a node could take over the vote of another. m is nil while
// there is no map.
func HasVoteHeir(of shard.NodeID, members []shard.Member, voters []shard.NodeID, m *shard.Map) bool {
	return slices.ContainsFunc(members, func(o shard.Member) bool {
		return o.Name != of && o.State == shard.Alive && o.BootstrapExpect > 0 && !o.Draining &&
			(m == nil || !m.IsDrained(o.Name)) && !slices.Contains(voters, o.Name)
	})
}
