package chaos

import (
	"context"
	"fmt"
	"time"
)

// clusterFaults are what happens to several nodes, or to what keeps them
// together.
func clusterFaults() []Fault {
	return []Fault{
		{
			Name: "quorum", About: "SIGKILL to all nodes but one, whose watches must go on without raft; the others start again 3 s later",
			For: 3 * time.Second, Inject: loseQuorum,
		},
		{
			Name: "gossip", About: "the gossip of the owner of most shards is dropped for a second and let through for one, for 10 s",
			Needs: Needs{Network: true}, Stall: 2500 * time.Millisecond, Inject: flap,
		},
		{
			Name: "rolling", About: "all nodes are drained (SIGTERM) and started again, one after the other",
			Stall: time.Second, Inject: roll,
		},
		{
			Name: "all-killed", About: "SIGKILL to all nodes at once; they start again a second later",
			For: time.Second, Lists: true,
			Inject: func(_ context.Context, s *Scene) (heal, error) { s.last = nil; return s.kill(s.Cluster.Nodes...) },
		},
	}
}

// loseQuorum kills all voters but one.
func loseQuorum(ctx context.Context, s *Scene) (heal, error) {
	left, err := s.Victim(ctx) // who is left takes turns, too
	if err != nil {
		return nil, err
	}
	start, err := s.kill(s.others(left)...)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		// The time is generous: it is a promise, not a measurement.
		if err := s.WatchesGoOn(ctx, time.Minute); err != nil {
			return fmt.Errorf("with %s alone and raft without a quorum: %w", left.Name, err)
		}
		s.Say("all watches went on at %s", left.Name)
		return start(ctx)
	}, nil
}

// flap drops a node's gossip on and off.
func flap(ctx context.Context, s *Scene) (heal, error) {
	victim, err := s.Victim(ctx)
	if err != nil {
		return nil, err
	}
	var rules []string
	for _, proto := range []string{"udp", "tcp"} {
		for _, port := range []string{" --dport ", " --sport "} {
			rules = append(rules, "INPUT -p "+proto+port+victim.gossipPort()+dropped, "OUTPUT -p "+proto+port+victim.gossipPort()+dropped)
		}
	}
	s.Say("flap the gossip of %s", victim.Name)
	for range 5 {
		mend, err := victim.host.apply(ctx, rules...)
		if err != nil {
			return nil, err
		}
		_ = pause(ctx, time.Second)
		if err := mend(context.WithoutCancel(ctx)); err != nil {
			return nil, err
		}
		if err := pause(ctx, time.Second); err != nil {
			return nil, err
		}
	}
	return nil, nil //nolint:nilnil // it is mended
}

// roll drains and starts one node after the other.
func roll(ctx context.Context, s *Scene) (heal, error) {
	s.last = nil
	for _, n := range s.Cluster.Nodes {
		s.Say("drain %s", n.Name)
		if err := n.Drain(); err != nil {
			return nil, err
		}
		if err := n.Start(); err != nil {
			return nil, err
		}
		if err := s.Cluster.WaitReady(ctx, patience); err != nil {
			return nil, err
		}
	}
	return nil, nil //nolint:nilnil // it is mended
}
