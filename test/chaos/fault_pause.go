package chaos

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"time"
)

// pauses stop owners with SIGSTOP: the worst kind of failure, because their connections stay open,
// and they do not notice that they were stopped.
func pauses() []Fault {
	pause := func(name string, d time.Duration) Fault {
		asked := min(d/2, 500*time.Millisecond) // how long the test sends reads before it wakes
		return Fault{
			Name: name, About: "SIGSTOP to the node that owns most shards for " + d.String() + "; when it wakes, its answers must not be stale",
			For: d - asked, Stall: 2500 * time.Millisecond,
			Inject: func(ctx context.Context, s *Scene) (heal, error) { return s.pauseOwner(ctx, asked) },
		}
	}
	return []Fault{
		pause("pause-200ms", 200*time.Millisecond), pause("pause-2s", 2*time.Second),
		pause("pause-10s", 10*time.Second), pause("pause-60s", time.Minute),
		{
			Name: "throttle", About: "SIGSTOP for 150 of every 200 ms, as a CPU limit does: the owner of most shards for 10 s, then a client's process for 10 s",
			Stall: 2500 * time.Millisecond, Inject: throttleBoth,
		},
	}
}

// CPU limits throttle in the same way: the kernel's bandwidth control stops a process for the rest
// of each period once its quota is used up (Documentation/scheduler/sched-bwc.rst).
const (
	throttlePeriod  = 200 * time.Millisecond
	throttleStopped = 150 * time.Millisecond
	throttleFor     = 10 * time.Second
)

// throttleBoth throttles a node, and then a process with clients.
func throttleBoth(ctx context.Context, s *Scene) (heal, error) {
	victim, err := s.Victim(ctx)
	if err != nil {
		return nil, err
	}
	s.Say("throttle %s", victim.Name)
	if err := throttle(ctx, victim.proc.signal); err != nil {
		return nil, err
	}
	for _, r := range s.crowd.remotes {
		s.Say("throttle a client with %d watches", len(r.watches))
		if err := throttle(ctx, r.signal); err != nil {
			return nil, err
		}
	}
	return nil, nil //nolint:nilnil // it is mended
}

// throttle alternately stops and continues a process. The process runs when it returns.
func throttle(ctx context.Context, signal func(syscall.Signal) error) error {
	for began := time.Now(); time.Since(began) < throttleFor; {
		if err := signal(syscall.SIGSTOP); err != nil {
			return err
		}
		stopped := pause(ctx, throttleStopped)
		if err := errors.Join(signal(syscall.SIGCONT), stopped); err != nil {
			return err
		}
		if err := pause(ctx, throttlePeriod-throttleStopped); err != nil {
			return err
		}
	}
	return nil
}

// pauseOwner stops a node. It sends reads before the node wakes, so that requests queue, and
// afterwards. No answer may be stale.
func (s *Scene) pauseOwner(ctx context.Context, asked time.Duration) (heal, error) {
	victim, err := s.Victim(ctx)
	if err != nil {
		return nil, err
	}
	var readers []*reader
	for _, api := range s.apis {
		r, err := newReader(api, victim, &s.load.acked)
		if err != nil {
			return nil, err
		}
		// The connection must be established before the node sleeps.
		if _, err := r.ask(ctx, question{r: s.keys.anyPrefix(), stale: time.Minute}); err != nil {
			s.Say("%s refuses a read before its sleep: %v", victim.Name, err)
		}
		readers = append(readers, r)
	}
	s.Say("stop %s", victim.Name)
	if err := victim.Pause(); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		stop := make(chan struct{})
		var g sync.WaitGroup
		defer func() {
			close(stop)
			g.Wait()
			for _, r := range readers {
				r.close()
			}
		}()
		hard := pace{at: 6 / len(readers), most: 400, every: 5 * time.Millisecond, patience: 20 * time.Second}
		for i, r := range readers {
			g.Go(func() { r.read(ctx, stop, hard, s.keys, s.Seed<<8|uint64(i), s.answers) })
		}
		if err := pause(ctx, asked); err != nil {
			return err
		}
		if err := victim.Continue(); err != nil {
			return err
		}
		s.Say("%s is awake", victim.Name)
		return pause(ctx, 3*time.Second)
	}, nil
}
