package telemetry

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// collector records the exports that it receives.
type collector struct {
	collectortrace.UnimplementedTraceServiceServer
	address string

	mu      sync.Mutex
	spans   []*tracepb.Span // guarded by mu
	metrics map[string]bool // guarded by mu; names
	service string          // guarded by mu; of the resource
}

type metricsService struct {
	collectormetrics.UnimplementedMetricsServiceServer
	c *collector
}

func startCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{metrics: map[string]bool{}}
	ln := must(net.Listen("tcp", "127.0.0.1:0"))
	c.address = "http://" + ln.Addr().String()
	s := grpc.NewServer()
	collectortrace.RegisterTraceServiceServer(s, c)
	collectormetrics.RegisterMetricsServiceServer(s, &metricsService{c: c})
	go func() { _ = s.Serve(ln) }() // ends with Stop
	t.Cleanup(s.Stop)
	return c
}

func (c *collector) Export(_ context.Context, r *collectortrace.ExportTraceServiceRequest) (*collectortrace.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rs := range r.GetResourceSpans() {
		for _, a := range rs.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				c.service = a.GetValue().GetStringValue()
			}
		}
		for _, ss := range rs.GetScopeSpans() {
			c.spans = append(c.spans, ss.GetSpans()...)
		}
	}
	return &collectortrace.ExportTraceServiceResponse{}, nil
}

func (m *metricsService) Export(_ context.Context, r *collectormetrics.ExportMetricsServiceRequest) (*collectormetrics.ExportMetricsServiceResponse, error) {
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	for _, rm := range r.GetResourceMetrics() {
		for _, sm := range rm.GetScopeMetrics() {
			for _, one := range sm.GetMetrics() {
				m.c.metrics[one.GetName()] = true
			}
		}
	}
	return &collectormetrics.ExportMetricsServiceResponse{}, nil
}

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

// Two nodes record one revision in one trace, without communication; one span is the parent of the other.
func TestSpansOfTwoNodesMeet(t *testing.T) {
	c := startCollector(t)
	began := time.Now().Add(-time.Second)
	for _, node := range []string{"n1", "n2"} {
		tel, err := New(Config{
			ServiceName: "cachenode", Node: node, Endpoint: c.address, Getenv: env("OTEL_TRACES_SAMPLER", "always_on"),
		})
		if err != nil {
			t.Fatal(err)
		}
		must(tel.Meter("test").Int64Counter("shardwatch.test.things", metric.WithUnit("{thing}"))).Add(t.Context(), 1)
		s := Span{Name: "revision", Trace: "cluster/1/42", ID: node, Begin: began, End: began.Add(time.Millisecond), Attributes: []attribute.KeyValue{attribute.Int("r", 42)}}
		if node == "n2" {
			s.Parent = "n1"
		}
		if tel.Spans().Tell(s); !tel.Spans().Samples(s.Trace) {
			t.Error("not sampled")
		}
		if err := tel.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.spans) != 2 || c.service != "cachenode" || !c.metrics["shardwatch.test.things"] {
		t.Fatalf("%d spans of %q, metrics %v", len(c.spans), c.service, c.metrics)
	}
	one, two := c.spans[0], c.spans[1]
	if string(one.GetTraceId()) != string(two.GetTraceId()) || string(two.GetParentSpanId()) != string(one.GetSpanId()) || len(one.GetParentSpanId()) != 0 {
		t.Errorf("the spans are not parent and child in one trace:\n%v\n%v", one, two)
	}
	if one.GetEndTimeUnixNano()-one.GetStartTimeUnixNano() != uint64(time.Millisecond) {
		t.Errorf("times: %v", one)
	}
}

func TestSampling(t *testing.T) {
	var none *Spans
	none.Tell(Span{Name: "nobody is told"})
	if none.On() || none.Samples("x") {
		t.Error("nil Spans are on, or sample a trace")
	}
	for ratio, want := range map[float64][2]int{0: {0, 0}, 0.1: {50, 200}, 1: {1000, 1000}} {
		s := newSpans(ratio)
		n := 0
		for i := range 1000 {
			if name := string(rune(i)); s.Samples(name) {
				if n++; !newSpans(ratio).Samples(name) {
					t.Error("another node does not sample the same trace")
				}
			}
		}
		if n < want[0] || n > want[1] {
			t.Errorf("%d of 1000 traces sampled with ratio %v", n, ratio)
		}
	}
}

// Without a collector, spans cost nothing.
func TestNoSpansAllocateNothing(t *testing.T) {
	var none *Spans
	if n := testing.AllocsPerRun(1000, func() {
		if none.On() {
			none.Tell(Span{Name: "x"})
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestEndpointsOfThePush(t *testing.T) {
	const url = "http://collector:4317"
	for name, c := range map[string]struct {
		endpoint string
		env      []string
		want     push
		says     string
	}{
		"nowhere":          {"", nil, push{ratio: usualRatio}, ""},
		"the flag":         {url, nil, push{metrics: true, traces: true, endpoint: url, ratio: usualRatio}, ""},
		"the environment":  {"", []string{"OTEL_EXPORTER_OTLP_ENDPOINT", url}, push{metrics: true, traces: true, ratio: usualRatio}, ""},
		"traces alone":     {"", []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", url}, push{traces: true, ratio: usualRatio}, ""},
		"no metrics":       {url, []string{"OTEL_METRICS_EXPORTER", "none"}, push{traces: true, endpoint: url, ratio: usualRatio}, ""},
		"switched off":     {url, []string{"OTEL_SDK_DISABLED", "true"}, push{}, ""},
		"all":              {url, []string{"OTEL_TRACES_SAMPLER", "parentbased_always_on"}, push{metrics: true, traces: true, endpoint: url, ratio: 1}, ""},
		"a part":           {url, []string{"OTEL_TRACES_SAMPLER", "traceidratio", "OTEL_TRACES_SAMPLER_ARG", "0.5"}, push{metrics: true, traces: true, endpoint: url, ratio: .5}, ""},
		"none":             {url, []string{"OTEL_TRACES_SAMPLER", "always_off"}, push{metrics: true, traces: true, endpoint: url}, ""},
		"a bad part":       {url, []string{"OTEL_TRACES_SAMPLER_ARG", "2"}, push{}, "OTEL_TRACES_SAMPLER_ARG=2: use a number from 0 to 1"},
		"a bad sampler":    {url, []string{"OTEL_TRACES_SAMPLER", "jaeger_remote"}, push{}, "OTEL_TRACES_SAMPLER=jaeger_remote: use always_on"},
		"another protocol": {url, []string{"OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"}, push{}, "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf: only grpc"},
		"another exporter": {url, []string{"OTEL_TRACES_EXPORTER", "zipkin"}, push{}, "OTEL_TRACES_EXPORTER=zipkin: use otlp or none"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := pushOf(c.endpoint, env(c.env...))
			if c.says != "" {
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%v, want %s", err, c.says)
				}
				return
			}
			if err != nil || got != c.want {
				t.Errorf("%+v %v, want %+v", got, err, c.want)
			}
		})
	}
	for _, bad := range []string{"collector:4317", "grpc://x:1", "http://", "http://x:1/v1/traces", "http://u:p@x:1"} {
		if ValidateEndpoint(bad) == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
	if err := ValidateEndpoint("https://collector:4317/"); err != nil {
		t.Error(err)
	}
}
