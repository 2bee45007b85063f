package placement

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// voterChange is one change of raft's configuration.
type voterChange struct {
	remove  raft.ServerID // or
	add     raft.ServerID
	address raft.ServerAddress
	why     string
}

// decideVoter returns the next change that brings raft's configuration in
// line with the members, and false when there is none. One at a time: each is
// committed before the next is decided.
//
// A voter that is merely dead stays: it will be back. One that is back under
// its name with another UUID has lost its log: its old identity goes, and it
// is added as somebody new.
//
// Addresses are found through gossip (see addresses), so a voter that comes
// back at another one is reached at once. The configuration is corrected when
// that voter leads: raft v1.7.3 reads a follower's entry without a lock while
// it replicates (replication.go, updateLastAppended), and to change it then is
// a data race.
func decideVoter(servers []raft.Server, self raft.ServerID, expect int, members []shard.Member) (voterChange, bool) {
	members = slices.Clone(members)
	slices.SortFunc(members, func(a, b shard.Member) int { return cmp.Compare(a.Name, b.Name) })
	for _, m := range members {
		if m.State != shard.Alive || m.BootstrapExpect == 0 || m.UUID == "" || m.RaftAddress == "" {
			continue
		}
		id, addr := serverID(m.Name, m.UUID), raft.ServerAddress(m.RaftAddress)
		if m.Name == nameOf(self) && id != self {
			continue // somebody else with our name: gossip will tell it
		}
		i := slices.IndexFunc(servers, func(s raft.Server) bool { return nameOf(s.ID) == m.Name })
		switch {
		case i < 0 && len(servers) < expect:
			return voterChange{add: id, address: addr, why: "a voter is missing"}, true
		case i < 0:
			continue
		case servers[i].ID != id:
			return voterChange{remove: servers[i].ID, why: "it lost its disk and is back as another"}, true
		case id == self && servers[i].Address != addr:
			return voterChange{add: id, address: addr, why: "its address has changed"}, true
		}
	}
	return voterChange{}, false
}

// keepVoters makes the changes that decideVoter asks for, until ctx ends.
func (p *Placement) keepVoters(ctx context.Context, r *raft.Raft) {
	for {
		changed := p.members.wait()
		servers := r.GetConfiguration().Configuration().Servers
		c, ok := decideVoter(servers, p.self, p.cfg.BootstrapExpect, p.ourMembers())
		if ok {
			if err := p.changeVoter(ctx, r, c); err == nil {
				continue
			} else if ctx.Err() == nil {
				p.log.Warn("could not change the voters, trying again", "err", err)
			}
		}
		if !pause(ctx, p.cfg.Heartbeat, ok, changed) {
			return
		}
	}
}

func (p *Placement) changeVoter(ctx context.Context, r *raft.Raft, c voterChange) error {
	if c.remove != "" {
		if err := p.await(ctx, r.RemoveServer(c.remove, 0, p.cfg.BarrierTimeout)); err != nil {
			return fmt.Errorf("remove voter %s: %w", c.remove, err)
		}
		p.log.Info("voter removed", "voter", c.remove, "why", c.why)
		return nil
	}
	if err := p.await(ctx, r.AddVoter(c.add, c.address, 0, p.cfg.BarrierTimeout)); err != nil {
		return fmt.Errorf("add voter %s at %s: %w", c.add, c.address, err)
	}
	p.log.Info("voter added", "voter", c.add, "address", c.address, "why", c.why)
	return nil
}
