package node_test

import (
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/internal/node"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// The metrics count watches, shards and lineages, with labels of few values.
func TestMetrics(t *testing.T) {
	t.Parallel()
	reader := sdk.NewManualReader()
	meters := sdk.NewMeterProvider(sdk.WithReader(reader))
	c := startCluster(t, 1, 1, func(c *node.Config) {
		c.Spec.Shards, c.Spec.Replicas = 1, 1
		c.Meter = meters.Meter("test")
	})
	c.ready()
	w := newCrowd(c)
	from := c.put("/a")
	w.watch(c.client(), "from a revision", client.Range{}, from)
	w.watch(c.client(), "with the state", client.Range{}, 0)
	w.reach(c.put("/a"))
	want := map[string]int64{
		"shardwatch.server.watches_by_mode api=native,mode=window": 2,
		"shardwatch.server.watches_by_mode api=etcd,mode=log":      0,
		"shardwatch.server.watch_lag api=native,quantile=1":        0,
		"shardwatch.server.units kind=state":                       1,
		"shardwatch.server.units kind=resync":                      0,
		"shardwatch.server.units_waiting ":                         0,
		"shardwatch.shard.leaps shard=1":                           0,
		"shardwatch.shard.deletes_squeezed shard=1":                0,
		"shardwatch.node.lineage ":                                 1,
		"shardwatch.node.lineages cause=operator":                  0,
		"shardwatch.node.refusing ":                                0,
		"shardwatch.placement.changes what=moved":                  0,
		"shardwatch.placement.changes what=load_split":             0,
		"shardwatch.placement.waiting for=split":                   0,
		"shardwatch.raft.voters_spare ":                            0,
		"shardwatch.cluster.feature_level ":                        shard.Level,
		"shardwatch.cluster.feature_level_common ":                 shard.Level,
		"shardwatch.raft.voter_changes change=step_down":           0,
		"shardwatch.budget.held use=lists":                         0,
	}
	testkit.Eventually(t, "the metrics count two watches", func() bool { // a watch may have its state before the node counts it
		found := collected(t, reader)
		for name, n := range want {
			if got, ok := found[name]; !ok || got != n {
				t.Logf("%s: %d (%v), want %d", name, got, ok, n)
				return false
			}
		}
		return true
	})
}

// collected returns the integers that a reader collects, by name and attributes.
func collected(t *testing.T, reader *sdk.ManualReader) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(within(t), &all); err != nil {
		t.Fatal(err)
	}
	found := map[string]int64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					found[m.Name+" "+p.Attributes.Encoded(attribute.DefaultEncoder())] = p.Value
				}
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					found[m.Name+" "+p.Attributes.Encoded(attribute.DefaultEncoder())] = p.Value
				}
			}
		}
	}
	return found
}
