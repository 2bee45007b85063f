package node

import (
	"errors"

	"go.opentelemetry.io/otel/metric"

	"github.com/shardwatch/shardwatch/internal/auth/authz"
	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/edge/netlimit"
)

// register registers the metrics of all parts.
func (n *Node) register(m metric.Meter) error {
	errs := []error{
		netlimit.Register(m, n.limits.all()...), authz.Register(m, n.authorizer, n.audit), n.registerCluster(m),
		n.budget.Register(m), n.clock.register(m), n.etcdAuth.Register(m), n.lineage.Register(m), n.permits.register(m), n.placement.Register(m),
		n.router.Register(m), n.server.Register(m), n.copies.Register(m, func() map[*cache.Cache]int { return n.router.Merged().Watches }, n.router.HoldingBack), n.verifier.Register(m),
	}
	if e, ok := n.cfg.Etcd.(interface{ Register(m metric.Meter) error }); ok {
		errs = append(errs, e.Register(m))
	}
	if h := n.history.store; h != nil {
		errs = append(errs, h.Register(m))
	}
	return errors.Join(errs...)
}
