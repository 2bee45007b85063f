package node

import (
	"context"
	"errors"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// registerCalls registers how the calls of clients have ended.
func (n *Node) registerCalls(m metric.Meter) error {
	in := &instruments{m: m}
	ended := in.counter("shardwatch.server.calls", "{call}", "Calls of clients that have ended, by service, method and gRPC status code: what was refused, and why. A stream counts at its end.")
	if err := errors.Join(in.errs...); err != nil {
		return err
	}
	_, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		n.server.Calls(func(method, code string, times int64) {
			service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
			o.ObserveInt64(ended, times, metric.WithAttributes(
				attribute.String("service", service), attribute.String("method", name), attribute.String("code", code)))
		})
		return nil
	}, ended)
	return err
}
