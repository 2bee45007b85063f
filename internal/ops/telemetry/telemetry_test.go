package telemetry

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newTelemetry(t *testing.T, change func(*Config)) *Telemetry {
	t.Helper()
	cfg := Config{ServiceName: "cachenode", Version: "v1.2.3", Node: "n1"}
	if change != nil {
		change(&cfg)
	}
	tel, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tel.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return tel
}

func ask(t *testing.T, h http.Handler, path, accept string) (int, string) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// The exported names are the names in the table of the package's documentation.
func TestNames(t *testing.T) {
	tel := newTelemetry(t, nil)
	m := tel.Meter("test")
	ctx := t.Context()
	must(m.Int64Counter("shardwatch.cache.events", metric.WithUnit("{event}"))).Add(ctx, 3, metric.WithAttributes(attribute.Int("shard", 7)))
	must(m.Int64Counter("shardwatch.cache.sent", metric.WithUnit("By"))).Add(ctx, 5)
	must(m.Float64Counter("shardwatch.cache.stall", metric.WithUnit("s"))).Add(ctx, 1.5)
	must(m.Int64UpDownCounter("shardwatch.cache.watchers", metric.WithUnit("{watcher}"))).Add(ctx, 2)
	must(m.Int64Gauge("shardwatch.cache.window.size", metric.WithUnit("By"))).Record(ctx, 9)
	must(m.Float64Gauge("shardwatch.cache.hits", metric.WithUnit("1"))).Record(ctx, .5)
	must(m.Float64Histogram("shardwatch.etcd.revision_fetch", metric.WithUnit("s"))).Record(ctx, .002)
	must(m.Int64Histogram("shardwatch.etcd.answer.size", metric.WithUnit("By"), metric.WithExplicitBucketBoundaries(10, 100))).Record(ctx, 50)

	status, body := ask(t, tel.Handler(nil, nil), "/metrics", "")
	if status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	for _, want := range []string{
		`shardwatch_cache_events_total{shard="7"} 3`,
		"shardwatch_cache_sent_bytes_total 5",
		"shardwatch_cache_stall_seconds_total 1.5",
		"shardwatch_cache_watchers 2",
		"shardwatch_cache_window_size_bytes 9",
		"shardwatch_cache_hits_ratio 0.5",
		`shardwatch_etcd_revision_fetch_seconds_bucket{le="0.0001"} 0`,
		`shardwatch_etcd_revision_fetch_seconds_bucket{le="0.0025"} 1`,
		"shardwatch_etcd_revision_fetch_seconds_count 1",
		`shardwatch_etcd_answer_size_bytes_bucket{le="10"} 0`,
		`shardwatch_etcd_answer_size_bytes_bucket{le="100"} 1`,
		"go_goroutines ",
		"process_start_time_seconds ",
		`node="n1",service="cachenode",version="v1.2.3"} 1`,
	} {
		if !strings.Contains(body, "\n"+want) && !strings.Contains(body, want+"\n") {
			t.Errorf("no %s", want)
		}
	}
	for _, noise := range []string{"otel_scope", "target_info"} {
		if strings.Contains(body, noise) {
			t.Errorf("the metrics contain %s", noise)
		}
	}
	if t.Failed() {
		t.Log(body)
	}
}

func TestSeriesAreBounded(t *testing.T) {
	tel := newTelemetry(t, nil)
	c := must(tel.Meter("test").Int64Counter("shardwatch.test.things", metric.WithUnit("{thing}")))
	for i := range 2 * MaxSeries {
		c.Add(t.Context(), 1, metric.WithAttributes(attribute.String("id", strconv.Itoa(i))))
	}
	_, body := ask(t, tel.Handler(nil, nil), "/metrics", "")
	if n := strings.Count(body, "\nshardwatch_test_things_total{"); n != MaxSeries {
		t.Errorf("%d series, want %d", n, MaxSeries)
	}
	if !strings.Contains(body, `shardwatch_test_things_total{otel_metric_overflow="true"}`) {
		t.Error("no overflow series")
	}
}

func TestAfterShutdownTheProcessIsStillSeen(t *testing.T) {
	tel := newTelemetry(t, nil)
	must(tel.Meter("test").Int64Counter("shardwatch.test.things")).Add(t.Context(), 1)
	if err := tel.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	status, body := ask(t, tel.Handler(nil, nil), "/metrics", "")
	if status != 200 || !strings.Contains(body, "go_goroutines") || strings.Contains(body, "test_things") {
		t.Errorf("%d\n%s", status, body)
	}
}

func TestHealthAndReadiness(t *testing.T) {
	var reasons []string
	var stuck string
	h := newTelemetry(t, nil).Handler(func() []string { return reasons }, func() string { return stuck })
	if status, body := ask(t, h, "/healthz", ""); status != 200 || body != "ok\n" {
		t.Errorf("healthz: %d %q", status, body)
	}
	stuck = "the shards: no answer"
	if status, body := ask(t, h, "/healthz", ""); status != 503 || body != "the shards: no answer\n" {
		t.Errorf("healthz of a stuck process: %d %q", status, body)
	}
	stuck = ""
	if status, body := ask(t, h, "/readyz", ""); status != 200 || body != "ready\n" {
		t.Errorf("readyz: %d %q", status, body)
	}
	if status, body := ask(t, h, "/readyz", "application/json"); status != 200 || body != "{\"ready\":true,\"reasons\":[]}\n" {
		t.Errorf("readyz: %d %q", status, body)
	}
	reasons = []string{"no etcd", "two\nlines\n"}
	if status, body := ask(t, h, "/readyz", ""); status != 503 || body != "no etcd\ntwo; lines\n" {
		t.Errorf("readyz: %d %q", status, body)
	}
	status, body := ask(t, h, "/readyz", "application/json, */*")
	var got readiness
	if err := json.Unmarshal([]byte(body), &got); err != nil || status != 503 || got.Ready || len(got.Reasons) != 2 {
		t.Errorf("readyz: %d %q %v", status, body, err)
	}
	if status, _ := ask(t, h, "/", ""); status != 404 {
		t.Errorf("/: %d", status)
	}
}

func TestPprofIsOffByDefault(t *testing.T) {
	if status, _ := ask(t, newTelemetry(t, nil).Handler(nil, nil), "/debug/pprof/", ""); status != 404 {
		t.Errorf("off: %d", status)
	}
	on := newTelemetry(t, func(c *Config) { c.Pprof = true }).Handler(nil, nil)
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/goroutine", "/debug/pprof/cmdline"} {
		if status, _ := ask(t, on, path, ""); status != 200 {
			t.Errorf("%s: %d", path, status)
		}
	}
}

func TestBadConfig(t *testing.T) {
	if _, err := New(Config{}); err == nil || !strings.Contains(err.Error(), "service") || !strings.Contains(err.Error(), "node") {
		t.Errorf("got %v", err)
	}
	reg := prometheus.NewRegistry()
	newTelemetry(t, func(c *Config) { c.Registry = reg })
	if _, err := New(Config{ServiceName: "a", Node: "b", Registry: reg}); err == nil {
		t.Error("two on one registry")
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	tel := newTelemetry(t, nil)
	ln := must(net.Listen("tcp", "127.0.0.1:0"))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, ln, tel.Handler(nil, nil), nil, nil) }()
	client := &http.Client{Transport: &http.Transport{}}
	resp, err := client.Get("http://" + ln.Addr().String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if !strings.Contains(string(body), "go_goroutines") {
		t.Errorf("got %q", body)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Serve: %v", err)
	}
	client.CloseIdleConnections()

	if err := Serve(t.Context(), ln, tel.Handler(nil, nil), nil, nil); err == nil || !strings.Contains(err.Error(), ln.Addr().String()) {
		t.Errorf("a closed listener: %v", err)
	}
}

// A connection carries one probe, or one refused request: otherwise a client that sends many, without reading
// answers, could keep the node busy.
func TestAConnectionCarriesOneProbe(t *testing.T) {
	s := httptest.NewServer(permitted(newTelemetry(t, nil).Handler(nil, nil), func(*http.Request) error { return errors.New("no") }))
	defer s.Close()
	for path, want := range map[string]string{"/healthz": "HTTP/1.1 200", "/readyz": "HTTP/1.1 200", "/metrics": "HTTP/1.1 403"} {
		c, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(5 * time.Second)) // long for a local connection; one that stays open is read until then
		request := "GET " + path + " HTTP/1.1\r\nHost: node\r\n\r\n"
		if _, err := io.WriteString(c, request+request); err != nil {
			t.Fatal(err)
		}
		answers, err := io.ReadAll(c)
		if n := strings.Count(string(answers), want); n != 1 {
			t.Errorf("%s: %d answers, %v", path, n, err)
		}
	}
}
