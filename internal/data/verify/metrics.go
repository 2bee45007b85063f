package verify

import (
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/shardwatch/shardwatch/internal/ops/telemetry"
)

// Register registers the metrics of compared copies.
func (v *Verifier) Register(m metric.Meter) error {
	in := telemetry.NewInstruments(m)
	var (
		rounds      = in.Counter("shardwatch.verify.rounds", "{shard}", "Comparisons of the copies of a shard by this node.")
		differences = in.Counter("shardwatch.verify.differences", "{copy}", "Differing copies that this node found, on any node.")
		differing   = in.Gauge("shardwatch.verify.differing", "{copy}", "Copies, on any node, that differed in this node's last comparison: they are reloaded within seconds, or it is unknown which of them is right.")
		quarantines = in.Counter("shardwatch.verify.quarantines", "{copy}", "Wrong copies of this node that were reloaded.")
		quarantined = in.Gauge("shardwatch.verify.quarantined", "{copy}", "Wrong copies of this node that are being reloaded.")
		bytes       = in.Counter("shardwatch.verify.summed", "By", "Bytes of this node's copies that were digested, for its own comparisons and those of other nodes.")
		busy        = in.TotalSeconds("shardwatch.verify.busy", "CPU time spent on digests.")
		age         = in.Seconds("shardwatch.verify.age", "Longest time since one of the copies that this node compares was last found equal. Absent while there is none.")
	)
	return in.Observe(func(o metric.Observer) {
		o.ObserveInt64(rounds, v.rounds.Load())
		o.ObserveInt64(differences, v.differences.Load())
		o.ObserveInt64(quarantines, v.quarantines.Load())
		o.ObserveInt64(bytes, v.bytes.Load())
		o.ObserveFloat64(busy, time.Duration(v.busy.Load()).Seconds())
		o.ObserveInt64(quarantined, v.cfg.Renewing())
		oldest, some, mine := time.Duration(0), false, v.mine()
		if m := v.cfg.Map(); m != nil {
			o.ObserveInt64(differing, v.differing(m, mine))
		}
		for _, id := range mine {
			if a, known := v.Age(id); known {
				oldest, some = max(oldest, a), true
			}
		}
		if some {
			o.ObserveFloat64(age, oldest.Seconds())
		}
	})
}
