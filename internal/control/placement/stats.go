package placement

import (
	"maps"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/ops/telemetry"
)

// Register registers the metrics of shard map changes.
func (p *Placement) Register(m metric.Meter) error {
	in := telemetry.NewInstruments(m)
	changes := in.Counter("shardwatch.placement.changes", "{shard}", "Shards that this node has changed as the leader, by action: moved, split (until there are as many as the founding asked for) or merged; and for their load: split, to be merged, more or fewer replicas, or left because they have too few keys to be split.")
	waiting := in.Gauge("shardwatch.placement.waiting", "{shard}", "Shards whose load calls for a split, a merge or another number of replicas that is still pending: the load has to last, or a bound forbids it. 0 on nodes that do not lead.")
	return in.Observe(func(o metric.Observer) {
		f := p.Stats()
		for _, op := range planner.Operations() {
			o.ObserveInt64(changes, f.Shards[op], metric.WithAttributes(attribute.String("what", string(op))))
		}
		for what, shards := range map[string]int{"split": f.Waiting.Split, "merge": f.Waiting.Merge, "replicas": f.Waiting.Replicas} {
			o.ObserveInt64(waiting, int64(shards), metric.WithAttributes(attribute.String("for", what)))
		}
	})
}

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

func (s *stats) note(change func(*Stats)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.total)
}

func (s *stats) addShards(op planner.Operation, n int) {
	s.note(func(t *Stats) { t.Shards[op] += int64(n) })
}
func (s *stats) addVoter(step planner.VoterStep) { s.note(func(t *Stats) { t.Voters[step]++ }) }
func (s *stats) setWaiting(w planner.Waiting)    { s.note(func(t *Stats) { t.Waiting = w }) }

// Stats returns the counts of this node's operations as the leader.
func (p *Placement) Stats() (out Stats) {
	p.stats.note(func(t *Stats) {
		out = Stats{Shards: maps.Clone(t.Shards), Voters: maps.Clone(t.Voters), Waiting: t.Waiting}
	})
	return out
}
