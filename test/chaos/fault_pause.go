package chaos

import (
	"context"
	"sync"
	"time"
)

// pauseOwner stops the node that owns most shards with SIGSTOP: the worst
// kind of death, because its connections stay open, and it comes back without
// knowing that it was away. When it wakes it is read from at once, with
// questions that waited for it and new ones: no answer may be stale.
type pauseOwner struct{}

func (pauseOwner) Name() string { return "pause" }

func (pauseOwner) About() string {
	return "SIGSTOP to the node that owns most shards, all nodes in turn, SIGCONT after --asleep; then its answers must not be stale"
}

func (pauseOwner) Strike(ctx context.Context, s *Scene) error {
	victim, err := s.Victim(ctx)
	if err != nil {
		return err
	}
	var readers []*reader
	for _, api := range s.apis {
		r, err := newReader(api, victim, s.acked)
		if err != nil {
			return err
		}
		defer r.close()
		// The connection must stand before the node sleeps.
		if _, err := r.ask(ctx, question{r: s.keys.anyPrefix(), stale: time.Minute}); err != nil {
			s.Say("%s refuses a read before its sleep: %v", victim.Name, err)
		}
		readers = append(readers, r)
	}
	s.Say("stop %s for %v", victim.Name, s.Asleep)
	if err := victim.Pause(); err != nil {
		return err
	}
	if err := pause(ctx, s.Asleep-500*time.Millisecond); err != nil {
		return err
	}
	stop := make(chan struct{})
	var g sync.WaitGroup
	defer g.Wait()
	hard := pace{at: 6 / len(readers), most: 400, every: 5 * time.Millisecond, patience: 20 * time.Second}
	for i, r := range readers {
		g.Go(func() { r.read(ctx, stop, hard, s.keys, s.Seed<<8|uint64(i), s.answers) })
	}
	defer close(stop)
	if err := pause(ctx, 500*time.Millisecond); err != nil {
		return err
	}
	if err := victim.Continue(); err != nil {
		return err
	}
	s.Say("%s is awake", victim.Name)
	return pause(ctx, 3*time.Second)
}
