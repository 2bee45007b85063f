package history

import (
	"go.opentelemetry.io/otel/metric"

	"github.com/shardwatch/shardwatch/internal/ops/telemetry"
)

// Register registers the metrics of the history on disk.
func (s *Store) Register(m metric.Meter) error {
	in := telemetry.NewInstruments(m)
	gauge, counter := in.Gauge, in.Counter
	var (
		kept      = gauge("shardwatch.history.size", "By", "Bytes of history on disk.")
		written   = counter("shardwatch.history.written", "By", "Bytes of history written.")
		unwritten = counter("shardwatch.history.failures", "{shard}", "Failed writes of a shard's history.")
		failing   = gauge("shardwatch.history.failing", "{bool}", "1 while history cannot be written; the log has the reason.")
		discarded = counter("shardwatch.history.discarded", "{file}", "Parts of the history that were not used at the start: files, shards, ends of segments; the log has the reason.")
	)
	return in.Observe(func(o metric.Observer) {
		h := s.Status()
		o.ObserveInt64(kept, h.Bytes)
		o.ObserveInt64(written, h.Written)
		o.ObserveInt64(unwritten, h.Failed)
		o.ObserveInt64(failing, telemetry.Bool(h.Failing != ""))
		o.ObserveInt64(discarded, h.Discarded)
	})
}
