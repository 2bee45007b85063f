package etcdtest

import (
	"context"
	"fmt"
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Metrics are counters of an etcd. Embedded etcds in one process share them: compare differences.
type Metrics map[string]*dto.MetricFamily

// Scrape reads the metrics of the etcd at endpoint (host:port).
func Scrape(ctx context.Context, endpoint string) (Metrics, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+endpoint+"/metrics", nil)
	if err != nil {
		return nil, fmt.Errorf("scrape etcd: %w", err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("scrape etcd: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("scrape etcd: %s", resp.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("scrape etcd: %w", err)
	}
	return families, nil
}

// Sum adds up the counters and gauges of a name that have all given labels;
// labels alternates names and values.
func (m Metrics) Sum(name string, labels ...string) float64 {
	var sum float64
	for _, metric := range m[name].GetMetric() {
		if has(metric.GetLabel(), labels) {
			sum += metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + metric.GetUntyped().GetValue()
		}
	}
	return sum
}

func has(pairs []*dto.LabelPair, labels []string) bool {
	got := make(map[string]string, len(pairs))
	for _, p := range pairs {
		got[p.GetName()] = p.GetValue()
	}
	for i := 0; i+1 < len(labels); i += 2 {
		if got[labels[i]] != labels[i+1] {
			return false
		}
	}
	return true
}

// Watchers returns how many watchers etcd has now.
func (m Metrics) Watchers() int { return int(m.Sum("etcd_debugging_mvcc_watcher_total")) }

// WatchStreams returns how many watch streams etcd has now.
func (m Metrics) WatchStreams() int { return int(m.Sum("etcd_debugging_mvcc_watch_stream_total")) }

// Ranges returns how many range requests etcd has finished since it started.
func (m Metrics) Ranges() int {
	return int(m.Sum("grpc_server_handled_total", "grpc_service", "etcdserverpb.KV", "grpc_method", "Range"))
}
