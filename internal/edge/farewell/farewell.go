// Package farewell ends open watches at a bounded pace, so that their clients resume on
// other nodes without overloading them.
//
// The APIs return a [Farewell] for each watch or stream to end; [Send] ends them.
package farewell

import (
	"cmp"
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"time"
)

// Pace is the number of watches that are ended per second, unless the deadline requires
// more: ended all at once, they would overload the other nodes.
const Pace = 1000

// Tick is the interval at which watches are ended.
const Tick = 10 * time.Millisecond

// unreadTimeout bounds the time in which an ending stream must send its end.
const unreadTimeout = 5 * time.Second

// Farewell is a unit that drains together: a watch of the native API, or a stream of etcd's API,
// which has no way to end one watch.
type Farewell struct {
	Client  net.Addr // nil: unknown
	Watches int
	Call    context.Context //nolint:containedctx // of the watch's stream
	// End ends it: its client resumes on another node, after its last revision. Open reports
	// whether it has not ended yet: it stays open while its client does not read.
	End  func()
	Open func() bool
}

// Unread waits until all have ended. It returns the farewells that are open after
// unreadTimeout, because their clients do not read; none if ctx ends before.
func Unread(ctx context.Context, all []Farewell) []Farewell {
	tick, late := time.NewTicker(Tick), time.NewTimer(unreadTimeout)
	defer tick.Stop()
	defer late.Stop()
	for {
		if all = slices.DeleteFunc(all, func(f Farewell) bool { return !f.Open() }); len(all) == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		case <-late.C:
			return all
		}
	}
}

// ByClient sorts all by client, with the clients in random order, so that each client
// moves once.
func ByClient(all []Farewell) []Farewell {
	place := make(map[net.Addr]int64)
	for i := range all {
		if _, ok := place[all[i].Client]; !ok {
			place[all[i].Client] = rand.Int64()
		}
	}
	slices.SortStableFunc(all, func(a, b Farewell) int { return cmp.Compare(place[a.Client], place[b.Client]) })
	return all
}

// Send ends them in order, at pace watches per second, or faster to finish within half of the time
// until ctx's deadline. It returns the number of ended watches, and the farewells that remain if ctx ends.
func Send(ctx context.Context, all []Farewell, pace int) (told int, left []Farewell) {
	watches := 0
	for i := range all {
		watches += all[i].Watches
	}
	took := time.Duration(float64(watches) / float64(pace) * float64(time.Second))
	if end, ok := ctx.Deadline(); ok {
		took = min(took, time.Until(end)/2)
	}
	tick := time.NewTicker(Tick)
	defer tick.Stop()
	began := time.Now()
	for len(all) > 0 {
		for due := dueBy(watches, time.Since(began), took); len(all) > 0 && told <= due; all = all[1:] {
			told += all[0].Watches
			all[0].End()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return told, all
		}
	}
	return told, nil
}

// EndAll ends them at once, and returns the number of their watches.
func EndAll(all []Farewell) (watches int) {
	for i := range all {
		watches += all[i].Watches
		all[i].End()
	}
	return watches
}

// dueBy returns the number of watches that must have ended after elapsed of the time took.
func dueBy(all int, elapsed, took time.Duration) int {
	if elapsed >= took {
		return all
	}
	return int(float64(all) * (float64(elapsed) / float64(took)))
}
