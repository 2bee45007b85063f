package lineage

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/ops/telemetry"
)

// Register registers the metrics of etcd's histories.
func (l *Keeper) Register(m metric.Meter) error {
	in := telemetry.NewInstruments(m)
	var (
		serving  = in.Gauge("shardwatch.node.lineage", "{lineage}", "History of etcd that this node serves: one more after each restore.")
		refusing = in.Gauge("shardwatch.node.refusing", "{bool}", "1 while the node refuses reads and watches because etcd has a different history and the next lineage has not begun.")
		begun    = in.Counter("shardwatch.node.lineages", "{lineage}", "Lineages begun since this node started, by the evidence that ended the previous one.")
	)
	return in.Observe(func(o metric.Observer) {
		number, causes := l.count()
		o.ObserveInt64(serving, int64(number)) //nolint:gosec // a count of restores
		o.ObserveInt64(refusing, telemetry.Bool(l.over.Load() != nil))
		for cause, times := range causes {
			o.ObserveInt64(begun, times, metric.WithAttributes(attribute.String("cause", string(cause))))
		}
	})
}

// count returns the node's lineage, and the number of begun lineages by cause, with
// every cause.
func (l *Keeper) count() (number uint64, begun map[kv.Cause]int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	begun = make(map[kv.Cause]int64)
	for _, cause := range kv.Causes() {
		begun[cause] = l.begun[cause]
	}
	return l.number, begun
}
