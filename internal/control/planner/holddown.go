package planner

import (
	"time"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// A node that dies again and again would load its shards each time it is back, and
// its peers would load them each time it is gone. So the leader gives it shards ever
// later: at its first return after Settle, at the next after holdFirst, then after
// twice as long each time, up to holdMost. A node that lives for calmAfter, or that
// says goodbye, does not flap.
const (
	holdFirst = 30 * time.Second
	holdMost  = 10 * time.Minute
	calmAfter = 10 * time.Minute
)

// presence is a leader's record of the times at which a node came and went.
type presence struct {
	state   shard.State
	since   time.Time
	returns int // from death, one soon after the other
}

// observe returns the presence after a look at the member.
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
	for range p.returns - 2 {
		if hold *= 2; hold >= holdMost {
			return holdMost
		}
	}
	return max(hold, settle)
}

// presences returns the records of the members after a look at them.
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
