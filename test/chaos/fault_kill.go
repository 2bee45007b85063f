package chaos

import "context"

// killOwner kills the node that owns most shards.
type killOwner struct{}

func (killOwner) Name() string { return "kill" }

func (killOwner) About() string {
	return "SIGKILL to the node that owns most shards, all nodes in turn; started again after --away"
}

func (killOwner) Strike(ctx context.Context, s *Scene) error {
	victim, err := s.Victim(ctx)
	if err != nil {
		return err
	}
	s.Say("kill %s", victim.Name)
	if err := victim.Kill(); err != nil {
		return err
	}
	if err := pause(ctx, s.Away); err != nil {
		return err
	}
	return victim.Start()
}
