// Package otel makes metrics of OpenTelemetry of what a client does. Traces of its RPCs come from
// OpenTelemetry's handler for gRPC in DialOptions of [client.Config].
package otel

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/shardwatch/shardwatch/client"
)

// Observer returns an observer that counts in the provider's instruments, for [client.Config].
// Clients of one program share an observer.
func Observer(provider metric.MeterProvider) (client.Observer, error) {
	meter := provider.Meter("github.com/shardwatch/shardwatch/client")
	attempts, err1 := meter.Float64Histogram("shardwatch.client.attempt.duration", metric.WithUnit("s"),
		metric.WithDescription("Duration of each attempt of a read or write at a node, and whether it failed."),
		metric.WithExplicitBucketBoundaries(0.0005, 0.002, 0.008, 0.032, 0.128, 0.512, 2.048, 8.192, 32.768))
	resumes, err2 := meter.Int64Counter("shardwatch.client.resumes", metric.WithDescription("Watches that resumed at a node after they had lost one."))
	units, err3 := meter.Int64Counter("shardwatch.client.units", metric.WithDescription("States, deltas, resyncs and conflated units that arrived whole."))
	keys, err4 := meter.Int64Counter("shardwatch.client.unit.keys", metric.WithDescription("Keys in units that arrived whole."))
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return client.Observer{}, fmt.Errorf("instruments of the client: %w", err)
	}
	ctx := context.Background() // the observer is not told of the caller's
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
