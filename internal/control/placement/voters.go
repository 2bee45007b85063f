package placement

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// awaitEvery is how often a learner is asked whether it has the log.
const awaitEvery = 100 * time.Millisecond

// serverID is a voter's identity in raft.
func serverID(name shard.NodeID, uuid string) raft.ServerID {
	return raft.ServerID(planner.NewVoterID(name, uuid))
}

// nameOf returns the node that the identity is of.
func nameOf(id raft.ServerID) shard.NodeID { return planner.VoterID(id).Node() }

// serversOf returns raft's configuration for the planner.
func serversOf(r *raft.Raft) (out []planner.Server) {
	for _, s := range r.GetConfiguration().Configuration().Servers {
		out = append(out, planner.Server{ID: planner.VoterID(s.ID), Address: string(s.Address), Votes: s.Suffrage == raft.Voter})
	}
	return out
}

// keepVoters makes the changes that the planner decides on, until ctx ends.
func (p *Placement) keepVoters(ctx context.Context, r *raft.Raft) {
	absent := planner.Absence{Self: p.cfg.Name}
	for {
		changed := p.members.wait()
		m, moved := p.maps.watch()
		servers, members, reports, now := serversOf(r), p.ourMembers(), p.reported(), time.Now()
		if reports == nil && p.cfg.Reports != nil {
			reports = new(planner.Reports) // none yet
		}
		c, ok := planner.Voters{
			Servers: servers, Self: planner.VoterID(p.self), Expect: p.cfg.BootstrapExpect, Members: members, Reports: reports, Map: m, Now: now,
			Away: absent.Observe(servers, members, reports, now), LostAfter: p.cfg.ReplaceVoterAfter,
		}.Next()
		again := absent.Next(p.cfg.ReplaceVoterAfter, now)
		wait := time.Until(again)
		switch {
		case !ok:
		case c.Do == planner.AwaitVoter:
			p.askReport(ctx, r, c.ID.Node())
			wait = awaitEvery
		default:
			err := p.changeVoter(ctx, r, c)
			if err == nil {
				continue
			}
			if ctx.Err() == nil && r.State() == raft.Leader {
				p.log.Warn("voters not changed, retrying", "err", err)
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
func (p *Placement) askNodes(ctx context.Context, nodes []shard.NodeID) []planner.Report {
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
		if !planner.HasVoteHeir(p.cfg.Name, p.ourMembers(), p.Voters(), p.Map()) || !pause(ctx, awaitEvery, true, p.members.wait()) {
			return false
		}
	}
	return true
}

func (p *Placement) changeVoter(ctx context.Context, r *raft.Raft, c planner.VoterChange) error {
	id, address := raft.ServerID(c.ID), raft.ServerAddress(c.Address)
	var f raft.Future
	switch c.Do {
	case planner.LearnVoter:
		f = r.AddNonvoter(id, address, 0, p.cfg.BarrierTimeout)
	case planner.AddVoter:
		f = r.AddVoter(id, address, 0, p.cfg.BarrierTimeout)
	case planner.DemoteVoter:
		f = r.DemoteVoter(id, 0, p.cfg.BarrierTimeout)
	case planner.RemoveVoter:
		f = r.RemoveServer(id, 0, p.cfg.BarrierTimeout)
	case planner.StepDown:
		f = r.LeadershipTransfer()
	}
	if err := p.await(ctx, f); err != nil {
		return fmt.Errorf("%s voter %s: %w", c.Do, c.ID, err)
	}
	p.stats.addVoter(c.Do)
	p.log.Info("voters changed", "change", string(c.Do), "voter", c.ID, "why", c.Why)
	return nil
}
