package chaos

import (
	"slices"
	"time"
)

// gaps are the longest delays between etcd's own watch and ours, one for each
// watcher and cycle.
type gaps struct {
	// Stayed are those of watchers that kept their node, Moved of those that
	// had to go to another one.
	Stayed, Moved []time.Duration
}

func (g *gaps) add(o gaps) {
	g.Stayed = append(g.Stayed, o.Stayed...)
	g.Moved = append(g.Moved, o.Moved...)
}

// Quantiles are what a report says of many durations.
type Quantiles struct {
	Count int           `json:"count"`
	P50   time.Duration `json:"p50_ns"`
	P99   time.Duration `json:"p99_ns"`
	Max   time.Duration `json:"max_ns"`
}

// quantiles returns the nearest-rank quantiles of ds.
func quantiles(ds []time.Duration) Quantiles {
	if len(ds) == 0 {
		return Quantiles{}
	}
	s := slices.Sorted(slices.Values(ds))
	at := func(percent int) time.Duration { return s[(len(s)*percent+99)/100-1] }
	return Quantiles{Count: len(s), P50: at(50), P99: at(99), Max: s[len(s)-1]}
}
