package chaos

import (
	"context"
	"time"
)

// kills are faults that kill nodes.
func kills() []Fault {
	return []Fault{
		{
			Name: "kill", About: "SIGKILL to the node that owns most shards, all nodes in turn; it starts again 3 s later",
			For: 3 * time.Second, Stall: time.Second, Inject: killOwner,
		},
		{
			Name: "raft-leader", About: "SIGKILL to the node that leads raft; it starts again 3 s later",
			For: 3 * time.Second, Stall: time.Second, Inject: killLeader,
		},
		{
			Name: "wipe", About: "SIGKILL to the owner of most shards, which is a voter; it starts again 3 s later with an empty disk",
			For: 3 * time.Second, Stall: time.Second, Inject: wipeOwner,
		},
	}
}

func killOwner(ctx context.Context, s *Scene) (heal, error) {
	victim, err := s.Victim(ctx)
	if err != nil {
		return nil, err
	}
	return s.kill(victim)
}

// kill kills nodes, all at once.
func (s *Scene) kill(nodes ...*Node) (heal, error) {
	for _, n := range nodes {
		s.Say("kill %s", n.Name)
		if err := n.Kill(); err != nil {
			return nil, err
		}
	}
	return func(context.Context) error {
		for _, n := range nodes {
			if err := n.Start(); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

func killLeader(ctx context.Context, s *Scene) (heal, error) {
	leader, err := s.Cluster.leader(ctx)
	if err != nil {
		return nil, err
	}
	owned, err := s.Cluster.Owned(ctx)
	if err != nil {
		return nil, err
	}
	return s.kill(s.strike(leader, owned))
}

func wipeOwner(ctx context.Context, s *Scene) (heal, error) {
	victim, err := s.Victim(ctx)
	if err != nil {
		return nil, err
	}
	start, err := s.kill(victim)
	if err != nil {
		return nil, err
	}
	return start, victim.Wipe()
}
