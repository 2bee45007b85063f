package membership

import (
	"cmp"
	"slices"
	"time"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// maxGone bounds how many dead and departed members are kept.
const maxGone = 1024

// roster holds every known member, by name. It is a value: observe takes the
// seen members and returns the changes.
type roster struct {
	retention time.Duration
	members   map[shard.NodeID]shard.Member
}

// transition is a member whose state, address or incarnation changed.
type transition struct {
	before, after shard.Member // before is the zero Member for a new member
}

// observe records all members seen at now. It reports whether anything changed,
// and the transitions, sorted by name.
//
// A member that is no longer seen was dead for so long that gossip has
// forgotten it. It is kept until the retention ends.
func (r *roster) observe(now time.Time, seen []shard.Member) (changed bool, out []transition) {
	if r.members == nil {
		r.members = make(map[shard.NodeID]shard.Member)
	}
	present := make(map[shard.NodeID]bool, len(seen))
	for _, m := range seen {
		present[m.Name] = true
		before, known := r.members[m.Name]
		if !known && gone(m) && m.UUID == "" {
			continue // gossip about a dead node that was never seen here
		}
		m.Since = before.Since
		if !known || m.State != before.State || m.UUID != before.UUID {
			m.Since = now
		}
		if m == before {
			continue
		}
		r.members[m.Name] = m
		changed = true
		if !known || m.State != before.State || m.UUID != before.UUID || m.GossipAddress != before.GossipAddress {
			out = append(out, transition{before, m})
		}
	}
	for name, m := range r.members {
		if present[name] {
			continue
		}
		if !gone(m) {
			before := m
			m.State, m.Since = shard.Dead, now
			r.members[name] = m
			changed = true
			out = append(out, transition{before, m})
		} else if now.Sub(m.Since) > r.retention {
			delete(r.members, name)
			changed = true
		}
	}
	changed = r.bound() || changed
	slices.SortFunc(out, func(a, b transition) int { return cmp.Compare(a.after.Name, b.after.Name) })
	return changed, out
}

// bound drops the members that have been gone longest, above maxGone.
func (r *roster) bound() bool {
	var old []shard.Member
	for _, m := range r.members {
		if gone(m) {
			old = append(old, m)
		}
	}
	if len(old) <= maxGone {
		return false
	}
	slices.SortFunc(old, func(a, b shard.Member) int { return a.Since.Compare(b.Since) })
	for _, m := range old[:len(old)-maxGone] {
		delete(r.members, m.Name)
	}
	return true
}

// list returns all members, sorted by name.
func (r *roster) list() []shard.Member {
	out := make([]shard.Member, 0, len(r.members))
	for _, m := range r.members {
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b shard.Member) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func gone(m shard.Member) bool { return m.State == shard.Dead || m.State == shard.Left }
