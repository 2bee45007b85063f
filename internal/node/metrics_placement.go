package node

import (
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// registerPlacement registers what becomes of the shard map.
func (n *Node) registerPlacement(m metric.Meter) error {
	in := &instruments{m: m}
	changes := in.counter("shardwatch.placement.changes", "{shard}", "Shards that this node has changed as the leader, by what was done: moved, split (until there are as many as the founding asked for) or merged; and for their load: split, to be merged, more or fewer replicas, or left because they have too few keys to be split.")
	waiting := in.gauge("shardwatch.placement.waiting", "{shard}", "Shards whose load asks for a split, a merge or another number of replicas that has not come yet: the load has to last, or a bound forbids it. 0 on nodes that do not lead.")
	return in.observe(func(o metric.Observer) {
		f := n.placement.Stats()
		for _, op := range planner.Operations() {
			o.ObserveInt64(changes, f.Shards[op], metric.WithAttributes(attribute.String("what", string(op))))
		}
		for what, shards := range map[string]int{"split": f.Waiting.Split, "merge": f.Waiting.Merge, "replicas": f.Waiting.Replicas} {
			o.ObserveInt64(waiting, int64(shards), metric.WithAttributes(attribute.String("for", what)))
		}
	}, changes, waiting)
}

// registerHolding registers what watches over several shards read, and which shards
// they have to wait for.
func (n *Node) registerHolding(m metric.Meter) error {
	in := &instruments{m: m}
	holding := in.seconds("shardwatch.shard.holds_back", "For how long watches over several shards have had a revision of others here and waited for this shard to come to it. 0: they do not.")
	windows := in.gauge("shardwatch.merged.windows", "{window}", "Merged windows: one for each set of shards that watches over several shards have, 64 at most.")
	bytes := in.gauge("shardwatch.merged.window", "By", "Bytes of the events in merged windows. The windows of the shards hold them, too.")
	watches := in.gauge("shardwatch.merged.watches", "{watch}", "Watches that read merged windows. The others over several shards merge these by themselves: they catch up, or there are too many sets of shards.")
	return in.observe(func(o metric.Observer) {
		merged := n.router.Merged()
		o.ObserveInt64(windows, int64(merged.Windows))
		o.ObserveInt64(bytes, merged.Bytes)
		o.ObserveInt64(watches, int64(merged.Readers))
		by := n.router.HoldingBack()
		ages := make(map[shard.ID]time.Duration)
		for _, h := range n.store.all() { // a relay may stand beside a replica
			ages[h.id] = max(ages[h.id], by[h.cache])
		}
		for id, age := range ages {
			o.ObserveFloat64(holding, age.Seconds(), metric.WithAttributes(attribute.String("shard", strconv.FormatUint(uint64(id), 10))))
		}
	}, holding, windows, bytes, watches)
}
