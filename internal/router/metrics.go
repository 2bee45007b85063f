package router

import (
	"go.opentelemetry.io/otel/metric"

	"github.com/shardwatch/shardwatch/internal/ops/telemetry"
)

// Register registers the metrics of merged windows.
func (r *Router) Register(m metric.Meter) error {
	in := telemetry.NewInstruments(m)
	windows := in.Gauge("shardwatch.merged.windows", "{window}", "Merged windows: one for each set of shards of watches over several shards, 64 at most.")
	bytes := in.Gauge("shardwatch.merged.window", "By", "Bytes of the events in merged windows. The windows of the shards hold them, too.")
	watches := in.Gauge("shardwatch.merged.watches", "{watch}", "Watches that read merged windows. Other watches over several shards merge the shards themselves: they are catching up, or there are too many sets of shards.")
	return in.Observe(func(o metric.Observer) {
		merged := r.Merged()
		o.ObserveInt64(windows, int64(merged.Windows))
		o.ObserveInt64(bytes, merged.Bytes)
		o.ObserveInt64(watches, int64(merged.Readers))
	})
}
