package reload

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Register registers the metrics of all parts.
func (w *Watcher) Register(m metric.Meter) error {
	failures, err1 := m.Int64ObservableCounter("shardwatch.config.reload_failures", metric.WithUnit("{reload}"),
		metric.WithDescription("Changed files that could not be used; the log has the reason."))
	failing, err2 := m.Int64ObservableGauge("shardwatch.config.reload_failing", metric.WithUnit("{part}"),
		metric.WithDescription("1 while the contents of the files are not in use."))
	loaded, err3 := m.Float64ObservableGauge("shardwatch.config.last_reload_timestamp", metric.WithUnit("s"),
		metric.WithDescription("Time of the last successful read of the files, in seconds since 1970."))
	expires, err4 := m.Float64ObservableGauge("shardwatch.tls.certificate_expiry_timestamp", metric.WithUnit("s"),
		metric.WithDescription("Expiry of the certificate in use, in seconds since 1970."))
	lifetime, err5 := m.Float64ObservableGauge("shardwatch.tls.certificate_lifetime", metric.WithUnit("s"),
		metric.WithDescription("Total lifetime of the certificate in use: compare it with the time left to see whether renewal is late."))
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return err
	}
	_, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for _, p := range w.parts {
			p.observe(o, failures, failing, loaded, expires, lifetime)
		}
		return nil
	}, failures, failing, loaded, expires, lifetime)
	return err
}

func (p *part) observe(o metric.Observer, failures, failing metric.Int64Observable, loaded, expires, lifetime metric.Float64Observable) {
	p.mu.Lock()
	defer p.mu.Unlock()
	what := metric.WithAttributes(attribute.String("what", p.What))
	bad := int64(0)
	if p.failing {
		bad = 1
	}
	o.ObserveInt64(failures, p.failures, what)
	o.ObserveInt64(failing, bad, what)
	o.ObserveFloat64(loaded, float64(p.loaded.UnixMilli())/1000, what)
	if p.Expires == nil {
		return
	}
	at := p.Expires()
	if at.IsZero() {
		return
	}
	o.ObserveFloat64(expires, float64(at.Unix()), what)
	if p.Issued != nil {
		o.ObserveFloat64(lifetime, at.Sub(p.Issued()).Seconds(), what)
	}
}
