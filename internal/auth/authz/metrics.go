package authz

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/shardwatch/shardwatch/internal/ops/telemetry"
)

// Register registers the metrics of the audit log and of the policy; a is nil without one.
func Register(m metric.Meter, a *Authorizer, audit *Audit) error {
	in := telemetry.NewInstruments(m)
	written := in.Counter("shardwatch.audit.records", "{record}", "Records written to the audit log.")
	suppressed := in.Counter("shardwatch.audit.suppressed", "{record}", "Refusals left out of the audit log because there were too many.")
	var (
		denials    = in.Counter("shardwatch.policy.denials", "{call}", "Calls and watches that the policy refused or ended, by verb.")
		unknown    = in.Counter("shardwatch.policy.unauthenticated", "{call}", "Calls whose bearer token was rejected.")
		limited    = in.Counter("shardwatch.policy.limited", "{call}", "Calls and watches refused because an identity had reached a limit, by limit.")
		delayed    = in.Counter("shardwatch.policy.delayed", "{call}", "Refused calls whose answer waited because their identity was refused too often.")
		identities = in.Gauge("shardwatch.policy.identities", "{identity}", "Identities whose usage is tracked.")
		shared     = in.Gauge("shardwatch.policy.shared", "{connection}", "Connections whose identities share one set of limits because there are too many identities.")
	)
	return in.Observe(func(o metric.Observer) {
		w, dropped := audit.Figures()
		o.ObserveInt64(written, w)
		o.ObserveInt64(suppressed, dropped)
		s := a.Status()
		for verb, count := range s.Denied {
			o.ObserveInt64(denials, count, metric.WithAttributes(attribute.String("verb", verb)))
		}
		for limit, count := range s.Limited {
			o.ObserveInt64(limited, count, metric.WithAttributes(attribute.String("limit", limit)))
		}
		o.ObserveInt64(unknown, s.Unauthenticated)
		o.ObserveInt64(delayed, s.Delayed)
		o.ObserveInt64(identities, s.Identities)
		o.ObserveInt64(shared, s.Shared)
	})
}
