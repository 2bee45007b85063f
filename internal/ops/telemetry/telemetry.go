package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/otlptranslator"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// MaxSeries bounds the label combinations of one instrument.
const MaxSeries = 2000

// DurationBuckets returns the default upper bounds of histograms, in seconds: from 100 µs, the time of a
// delivery, to 10 s.
func DurationBuckets() []float64 {
	return []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
}

// Config configures a Telemetry.
type Config struct {
	// ServiceName is the program, Version its version and Node the node's
	// name: the labels of shardwatch_build_info. All but Version are required.
	ServiceName, Version, Node string
	// Registry collects everything; nil: a new one. In one process each
	// Telemetry needs its own.
	Registry *prometheus.Registry
	// Endpoint is the URL of a collector for metrics and traces, with OTLP over gRPC; "": the standard
	// environment variables (OTEL_...) apply, and without them nothing is sent. Getenv reads these variables;
	// nil: none are set.
	Endpoint string
	Getenv   func(string) string
	// Logger logs errors of the collector; nil: no log. A process has only one.
	Logger *slog.Logger
	// Pprof serves the profiler under /debug/pprof/. It shows memory and command line to every client that can
	// reach the port.
	Pprof bool
}

// Validate reports all mistakes together.
func (c *Config) Validate() error {
	var errs []error
	if c.ServiceName == "" {
		errs = append(errs, errors.New("the service has no name"))
	}
	if c.Node == "" {
		errs = append(errs, errors.New("the node has no name"))
	}
	if c.Endpoint != "" {
		if err := ValidateEndpoint(c.Endpoint); err != nil {
			errs = append(errs, fmt.Errorf("--otlp-endpoint %q: %w", c.Endpoint, err))
		}
	}
	return errors.Join(errs...)
}

// Telemetry holds the instruments of one node.
type Telemetry struct {
	cfg      Config
	registry *prometheus.Registry
	provider *sdk.MeterProvider
	spans    *Spans // nil: none are sent
}

// New returns a Telemetry for cfg, with the metrics of the Go runtime and the process. It starts nothing.
func New(cfg Config) (*Telemetry, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	registry := cfg.Registry
	if registry == nil {
		registry = prometheus.NewRegistry()
	}
	exporter, err := otelprom.New(
		otelprom.WithRegisterer(registry),
		otelprom.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithSuffixes),
		otelprom.WithoutScopeInfo(),
		otelprom.WithoutTargetInfo(),
		otelprom.WithAggregationSelector(aggregation),
	)
	if err != nil {
		return nil, fmt.Errorf("telemetry: register the exporter: %w", err)
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "shardwatch_build_info",
		Help: "Always 1; the labels name the program, version and node.",
		ConstLabels: prometheus.Labels{
			"service": cfg.ServiceName, "version": cfg.Version, "node": cfg.Node, "goversion": runtime.Version(),
		},
	})
	build.Set(1)
	for _, c := range []prometheus.Collector{
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		build,
	} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("telemetry: %w", err)
		}
	}
	t := &Telemetry{cfg: cfg, registry: registry}
	if err := t.collect(exporter); err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	return t, nil
}

// collect makes the providers, with an export to a collector if one is configured.
func (t *Telemetry) collect(exporter sdk.Reader) error {
	ctx := context.Background() // New does not block
	getenv := t.cfg.Getenv
	if getenv == nil {
		getenv = func(string) string { return "" }
	}
	p, err := pushOf(t.cfg.Endpoint, getenv)
	if err != nil {
		return err
	}
	who, err := resourceOf(ctx, &t.cfg)
	if err != nil {
		return fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	options := []sdk.Option{sdk.WithReader(exporter), sdk.WithCardinalityLimit(MaxSeries), sdk.WithResource(who)}
	if t.cfg.Logger != nil && (p.traces || p.metrics) {
		complain(t.cfg.Logger)
	}
	if p.traces {
		e, err := p.spanExporter(ctx)
		if err != nil {
			return err
		}
		t.spans = newSpans(p.ratio, sdktrace.WithBatcher(e), sdktrace.WithResource(who))
	}
	if p.metrics {
		r, err := p.metricReader(ctx)
		if err != nil {
			return err
		}
		options = append(options, sdk.WithReader(r))
	}
	t.provider = sdk.NewMeterProvider(options...)
	return nil
}

// aggregation gives histograms DurationBuckets, unless the instrument sets its own.
func aggregation(kind sdk.InstrumentKind) sdk.Aggregation {
	if kind == sdk.InstrumentKindHistogram {
		return sdk.AggregationExplicitBucketHistogram{Boundaries: DurationBuckets()}
	}
	return sdk.DefaultAggregationSelector(kind)
}

// Meter returns the meter of one package, to build its instruments from.
func (t *Telemetry) Meter(name string) metric.Meter { return t.provider.Meter(name) }

// Spans returns the exporter of spans; nil: no collector is configured.
func (t *Telemetry) Spans() *Spans { return t.spans }

// Registry returns the registry that collects all metrics.
func (t *Telemetry) Registry() *prometheus.Registry { return t.registry }

// Shutdown sends the pending data until ctx ends, and stops measuring. /metrics then has only the metrics of
// the process.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	var errs []error
	if t.spans != nil {
		errs = append(errs, t.spans.provider.Shutdown(ctx))
	}
	if err := t.provider.Shutdown(ctx); err != nil && !errors.Is(err, sdk.ErrReaderShutdown) {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("telemetry: shut down: %w", err)
	}
	return nil
}
