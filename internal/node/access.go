package node

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/shardwatch/shardwatch/internal/access"
)

// buildAccess reads the policy, if there is one.
func (n *Node) buildAccess() error {
	log := n.cfg.Audit
	if log == nil {
		log = n.log
	}
	n.audit = access.NewAudit(log.WithGroup("audit"))
	if n.cfg.Policy == "" {
		return nil
	}
	c := access.Defaults()
	c.File, c.Audit = n.cfg.Policy, n.audit
	var err error
	n.access, err = access.New(c)
	return err
}

// PolicyFiles are the policy's file and the one that it names; none without a
// policy.
func (n *Node) PolicyFiles() []string { return n.access.Files() }

// ReloadPolicy reads the policy anew. When it is wrong, the one before stays in
// force.
func (n *Node) ReloadPolicy() error { return n.access.Reload() }

// TakesTokens reports whether the policy in force takes bearer tokens.
func (n *Node) TakesTokens() bool { return n.access.TakesTokens() }

// mayLook returns who may see metrics, the status page and profiles: those whom the
// policy lets; nil without a policy.
func (n *Node) mayLook() func(*http.Request) error {
	if n.access == nil {
		return nil
	}
	return n.access.Web
}

// registerAccess registers what the policy and the audit log tell.
func (n *Node) registerAccess(m metric.Meter) error {
	in := &instruments{m: m}
	written := in.counter("shardwatch.audit.records", "{record}", "Records written to the audit log.")
	suppressed := in.counter("shardwatch.audit.suppressed", "{record}", "Refusals that were not written to the audit log, because there were too many.")
	var (
		denials    = in.counter("shardwatch.policy.denials", "{call}", "Calls and watches that the policy refused or ended, by verb.")
		unknown    = in.counter("shardwatch.policy.unauthenticated", "{call}", "Calls whose bearer token was not taken.")
		limited    = in.counter("shardwatch.policy.limited", "{call}", "Calls and watches that were refused because an identity had reached a limit, by limit.")
		identities = in.gauge("shardwatch.policy.identities", "{identity}", "Identities whose use is counted.")
		shared     = in.gauge("shardwatch.policy.shared", "{connection}", "Connections of identities that share one account, because there are too many.")
	)
	return in.observe(func(o metric.Observer) {
		w, dropped := n.audit.Figures()
		o.ObserveInt64(written, w)
		o.ObserveInt64(suppressed, dropped)
		s := n.access.Status()
		for verb, count := range s.Denied {
			o.ObserveInt64(denials, count, metric.WithAttributes(attribute.String("verb", verb)))
		}
		for limit, count := range s.Limited {
			o.ObserveInt64(limited, count, metric.WithAttributes(attribute.String("limit", limit)))
		}
		o.ObserveInt64(unknown, s.Unauthenticated)
		o.ObserveInt64(identities, s.Identities)
		o.ObserveInt64(shared, s.Shared)
	}, written, suppressed, denials, unknown, limited, identities, shared)
}

// observe has instruments observed at each scrape.
func (in *instruments) observe(observe func(metric.Observer), of ...metric.Observable) error {
	for _, err := range in.errs {
		if err != nil {
			return err
		}
	}
	_, err := in.m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		observe(o)
		return nil
	}, of...)
	return err
}
