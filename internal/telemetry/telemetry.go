package telemetry

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/otlptranslator"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
)

// MaxSeries bounds the label combinations of one instrument.
const MaxSeries = 2000

// DurationBuckets returns the upper bounds, in seconds, of a histogram that
// gives none: from 100 µs, what a delivery takes, to 10 s.
func DurationBuckets() []float64 {
	return []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
}

// Config is what a Telemetry is built from.
type Config struct {
	// ServiceName is the program, Version its version and Node the node's
	// name: the labels of shardwatch_build_info. All but Version are required.
	ServiceName, Version, Node string
	// Registry collects everything; nil: a new one. In one process each
	// Telemetry needs its own.
	Registry *prometheus.Registry
	// Pprof serves the profiler under /debug/pprof/. It shows memory and
	// command line to whoever can reach the port.
	Pprof bool
}

// Validate names every mistake at once.
func (c *Config) Validate() error {
	var errs []error
	if c.ServiceName == "" {
		errs = append(errs, errors.New("the service has no name"))
	}
	if c.Node == "" {
		errs = append(errs, errors.New("the node has no name"))
	}
	return errors.Join(errs...)
}

// Telemetry holds the instruments of one node.
type Telemetry struct {
	cfg      Config
	registry *prometheus.Registry
	provider *sdk.MeterProvider
}

// New returns a Telemetry for cfg, with the Go runtime's and the process'
// metrics in it. It starts nothing.
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
		Help: "Always 1; the labels say which program, version and node this is.",
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
	return &Telemetry{
		cfg: cfg, registry: registry,
		provider: sdk.NewMeterProvider(sdk.WithReader(exporter), sdk.WithCardinalityLimit(MaxSeries)),
	}, nil
}

// aggregation gives histograms our buckets; those of an instrument go first.
func aggregation(kind sdk.InstrumentKind) sdk.Aggregation {
	if kind == sdk.InstrumentKindHistogram {
		return sdk.AggregationExplicitBucketHistogram{Boundaries: DurationBuckets()}
	}
	return sdk.DefaultAggregationSelector(kind)
}

// Meter returns the meter of one package, to build its instruments from.
func (t *Telemetry) Meter(name string) metric.Meter { return t.provider.Meter(name) }

// Registry returns where everything is collected.
func (t *Telemetry) Registry() *prometheus.Registry { return t.registry }

// Shutdown ends measuring. /metrics then has only the process' own.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	if err := t.provider.Shutdown(ctx); err != nil && !errors.Is(err, sdk.ErrReaderShutdown) {
		return fmt.Errorf("telemetry: shut down: %w", err)
	}
	return nil
}
