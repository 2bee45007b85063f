package placement

import (
	"maps"
	"sync"

	"github.com/shardwatch/shardwatch/internal/control/planner"
)

// Stats count this node's operations as the leader since its start.
type Stats struct {
	// Shards counts shards by operation.
	Shards map[planner.Operation]int64
	// Voters counts changes of the voters by step.
	Voters map[planner.VoterStep]int64
	// Waiting counts the pending changes for the load; zero on nodes that do not lead.
	Waiting planner.Waiting
}

// stats counts the operations of a leader.
type stats struct {
	mu    sync.Mutex
	total Stats // guarded by mu
}

func newStats() *stats {
	return &stats{total: Stats{Shards: make(map[planner.Operation]int64), Voters: make(map[planner.VoterStep]int64)}}
}

func (s *stats) addShards(op planner.Operation, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total.Shards[op] += int64(n)
}

func (s *stats) addVoter(step planner.VoterStep) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total.Voters[step]++
}

func (s *stats) setWaiting(w planner.Waiting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total.Waiting = w
}

// Stats returns the counts of this node's operations as the leader.
func (p *Placement) Stats() Stats {
	p.stats.mu.Lock()
	defer p.stats.mu.Unlock()
	out := p.stats.total
	out.Shards, out.Voters = maps.Clone(out.Shards), maps.Clone(out.Voters)
	return out
}
