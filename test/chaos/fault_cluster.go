package chaos

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// clusterFaults are faults of several nodes, of their connections or of the quorum.
func clusterFaults() []Fault {
	return []Fault{
		{
			Name: "quorum", About: "SIGKILL to all voters but one, so that raft has no quorum and each shard a replica; the watches must continue, and the voters start again 3 s later",
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

// loseQuorum kills all voters but one: two of three, one node fewer than a shard has replicas.
func loseQuorum(ctx context.Context, s *Scene) (heal, error) {
	members, err := s.Cluster.Nodes[0].members(ctx)
	if err != nil {
		return nil, err
	}
	var voters []*Node
	for _, m := range members {
		if n := s.named(shard.NodeID(m.GetName())); n != nil && m.GetVoter() {
			voters = append(voters, n)
		}
	}
	if len(voters) < 3 {
		return nil, fmt.Errorf("%d voters, want 3 at least", len(voters))
	}
	left := voters[s.Turn%len(voters)]
	s.last = nil
	start, err := s.kill(slices.DeleteFunc(voters, func(n *Node) bool { return n == left })...)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		// The bound is generous: it is a promise, not a measurement.
		if err := s.WatchesGoOn(ctx, time.Minute); err != nil {
			return fmt.Errorf("with %s as the only voter: %w", left.Name, err)
		}
		s.Say("all watches continued with %s as the only voter", left.Name)
		return start(ctx)
	}, nil
}

// flap alternately drops and admits a node's gossip.
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
