// Package otel exports the actions of a client as OpenTelemetry metrics. For traces of its RPCs,
// put OpenTelemetry's handler for gRPC into DialOptions of [client.Config].
package otel

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/shardwatch/shardwatch/client"
)

// Observer returns an observer for [client.Config] that records in the provider's instruments.
// Clients of one program share an observer.
func Observer(provider metric.MeterProvider) (client.Observer, error) {
	meter := provider.Meter("github.com/shardwatch/shardwatch/client")
	attempts, err1 := meter.Float64Histogram("shardwatch.client.attempt.duration", metric.WithUnit("s"),
		metric.WithDescription("Duration of each attempt of a read or write at a node, and whether it failed."),
		metric.WithExplicitBucketBoundaries(0.0005, 0.002, 0.008, 0.032, 0.128, 0.512, 2.048, 8.192, 32.768))
	resumes, err2 := meter.Int64Counter("shardwatch.client.resumes", metric.WithDescription("Watches that resumed on a node after they lost one."))
	units, err3 := meter.Int64Counter("shardwatch.client.units", metric.WithDescription("States, deltas, resyncs and conflated units that arrived whole."))
	keys, err4 := meter.Int64Counter("shardwatch.client.unit.keys", metric.WithDescription("Keys in units that arrived whole."))
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return client.Observer{}, fmt.Errorf("instruments of the client: %w", err)
	}
	ctx := context.Background() // observers do not get the caller's context
	return client.Observer{
		Attempt: func(a client.Attempt) {
			attempts.Record(ctx, a.Took.Seconds(), metric.WithAttributes(attribute.String("node", a.Node), attribute.Bool("failed", a.Err != nil)))
		},
		Resume: func(client.Range, client.Resume) { resumes.Add(ctx, 1) },
		Unit: func(_ client.Range, kind client.UpdateKind, n int) {
			attributes := metric.WithAttributes(attribute.String("kind", kind.String()))
			units.Add(ctx, 1, attributes)
			keys.Add(ctx, int64(n), attributes)
		},
	}, nil
}
