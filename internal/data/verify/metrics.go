package verify

import (
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/shardwatch/shardwatch/internal/telemetry"
)

// Register registers the metrics of copies that were compared.
func (v *Verifier) Register(m metric.Meter) error {
	in := telemetry.NewInstruments(m)
	var (
		rounds      = in.Counter("shardwatch.verify.rounds", "{shard}", "Times that this node has compared the copies of a shard.")
		differences = in.Counter("shardwatch.verify.differences", "{copy}", "Copies that it found to differ, on whichever node.")
		differing   = in.Gauge("shardwatch.verify.differing", "{copy}", "Of the copies that it compares, those that differed when that was done last, on whichever node: they are loaded anew within seconds, or nobody can tell which of them is right.")
		quarantines = in.Counter("shardwatch.verify.quarantines", "{copy}", "Copies of this node that were wrong, and were loaded anew.")
		quarantined = in.Gauge("shardwatch.verify.quarantined", "{copy}", "Copies of this node that are being loaded anew because they were wrong.")
		bytes       = in.Counter("shardwatch.verify.summed", "By", "Bytes of this node's copies that were summed up, for itself and for others.")
		busy        = in.TotalSeconds("shardwatch.verify.busy", "Time of a CPU that summing up took.")
		age         = in.Seconds("shardwatch.verify.age", "Time since the copy of this node that was looked at longest ago was found to be equal, of those that it compares. Absent while there is none.")
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
