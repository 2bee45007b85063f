package chaos

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Fault is one way to break the system.
type Fault interface {
	// Name is what --faults calls it.
	Name() string
	// About says in a sentence what it does.
	About() string
	// Strike breaks something and mends it. It returns once everything runs
	// again; whether it is ready is the cycle's to wait for. An error voids
	// the run: it says that the scene could not be set, or that something did
	// not happen which has to.
	Strike(ctx context.Context, s *Scene) error
}

// Faults returns all faults by name.
func Faults() map[string]Fault {
	out := map[string]Fault{}
	for _, f := range []Fault{killOwner{}, pauseOwner{}, loseQuorum{}} {
		out[f.Name()] = f
	}
	return out
}

// FaultNames returns the names of all faults, in order.
func FaultNames() []string { return slices.Sorted(maps.Keys(Faults())) }

// Scene is what a fault finds.
type Scene struct {
	Cluster *Cluster
	// Away is how long a node is dead before it is started again, and Asleep
	// how long a paused one sleeps.
	Away, Asleep time.Duration
	// Seed is another one for every cycle.
	Seed uint64
	// Say tells the one who watches the run what happens.
	Say func(format string, args ...any)

	keys    keyspace
	acked   *ackLog
	crowd   *crowd
	answers *answers
	apis    []string
	last    *Node         // the last victim
	owned   int           // shards it owned
	struck  map[*Node]int // how often each was one
}

// Victim returns, of the nodes that were a victim least often, the one that
// owns most shards.
func (s *Scene) Victim(ctx context.Context) (*Node, error) {
	owned, err := s.Cluster.Owned(ctx)
	if err != nil {
		return nil, fmt.Errorf("find a victim: %w", err)
	}
	if s.struck == nil {
		s.struck = map[*Node]int{}
	}
	s.last = slices.MinFunc(s.Cluster.Nodes, func(a, b *Node) int {
		return cmp.Or(cmp.Compare(s.struck[a], s.struck[b]), cmp.Compare(owned[b.Name], owned[a.Name]))
	})
	s.owned = owned[s.last.Name]
	s.struck[s.last]++
	return s.last, nil
}

// WatchesGoOn waits until every watcher has everything that is acknowledged
// by now.
func (s *Scene) WatchesGoOn(ctx context.Context, within time.Duration) error {
	return s.crowd.reach(ctx, s.acked.newest(), within)
}
