package etcdauth

import (
	"go.opentelemetry.io/otel/metric"

	"github.com/shardwatch/shardwatch/internal/ops/telemetry"
)

// Register registers the metrics of etcd's authentication.
func (g *Checker) Register(m metric.Meter) error {
	in := telemetry.NewInstruments(m)
	gauge, counter := in.Gauge, in.Counter
	var (
		auth          = gauge("shardwatch.auth.on", "{bool}", "1 while etcd's authentication is on. Absent while unknown.")
		authRevision  = gauge("shardwatch.auth.revision", "{revision}", "Revision of etcd's users and roles that reads are checked against.")
		users         = gauge("shardwatch.auth.users", "{user}", "etcd's users.")
		tokens        = gauge("shardwatch.auth.tokens", "{token}", "Tokens whose user this node knows.")
		lookups       = counter("shardwatch.auth.lookups", "{token}", "New tokens that this node looked up.")
		confirmations = counter("shardwatch.auth.confirmations", "{question}", "Times that etcd confirmed a token.")
		refusals      = counter("shardwatch.auth.refusals", "{call}", "Calls whose token was rejected.")
		denials       = counter("shardwatch.auth.denials", "{read}", "Reads and watches denied or ended because the user lacks the right.")
	)
	return in.Observe(func(o metric.Observer) {
		s := g.Status()
		if !s.Known {
			return
		}
		o.ObserveInt64(auth, telemetry.Bool(s.On))
		o.ObserveInt64(authRevision, int64(s.Revision)) //nolint:gosec // a count of changes
		o.ObserveInt64(users, int64(s.Users))
		o.ObserveInt64(tokens, int64(s.Tokens))
		o.ObserveInt64(lookups, s.Lookups)
		o.ObserveInt64(confirmations, s.Confirmations)
		o.ObserveInt64(refusals, s.Refused)
		o.ObserveInt64(denials, s.Denied)
	})
}
