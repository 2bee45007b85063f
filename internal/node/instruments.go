package node

import "go.opentelemetry.io/otel/metric"

// instruments makes what is observed at each scrape, and collects what goes
// wrong. One goroutine at a time may use it.
type instruments struct {
	m    metric.Meter
	errs []error
}

func (in *instruments) gauge(name, unit, help string) metric.Int64ObservableGauge {
	g, err := in.m.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(help))
	in.errs = append(in.errs, err)
	return g
}

func (in *instruments) counter(name, unit, help string) metric.Int64ObservableCounter {
	c, err := in.m.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(help))
	in.errs = append(in.errs, err)
	return c
}

// seconds makes a gauge of time.
func (in *instruments) seconds(name, help string) metric.Float64ObservableGauge {
	g, err := in.m.Float64ObservableGauge(name, metric.WithUnit("s"), metric.WithDescription(help))
	in.errs = append(in.errs, err)
	return g
}

// total makes a counter of time.
func (in *instruments) total(name, help string) metric.Float64ObservableCounter {
	c, err := in.m.Float64ObservableCounter(name, metric.WithUnit("s"), metric.WithDescription(help))
	in.errs = append(in.errs, err)
	return c
}
