package node

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/metric"
)

// registerVerify registers what tells of copies that were compared.
func (n *Node) registerVerify(m metric.Meter) error {
	in := &instruments{m: m}
	var (
		rounds      = in.counter("shardwatch.verify.rounds", "{shard}", "Times that this node has compared the copies of a shard.")
		differences = in.counter("shardwatch.verify.differences", "{copy}", "Copies that it found to differ, on whichever node.")
		differing   = in.gauge("shardwatch.verify.differing", "{copy}", "Of the copies that it compares, those that differed when that was done last, on whichever node: they are loaded anew within seconds, or nobody can tell which of them is right.")
		quarantines = in.counter("shardwatch.verify.quarantines", "{copy}", "Copies of this node that were wrong, and were loaded anew.")
		quarantined = in.gauge("shardwatch.verify.quarantined", "{copy}", "Copies of this node that are being loaded anew because they were wrong.")
		bytes       = in.counter("shardwatch.verify.summed", "By", "Bytes of this node's copies that were summed up, for itself and for others.")
		busy        = in.total("shardwatch.verify.busy", "Time of a CPU that summing up took.")
		age         = in.seconds("shardwatch.verify.age", "Time since the copy of this node that was looked at longest ago was found to be equal, of those that it compares. Absent while there is none.")
	)
	if err := errors.Join(in.errs...); err != nil {
		return err
	}
	_, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		v := n.verifier
		o.ObserveInt64(rounds, v.rounds.Load())
		o.ObserveInt64(differences, v.differences.Load())
		o.ObserveInt64(quarantines, v.quarantines.Load())
		o.ObserveInt64(bytes, v.bytes.Load())
		o.ObserveFloat64(busy, time.Duration(v.busy.Load()).Seconds())
		healing := int64(0)
		for _, h := range n.store.all() {
			if h.renewed && !h.ready() {
				healing++
			}
		}
		o.ObserveInt64(quarantined, healing)
		oldest, some, mine := time.Duration(0), false, v.mine()
		if m := n.placement.Map(); m != nil {
			o.ObserveInt64(differing, v.differing(m, mine))
		}
		for _, id := range mine {
			if a, known := v.age(id); known {
				oldest, some = max(oldest, a), true
			}
		}
		if some {
			o.ObserveFloat64(age, oldest.Seconds())
		}
		return nil
	}, rounds, differences, differing, quarantines, quarantined, bytes, busy, age)
	return err
}
