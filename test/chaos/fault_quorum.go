package chaos

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// loseQuorum kills all voters but one. The shard map cannot change any more;
// the watches must go on, at the node that is left.
type loseQuorum struct{}

func (loseQuorum) Name() string { return "quorum" }

func (loseQuorum) About() string {
	return "SIGKILL to all nodes but one; its watches must go on without raft; the others start again after --away"
}

func (loseQuorum) Strike(ctx context.Context, s *Scene) error {
	left, err := s.Victim(ctx) // who is left takes turns, too
	if err != nil {
		return err
	}
	dead := slices.DeleteFunc(slices.Clone(s.Cluster.Nodes), func(n *Node) bool { return n == left })
	s.Say("kill all but %s", left.Name)
	for _, n := range dead {
		if err := n.Kill(); err != nil {
			return err
		}
	}
	if err := pause(ctx, s.Away); err != nil {
		return err
	}
	// The time is generous: it is a promise, not a measurement.
	if err := s.WatchesGoOn(ctx, time.Minute); err != nil {
		return fmt.Errorf("with %s alone and raft without a quorum: %w", left.Name, err)
	}
	s.Say("all watches went on at %s", left.Name)
	for _, n := range dead {
		if err := n.Start(); err != nil {
			return err
		}
	}
	return nil
}
