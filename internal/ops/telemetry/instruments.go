package telemetry

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/metric"
)

// Instruments are the metrics of one component, observed at each scrape: they keep no counts of their own, and
// cost nothing on the hot path. One goroutine at a time may use it. Observe returns the errors of its other
// methods.
type Instruments struct {
	meter metric.Meter
	all   []metric.Observable
	errs  []error
}

// NewInstruments returns an empty set.
func NewInstruments(m metric.Meter) *Instruments { return &Instruments{meter: m} }

func (in *Instruments) add(o metric.Observable, err error) {
	in.all, in.errs = append(in.all, o), append(in.errs, err)
}

// Gauge makes a gauge of whole numbers.
func (in *Instruments) Gauge(name, unit, help string) metric.Int64ObservableGauge {
	g, err := in.meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(help))
	in.add(g, err)
	return g
}

// Counter makes a counter of whole numbers.
func (in *Instruments) Counter(name, unit, help string) metric.Int64ObservableCounter {
	c, err := in.meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(help))
	in.add(c, err)
	return c
}

// Seconds makes a gauge of time.
func (in *Instruments) Seconds(name, help string) metric.Float64ObservableGauge {
	g, err := in.meter.Float64ObservableGauge(name, metric.WithUnit("s"), metric.WithDescription(help))
	in.add(g, err)
	return g
}

// TotalSeconds makes a counter of time.
func (in *Instruments) TotalSeconds(name, help string) metric.Float64ObservableCounter {
	c, err := in.meter.Float64ObservableCounter(name, metric.WithUnit("s"), metric.WithDescription(help))
	in.add(c, err)
	return c
}

// Observe has observe called at each scrape, for all instruments made so far.
func (in *Instruments) Observe(observe func(metric.Observer)) error {
	if err := errors.Join(in.errs...); err != nil {
		return err
	}
	_, err := in.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		observe(o)
		return nil
	}, in.all...)
	return err
}

// Bool returns the metric value of a bool: 1 for true and 0 for false.
func Bool(is bool) int64 {
	if is {
		return 1
	}
	return 0
}
