package budget

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/shardwatch/shardwatch/internal/ops/telemetry"
)

// Register registers the metrics of the budget.
func (b *Budget) Register(m metric.Meter) error {
	in := telemetry.NewInstruments(m)
	var (
		held    = in.Gauge("shardwatch.budget.held", "By", "Bytes held for clients, by use: watches and their keys, catch-ups, incomplete requests, keys from other nodes, and lists, replies and JSON that clients have not read yet.")
		share   = in.Gauge("shardwatch.budget.share", "By", "Maximum bytes of each use: its share of --max-client-bytes, and for watches --max-watch-bytes.")
		waiting = in.Gauge("shardwatch.budget.waiting", "{caller}", "Callers waiting for bytes of a use.")
		waits   = in.Counter("shardwatch.budget.waits", "{caller}", "Callers that had to wait for bytes of a use.")
		refused = in.Counter("shardwatch.budget.refusals", "{caller}", "Callers that were refused bytes of a use, with RESOURCE_EXHAUSTED.")
		clients = in.Gauge("shardwatch.budget.clients", "{client}", "Clients that hold or wait for bytes of a use, counted by identity of the policy, certificate name or address.")
		largest = in.Gauge("shardwatch.budget.largest", "By", "Bytes of a use held by the client that holds most.")
		capped  = in.Counter("shardwatch.budget.capped", "{caller}", "Callers that had to wait or were refused because their client had used its share of a use.")
	)
	return in.Observe(func(o metric.Observer) {
		for _, s := range b.Status() {
			use := metric.WithAttributes(attribute.String("use", s.Use.String()))
			o.ObserveInt64(held, s.Held, use)
			o.ObserveInt64(share, s.Most, use)
			o.ObserveInt64(waiting, s.Waiting, use)
			o.ObserveInt64(waits, s.Waited, use)
			o.ObserveInt64(refused, s.Refused, use)
			o.ObserveInt64(clients, s.Clients, use)
			o.ObserveInt64(largest, s.Largest, use)
			o.ObserveInt64(capped, s.Capped, use)
		}
	})
}
