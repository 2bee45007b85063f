package planner

import (
	"time"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// A node that dies repeatedly would load its shards at each return, and its peers
// would load them at each death. The leader therefore delays its shards after a
// return: by Settle at first, by holdFirst after the next, then by twice as long
// each time, up to holdMost. A node that lives for calmAfter, or that leaves
// properly, is not flapping.
const (
	holdFirst = 30 * time.Second
	holdMost  = 10 * time.Minute
	calmAfter = 10 * time.Minute
)

// presence is a leader's record of the deaths and returns of a node.
type presence struct {
	state   shard.State
	since   time.Time
	returns int // after a death, in quick succession
}

// observe returns the presence after the observed state of the member.
func (p presence) observe(m shard.Member) presence {
	if m.State == p.state {
		p.since = m.Since
		return p
	}
	switch {
	case m.State == shard.Left:
		p.returns = 0
	case m.State == shard.Dead && p.state == shard.Alive && m.Since.Sub(p.since) >= calmAfter:
		p.returns = 0
	case m.State == shard.Alive && p.state == shard.Dead:
		p.returns++
	}
	if m.State != shard.Suspect { // a suspected node has not returned
		p.state, p.since = m.State, m.Since
	}
	return p
}

// hold returns how long the node must live before it is given shards.
func (p presence) hold(settle time.Duration) time.Duration {
	if p.returns < 2 {
		return settle
	}
	hold := holdFirst
	for i := 2; i < p.returns && hold < holdMost; i++ {
		hold = min(2*hold, holdMost)
	}
	return max(hold, settle)
}

// presences returns the records after the observed states of the members.
func (h Observations) presences(members []shard.Member) map[shard.NodeID]presence {
	next := make(map[shard.NodeID]presence, len(members))
	for _, m := range members {
		p, ok := h.presence[m.Name]
		if !ok {
			p = presence{state: m.State, since: m.Since}
		}
		next[m.Name] = p.observe(m)
	}
	return next
}
