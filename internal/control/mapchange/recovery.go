package mapchange

import (
	"fmt"
	"slices"
	"strings"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// Witness is the state of one node, from which a recovery of the voters is planned.
type Witness struct {
	// Member is the node as gossip sees it.
	Member shard.Member
	// Answered: the node has reported the following fields.
	Answered   bool
	MapVersion uint64
	// Voters are the voters in the node's raft log, RaftIndex is its newest entry, and
	// Leader the leader of the voters. They are empty for nodes that do not vote.
	Voters    []shard.NodeID
	RaftIndex uint64
	Leader    shard.NodeID
}

// reachable reports whether gossip sees the node.
func (w *Witness) reachable() bool {
	return w.Member.State == shard.Alive || w.Member.State == shard.Suspect
}

// Recovery is the plan of a recovery of the voters: after the permanent loss of a
// majority, one node becomes the only voter, with its map.
type Recovery struct {
	// Node is the node that becomes the only voter, MapVersion the version of its map.
	Node       shard.NodeID
	MapVersion uint64
	// Announced is the newest map version that any node has announced.
	Announced uint64
	// Voters are the known voters, Reachable those of them that still vote.
	Voters, Reachable []shard.NodeID
}

// NewRecovery returns the plan of a recovery. It fails with a *RefusedError if the
// voters may elect a leader without it, or if no reachable node can be the first
// voter.
func NewRecovery(witnesses []Witness, announced uint64) (*Recovery, error) {
	r := &Recovery{Announced: announced}
	var newest, index uint64
	for i := range witnesses {
		w := &witnesses[i]
		if !w.Answered {
			continue
		}
		if w.Leader != "" {
			return nil, refused("voters", "%s reports that %s leads the voters: there is nothing to recover", w.Member.Name, w.Leader)
		}
		if len(w.Voters) > 0 && (r.Voters == nil || w.RaftIndex > index) {
			r.Voters, index = slices.Sorted(slices.Values(w.Voters)), w.RaftIndex
		}
		newest = max(newest, w.MapVersion)
	}
	r.findVoters(witnesses)
	if need := len(r.Voters)/2 + 1; len(r.Reachable) >= need {
		return nil, refused("voters", "%d of %d voters are reachable (%s), and %d are a majority: they elect a leader once they reach each other's raft port", len(r.Reachable), len(r.Voters), names(r.Reachable), need)
	}
	if newest == 0 {
		return nil, refused("voters", "no reachable node has a shard map: there is nothing to recover from")
	}
	r.MapVersion = newest
	return r, r.choose(witnesses)
}

// findVoters finds the voters that can still vote. A node that lost its disk returns
// under its old name without a vote, which it announces by gossip.
func (r *Recovery) findVoters(witnesses []Witness) {
	known := r.Voters != nil
	for i := range witnesses {
		w := &witnesses[i]
		if !known && w.Member.Voter && w.Member.State != shard.Left {
			r.Voters = append(r.Voters, w.Member.Name)
		}
		if w.reachable() && w.Member.Voter && slices.Contains(r.Voters, w.Member.Name) {
			r.Reachable = append(r.Reachable, w.Member.Name)
		}
	}
	slices.Sort(r.Voters)
	slices.Sort(r.Reachable)
}

// choose chooses the first voter: the first node by name that has the newest map.
func (r *Recovery) choose(witnesses []Witness) error {
	var old []string
	for i := range witnesses {
		w := &witnesses[i]
		if w.reachable() && shard.Understood(shard.LevelSettings, []shard.Member{w.Member}) != nil {
			old = append(old, string(w.Member.Name))
		}
		if w.Answered && w.MapVersion == r.MapVersion && w.Member.State == shard.Alive && w.Member.BootstrapExpect > 0 && !w.Member.Draining &&
			(r.Node == "" || w.Member.Name < r.Node) {
			r.Node = w.Member.Name
		}
	}
	switch {
	case len(old) > 0:
		slices.Sort(old)
		return refused("node", "%s run older software, which cannot read the recovered map: upgrade them first", strings.Join(old, ", "))
	case r.Node == "":
		return refused("node", "no node that may vote has the newest shard map, version %d: wait until it has reached one, or start a node with --bootstrap-expect", r.MapVersion)
	}
	return nil
}

// RecoverOrder asks for a recovery of the voters.
type RecoverOrder struct {
	// DryRun asks for the plan only.
	DryRun bool
	// Node and MapVersion are those of the plan that the operator has approved.
	Node       shard.NodeID
	MapVersion uint64
}

// Confirms fails with a *RefusedError if the order was made for another plan.
func (r *Recovery) Confirms(o RecoverOrder) error {
	if o.Node == r.Node && o.MapVersion == r.MapVersion {
		return nil
	}
	return refused("node", "the plan was for node %q with map version %d, but is now for %s with version %d: review the plan again", o.Node, o.MapVersion, r.Node, r.MapVersion)
}

// String describes the recovery for logs.
func (r *Recovery) String() string {
	return fmt.Sprintf("recover the voters at %s from map version %d", r.Node, r.MapVersion)
}
