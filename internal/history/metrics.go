package history

import (
	"go.opentelemetry.io/otel/metric"

	"github.com/shardwatch/shardwatch/internal/telemetry"
)

// Register registers the metrics of what is kept on disk.
func (s *Store) Register(m metric.Meter) error {
	in := telemetry.NewInstruments(m)
	gauge, counter := in.Gauge, in.Counter
	var (
		kept      = gauge("shardwatch.history.size", "By", "Bytes on disk of what is known of the past.")
		written   = counter("shardwatch.history.written", "By", "Bytes of it that were written.")
		unwritten = counter("shardwatch.history.failures", "{shard}", "Times that a shard's part of it could not be written.")
		failing   = gauge("shardwatch.history.failing", "{bool}", "1 while it cannot be written, as the log tells why.")
		discarded = counter("shardwatch.history.discarded", "{file}", "Parts of it that were not used at the start, as the log tells why: files, shards, ends of segments.")
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
