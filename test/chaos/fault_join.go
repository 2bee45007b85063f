package chaos

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/google/uuid"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// joins are nodes that join and leave like pods of a StatefulSet.
func joins() []Fault {
	return []Fault{
		{
			Name: "newcomer", About: "two empty nodes join and clients that know only them connect at once; later both are drained permanently",
			Inject: newcomer,
		},
		{
			Name: "five-to-three", About: "the first two founders are drained at overlapping times and come back, then all nodes but the first three are drained permanently at once, as `kubectl scale --replicas=3` does; the three must have a leader and agree on a change",
			Inject: fiveToThree,
		},
	}
}

// newcomerJoins is the number of joins of each client of a newcomer.
const newcomerJoins = 5

// newcomer starts empty nodes, with clients that connect before they are ready. No watch may be
// cancelled as compacted at a revision that etcd still has.
func newcomer(ctx context.Context, s *Scene) (heal, error) {
	s.last = nil
	spares := s.Cluster.Spares
	leave := func(context.Context) error {
		var errs []error
		for _, n := range spares {
			errs = append(errs, n.Kill(), n.Wipe())
		}
		return errors.Join(errs...)
	}
	for _, n := range spares {
		s.Say("%s joins with an empty disk", n.Name)
		if err := errors.Join(n.Wipe(), n.Start()); err != nil {
			return leave, err
		}
	}
	var stops []func(context.Context) error
	for _, n := range spares { // each has clients with no other address
		stop, err := s.join(ctx, []*Node{n}, newcomerJoins)
		if err != nil {
			return leave, err
		}
		stops = append(stops, stop)
	}
	for _, stop := range stops {
		if err := stop(ctx); err != nil {
			return leave, err
		}
	}
	s.Say("all clients of both were served")
	if err := s.drainAll(spares...); err != nil {
		return leave, err
	}
	return leave, s.Cluster.await(ctx, "the shards to leave both", func(m *shard.Map) error { return without(m, spares...) })
}

// fiveToThree reproduces a loss of quorum: votes moved from restarted pods to pods that were then
// scaled away.
func fiveToThree(ctx context.Context, s *Scene) (heal, error) {
	s.last = nil
	const stay = 3
	if len(s.Cluster.Nodes) <= stay {
		return nil, fmt.Errorf("it needs more than %d nodes", stay)
	}
	first, away := s.Cluster.Nodes[:2], s.Cluster.Nodes[stay:]
	rest := &Cluster{Nodes: s.Cluster.Nodes[:stay]}
	back := func(context.Context) error { return s.Cluster.Start() }
	s.Say("drain %s and %s", first[0].Name, first[1].Name)
	if err := s.drainAll(first...); err != nil {
		return back, err
	}
	if err := s.Cluster.Start(); err != nil {
		return back, err
	}
	if err := s.Cluster.WaitReady(ctx, patience); err != nil {
		return back, err
	}
	s.Say("scale to %d nodes", stay)
	if err := s.drainAll(away...); err != nil {
		return back, err
	}
	if err := rest.await(ctx, "the shards to leave the others", func(m *shard.Map) error { return without(m, away...) }); err != nil {
		return back, err
	}
	if _, err := rest.leader(ctx); err != nil {
		return back, err
	}
	// The three must agree on a change: another owner for one shard.
	err := rest.await(ctx, "the three to agree on a change", func(m *shard.Map) error {
		r := m.Shards[0].Replicas
		if len(r) < 2 {
			return fmt.Errorf("shard %d has %d replicas", m.Shards[0].ID, len(r))
		}
		next := append(append([]shard.NodeID{}, r[1:]...), r[0])
		change := shard.Assign{Moves: []shard.Move{{Shard: m.Shards[0].ID, Replicas: next}}}
		return rest.propose(ctx, shard.Command{RequestID: uuid.NewString(), IfVersion: m.Version, Change: change})
	})
	if err != nil {
		return back, err
	}
	if err := s.WatchesGoOn(ctx, patience); err != nil {
		return back, fmt.Errorf("with three of %d nodes: %w", len(s.Cluster.Nodes), err)
	}
	return back, nil
}

// drainAll drains nodes at the same time, and returns once all have ended.
func (s *Scene) drainAll(nodes ...*Node) error {
	errs := make([]error, len(nodes))
	var g sync.WaitGroup
	for i, n := range nodes {
		g.Go(func() { errs[i] = n.Drain() })
	}
	g.Wait()
	return errors.Join(errs...)
}
