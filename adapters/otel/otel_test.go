package otel_test

import (
	"testing"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/shardwatch/shardwatch/adapters/otel"
	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/clienttest"
)

// The metrics count a state of two keys, a read, and the resume of a watch whose node was killed.
func TestMetricsOfAClient(t *testing.T) {
	cluster, err := clienttest.Start(clienttest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	cluster.Put("/demo/a", "1")
	cluster.Put("/demo/b", "1")
	reader := metric.NewManualReader()
	observer, err := otel.Observer(metric.NewMeterProvider(metric.WithReader(reader)))
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Config{Endpoints: cluster.Endpoints(), Observer: observer})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	w := c.Watch(t.Context(), client.Prefix("/demo/"), client.WithState())
	defer w.Close()
	if u, err := w.Next(t.Context()); err != nil || u.Kind != client.KindState {
		t.Fatal(u, err)
	}
	if _, err := c.Get(t.Context(), "/demo/a"); err != nil {
		t.Fatal(err)
	}
	for _, n := range cluster.Nodes() {
		if n.Name == w.Stats().Node {
			n.Kill()
		}
	}
	cluster.Put("/demo/a", "2")
	if _, err := w.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &got); err != nil {
		t.Fatal(err)
	}
	sums := map[string]int64{}
	for _, scope := range got.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					sums[m.Name] += p.Value
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					sums[m.Name] += int64(p.Count)
				}
			}
		}
	}
	if sums["shardwatch.client.units"] != 1 || sums["shardwatch.client.unit.keys"] != 2 {
		t.Errorf("units and keys %v, want one of two", sums)
	}
	if sums["shardwatch.client.resumes"] < 1 || sums["shardwatch.client.attempt.duration"] < 1 {
		t.Errorf("resumes and attempts %v, want some", sums)
	}
}
