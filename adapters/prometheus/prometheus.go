// Package prometheus exports the actions of a client as Prometheus metrics.
package prometheus

import (
	"fmt"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/shardwatch/shardwatch/client"
)

// Observer registers metrics and returns an observer for [client.Config] that records
// in them. Clients of one program share an observer.
func Observer(registerer prometheus.Registerer) (client.Observer, error) {
	attempts := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "shardwatch_client_attempt_duration_seconds", Help: "Duration of each attempt of a read or write at a node, and whether it failed.",
		Buckets: prometheus.ExponentialBuckets(0.0005, 4, 9), // 0.5 ms to 33 s
	}, []string{"node", "failed"})
	resumes := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "shardwatch_client_resumes_total", Help: "Watches that resumed on a node after they lost one.",
	})
	units := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "shardwatch_client_units_total", Help: "States, deltas, resyncs and conflated units that arrived whole.",
	}, []string{"kind"})
	keys := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "shardwatch_client_unit_keys_total", Help: "Keys in units that arrived whole.",
	}, []string{"kind"})
	for _, c := range []prometheus.Collector{attempts, resumes, units, keys} {
		if err := registerer.Register(c); err != nil {
			return client.Observer{}, fmt.Errorf("register the client's metrics: %w", err)
		}
	}
	return client.Observer{
		Attempt: func(a client.Attempt) {
			attempts.WithLabelValues(a.Node, strconv.FormatBool(a.Err != nil)).Observe(a.Took.Seconds())
		},
		Resume: func(client.Range, client.Resume) { resumes.Inc() },
		Unit: func(_ client.Range, kind client.UpdateKind, n int) {
			units.WithLabelValues(kind.String()).Inc()
			keys.WithLabelValues(kind.String()).Add(float64(n))
		},
	}, nil
}
