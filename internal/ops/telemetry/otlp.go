package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// usualRatio is the default sampling ratio of revisions.
const usualRatio = 0.01

// push has the collector's settings, from --otlp-endpoint and the standard environment variables. The exporters
// read other variables themselves: headers, timeouts, certificates, intervals.
type push struct {
	metrics, traces bool
	endpoint        string // "": from the exporters' own variables
	ratio           float64
}

// pushOf reads the collector's settings. Errors name the variable.
func pushOf(endpoint string, getenv func(string) string) (push, error) {
	p := push{endpoint: endpoint, ratio: usualRatio}
	if strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") {
		return push{}, nil
	}
	var errs []error
	signal := func(name string) bool {
		wanted := endpoint != "" || getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || getenv("OTEL_EXPORTER_OTLP_"+name+"_ENDPOINT") != ""
		switch by := getenv("OTEL_" + name + "_EXPORTER"); by {
		case "", "otlp":
		case "none":
			return false
		default:
			errs = append(errs, fmt.Errorf("OTEL_%s_EXPORTER=%s: use otlp or none; Prometheus metrics are always served on the HTTP port", name, by))
		}
		for _, variable := range []string{"OTEL_EXPORTER_OTLP_" + name + "_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
			if by := getenv(variable); wanted && by != "" {
				if by != "grpc" {
					errs = append(errs, fmt.Errorf("%s=%s: only grpc is supported, usually on port 4317", variable, by))
				}
				break
			}
		}
		return wanted
	}
	p.metrics, p.traces = signal("METRICS"), signal("TRACES")
	if p.traces {
		var err error
		if p.ratio, err = ratioOf(getenv("OTEL_TRACES_SAMPLER"), getenv("OTEL_TRACES_SAMPLER_ARG")); err != nil {
			errs = append(errs, err)
		}
	}
	return p, errors.Join(errs...)
}

// ratioOf parses a sampler. The SDK parses it too, but does not export it, and every node must sample the same
// revisions.
func ratioOf(sampler, arg string) (float64, error) {
	switch strings.TrimPrefix(sampler, "parentbased_") {
	case "":
		if arg == "" {
			return usualRatio, nil
		}
	case "always_on":
		return 1, nil
	case "always_off":
		return 0, nil
	case "traceidratio":
		if arg == "" {
			return 1, nil
		}
	default:
		return 0, fmt.Errorf("OTEL_TRACES_SAMPLER=%s: use always_on, always_off or traceidratio", sampler)
	}
	ratio, err := strconv.ParseFloat(arg, 64)
	if err != nil || !(ratio >= 0 && ratio <= 1) {
		return 0, fmt.Errorf("OTEL_TRACES_SAMPLER_ARG=%s: use a number from 0 to 1", arg)
	}
	return ratio, nil
}

// ValidateEndpoint checks the URL of a collector.
func ValidateEndpoint(endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || !slices.Contains([]string{"http", "https"}, u.Scheme) || strings.Trim(u.Path, "/") != "" || u.User != nil {
		return errors.New("want http://host:4317, or https:// with TLS, and nothing after the port")
	}
	return nil
}

// resourceOf returns the resource of all exported data: our attributes, then those
// of OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME.
func resourceOf(ctx context.Context, cfg *Config) (*resource.Resource, error) {
	return resource.New(ctx,
		resource.WithAttributes(
			attribute.String("service.name", cfg.ServiceName), attribute.String("service.version", cfg.Version),
			attribute.String("service.instance.id", cfg.Node),
		),
		resource.WithTelemetrySDK(), resource.WithFromEnv(),
	)
}

// complainEvery is the minimum time between two logged errors of a collector.
const complainEvery = time.Minute

// complain logs errors of the collector. The SDK has one error handler per process.
func complain(log *slog.Logger) {
	var last atomic.Int64
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		now, was := time.Now().UnixNano(), last.Load()
		if time.Duration(now-was) >= complainEvery && last.CompareAndSwap(was, now) {
			log.Warn("the collector does not accept metrics or traces: they are dropped (--otlp-endpoint)", "error", err)
		}
	}))
}

// metricReader returns a reader that pushes metrics. It starts with the provider.
func (p *push) metricReader(ctx context.Context) (sdk.Reader, error) {
	o := []otlpmetricgrpc.Option{otlpmetricgrpc.WithAggregationSelector(aggregation)}
	if p.endpoint != "" {
		o = append(o, otlpmetricgrpc.WithEndpointURL(p.endpoint))
	}
	e, err := otlpmetricgrpc.New(ctx, o...)
	if err != nil {
		return nil, fmt.Errorf("metrics for the collector: %w", err)
	}
	return sdk.NewPeriodicReader(e), nil
}

// spanExporter returns an exporter that pushes spans. It does not wait for the collector.
func (p *push) spanExporter(ctx context.Context) (sdktrace.SpanExporter, error) {
	var o []otlptracegrpc.Option
	if p.endpoint != "" {
		o = append(o, otlptracegrpc.WithEndpointURL(p.endpoint))
	}
	e, err := otlptracegrpc.New(ctx, o...)
	if err != nil {
		return nil, fmt.Errorf("traces for the collector: %w", err)
	}
	return e, nil
}
