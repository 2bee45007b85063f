package placement

import (
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
