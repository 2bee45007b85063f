package placement

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// awaitEvery is the interval of checks whether a learner has the log, or whether the vote is handed over.
const awaitEvery = 100 * time.Millisecond

// serverID is a voter's identity in raft.
func serverID(name shard.NodeID, uuid string) raft.ServerID {
	return raft.ServerID(planner.NewVoterID(name, uuid))
}

// nameOf returns the node that has this identity.
func nameOf(id raft.ServerID) shard.NodeID { return planner.VoterID(id).Node() }

// serversOf returns raft's configuration for the planner.
func serversOf(r *raft.Raft) (out []planner.Server) {
	for _, s := range r.GetConfiguration().Configuration().Servers {
		out = append(out, planner.Server{ID: planner.VoterID(s.ID), Address: string(s.Address), Votes: s.Suffrage == raft.Voter})
	}
	return out
}

// keepVoters makes the changes that the planner decides, until ctx ends.
func (l *leader) keepVoters(ctx context.Context) {
	absent := planner.Absence{Self: l.cfg.Name}
	for {
		changed := l.members.Wait()
		m, moved := l.maps.watch()
		servers, members, reports, now := serversOf(l.r), l.ourMembers(), l.reported(), time.Now()
		if reports == nil && l.cfg.Reports != nil {
			reports = new(planner.Reports) // none yet
		}
		c, ok := planner.Voters{
			Servers: servers, Self: planner.VoterID(l.self), Expect: l.cfg.BootstrapExpect, Members: members, Reports: reports, Map: m, Now: now,
			Away: absent.Observe(servers, members, reports, now), LostAfter: l.cfg.ReplaceVoterAfter,
		}.Next()
		again := absent.Next(l.cfg.ReplaceVoterAfter, now)
		wait := time.Until(again)
		switch {
		case !ok:
		case c.Do == planner.AwaitVoter:
			l.askReport(ctx, c.ID.Node())
			wait = awaitEvery
		default:
			err := l.changeVoter(ctx, c)
			if err == nil {
				continue
			}
			if ctx.Err() == nil && l.r.State() == raft.Leader {
				l.log.Warn("voters not changed, retrying", "error", err)
			}
			wait = l.cfg.Heartbeat
		}
		if !pause(ctx, wait, ok || !again.IsZero(), changed, moved) {
			return
		}
	}
}

// askNodes asks nodes for their reports. A raft log of an older generation counts as
// no log.
func (l *leader) askNodes(ctx context.Context, nodes []shard.NodeID) []planner.Report {
	reports, m := l.cfg.Reports(ctx, nodes), l.Map()
	for i := range reports {
		if m != nil && reports[i].MapVersion < m.Generation {
			reports[i].RaftIndex = 0
		}
	}
	return reports
}

// askReport asks one node for its report.
func (l *leader) askReport(ctx context.Context, n shard.NodeID) {
	index := l.r.AppliedIndex()
	reports := l.askNodes(ctx, []shard.NodeID{n})
	l.reportMu.Lock()
	defer l.reportMu.Unlock()
	l.reports = l.reports.Add(time.Now(), index, reports)
}

// HandOverVote waits until this node, which is draining by gossip, has no vote: the
// leader gives it to another node. It returns false if the node keeps its vote, and
// does so at once when no node can take it.
func (p *Placement) HandOverVote(ctx context.Context) bool {
	for p.IsVoter(p.cfg.Name) {
		if !planner.HasVoteHeir(p.cfg.Name, p.ourMembers(), p.Voters(), p.Map()) || !pause(ctx, awaitEvery, true, p.members.Wait()) {
			return false
		}
	}
	return true
}

func (l *leader) changeVoter(ctx context.Context, c planner.VoterChange) error {
	id, address := raft.ServerID(c.ID), raft.ServerAddress(c.Address)
	var f raft.Future
	switch c.Do {
	case planner.LearnVoter:
		f = l.r.AddNonvoter(id, address, 0, l.cfg.BarrierTimeout)
	case planner.AddVoter:
		f = l.r.AddVoter(id, address, 0, l.cfg.BarrierTimeout)
	case planner.DemoteVoter:
		f = l.r.DemoteVoter(id, 0, l.cfg.BarrierTimeout)
	case planner.RemoveVoter:
		f = l.r.RemoveServer(id, 0, l.cfg.BarrierTimeout)
	case planner.StepDown:
		f = l.r.LeadershipTransfer()
	}
	if err := l.await(ctx, f); err != nil {
		return fmt.Errorf("%s voter %s: %w", c.Do, c.ID, err)
	}
	l.stats.addVoter(c.Do)
	l.log.Info("voters changed", "change", string(c.Do), "voter", c.ID, "why", c.Why)
	return nil
}
