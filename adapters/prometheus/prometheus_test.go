package prometheus_test

import (
	"testing"

	metrics "github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/shardwatch/shardwatch/adapters/prometheus"
	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/clienttest"
)

// The metrics count a state of two keys, reads that succeed and fail, and the resume of a watch
// whose node was killed.
func TestMetricsOfAClient(t *testing.T) {
	cluster, err := clienttest.Start(clienttest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	cluster.Put("/demo/a", "1")
	cluster.Put("/demo/b", "1")
	registry := metrics.NewRegistry()
	observer, err := prometheus.Observer(registry)
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
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if got := sum(families, "shardwatch_client_units_total", "state"); got != 1 {
		t.Errorf("%v states, want 1", got)
	}
	if got := sum(families, "shardwatch_client_unit_keys_total", "state"); got != 2 {
		t.Errorf("%v keys in states, want 2", got)
	}
	if got := sum(families, "shardwatch_client_resumes_total", ""); got < 1 {
		t.Errorf("%v resumes, want at least 1", got)
	}
	if got := sum(families, "shardwatch_client_attempt_duration_seconds", "false"); got < 1 {
		t.Errorf("%v attempts, want the calls of Get", got)
	}
	if _, err := prometheus.Observer(registry); err == nil {
		t.Error("registered twice")
	}
}

// sum adds up the samples of a metric that have a label with this value; "": all samples.
func sum(families []*dto.MetricFamily, name, value string) (total float64) {
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			has := value == ""
			for _, l := range m.GetLabel() {
				has = has || l.GetValue() == value
			}
			if has {
				total += m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return total
}
