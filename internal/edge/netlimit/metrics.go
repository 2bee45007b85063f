package netlimit

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Register registers the metrics of ports.
func Register(m metric.Meter, limits ...*Limit) error {
	open, err1 := m.Int64ObservableGauge("shardwatch.net.connections", metric.WithUnit("{connection}"),
		metric.WithDescription("Open connections of a port that have completed their handshake."))
	pending, err2 := m.Int64ObservableGauge("shardwatch.net.pending", metric.WithUnit("{connection}"),
		metric.WithDescription("Open connections of a port that are in their handshake."))
	refused, err3 := m.Int64ObservableCounter("shardwatch.net.refused", metric.WithUnit("{connection}"),
		metric.WithDescription("Connections refused or closed at a port: too many, too long in their handshake while others waited, or a failed handshake."))
	waits, err4 := m.Int64ObservableCounter("shardwatch.net.handshake.waits", metric.WithUnit("{wait}"),
		metric.WithDescription("TLS handshakes at a port that had to queue: all clients share half of the cores, and --address-handshakes bounds the rate of one address."))
	paced, err5 := m.Int64ObservableCounter("shardwatch.net.receive.waits", metric.WithUnit("{wait}"),
		metric.WithDescription("Reads at a port that waited because the clients of their address had sent more than --address-rate."))
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return err
	}
	_, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for _, l := range limits {
			s := l.Stats()
			port := attribute.String("port", s.Port)
			o.ObserveInt64(open, int64(s.Settled), metric.WithAttributes(port))
			o.ObserveInt64(pending, int64(s.Pending), metric.WithAttributes(port))
			o.ObserveInt64(waits, s.Waits, metric.WithAttributes(port))
			o.ObserveInt64(paced, s.Paced, metric.WithAttributes(port))
			for why, n := range map[string]int64{"too_many": s.Refused, "pending": s.Dropped, "handshake": s.Failed} {
				o.ObserveInt64(refused, n, metric.WithAttributes(port, attribute.String("why", why)))
			}
		}
		return nil
	}, open, pending, refused, waits, paced)
	return err
}
