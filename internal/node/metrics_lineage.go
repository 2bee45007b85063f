package node

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// registerLineage registers what tells of etcd's histories.
func (n *Node) registerLineage(m metric.Meter) error {
	in := &instruments{m: m}
	var (
		lineage  = in.gauge("shardwatch.node.lineage", "{lineage}", "History of etcd that this node serves: one more after each restore.")
		refusing = in.gauge("shardwatch.node.refusing", "{bool}", "1 while nothing is served because etcd has another history, and the next lineage has not begun.")
		begun    = in.counter("shardwatch.node.lineages", "{lineage}", "Lineages that have begun while this node runs, by what gave the end of the one before away.")
	)
	if err := errors.Join(in.errs...); err != nil {
		return err
	}
	_, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		number, causes := n.lineage.count()
		o.ObserveInt64(lineage, int64(number)) //nolint:gosec // a count of restores
		over := int64(0)
		if n.lineage.over.Load() != nil {
			over = 1
		}
		o.ObserveInt64(refusing, over)
		for cause, times := range causes {
			o.ObserveInt64(begun, times, metric.WithAttributes(attribute.String("cause", string(cause))))
		}
		return nil
	}, lineage, refusing, begun)
	return err
}

// count returns the lineage that the node is in, and how many have begun, by
// cause: every cause is there.
func (l *lineage) count() (number uint64, begun map[kv.Cause]int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	begun = make(map[kv.Cause]int64)
	for _, cause := range kv.Causes() {
		begun[cause] = l.begun[cause]
	}
	return l.number, begun
}
