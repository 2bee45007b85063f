package membership

import (
	"context"
	"log/slog"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/shardwatch/shardwatch/internal/beat"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// watch keeps Members in step with memberlist's view. It reads the view when
// memberlist reports or gossips a change, and at least at every lookInterval. It ends
// with ctx, or when another node has had our name for too long.
func (m *Membership) watch(ctx context.Context, obs *observer) error {
	tick := time.NewTimer(beat.Until(m.cfg.ViewInterval))
	defer tick.Stop()
	for {
		nodes, err := obs.look()
		if err != nil {
			m.log.Debug("cannot read the members", "error", err)
		} else {
			m.take(nodes)
		}
		looked := time.Now()
		for due := false; !due; {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case err := <-m.verdict:
				return err
			case <-m.looks:
				due = true
			case <-tick.C:
				tick.Reset(beat.Until(m.cfg.ViewInterval))
				now := time.Now()
				due = m.quiet.busy(now) || now.Sub(looked) >= lookInterval(m.cfg.ViewInterval, int(m.size.Load()))
			}
		}
	}
}

// take replaces the members with a view of memberlist.
func (m *Membership) take(nodes []*memberlist.Node) {
	m.mu.Lock()
	seen := make([]shard.Member, 0, len(nodes))
	for _, n := range nodes {
		if n.Name == string(m.self.Name) {
			continue
		}
		if member, ok := fromNode(n); ok {
			seen = append(seen, member.Member)
		}
	}
	seen = append(seen, m.selfLocked())
	changed, transitions := m.roster.observe(time.Now(), seen)
	if changed {
		m.members = m.roster.list()
		m.size.Store(int64(len(m.members)))
	}
	self := m.self.Name
	m.mu.Unlock()

	for _, t := range transitions {
		if t.after.Name != self {
			m.logTransition(t)
		}
	}
	if changed {
		m.changes.Notify()
		m.joins.Wake()
	}
}

func (m *Membership) logTransition(t transition) {
	level, what := slog.LevelInfo, "member is alive"
	switch t.after.State {
	case shard.Suspect:
		what = "member is suspect"
	case shard.Dead:
		level, what = slog.LevelWarn, "member is dead"
	case shard.Left:
		what = "member left"
	}
	m.log.Log(context.Background(), level, what, "member", t.after.Name, "uuid", t.after.UUID,
		"gossip", t.after.GossipAddress, "zone", t.after.Zone, "version", t.after.Version)
}

// fromNode converts a node of memberlist. It returns false if the metadata cannot
// be read; such nodes are refused when they are announced, see NotifyAlive.
func fromNode(n *memberlist.Node) (meta, bool) {
	m, err := decodeMeta(n.Meta, n.Addr.String())
	if err != nil {
		return meta{}, false
	}
	m.Name = shard.NodeID(n.Name)
	m.GossipAddress = n.Address()
	switch n.State {
	case memberlist.StateAlive:
		m.State = shard.Alive
	case memberlist.StateSuspect:
		m.State = shard.Suspect
	case memberlist.StateLeft:
		m.State = shard.Left
	default:
		m.State = shard.Dead
	}
	return m, true
}
