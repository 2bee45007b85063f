package retry

import (
	"context"
	"sync"
	"time"
)

// Pulse is a clock that stops while the process does not run: stopped by a signal,
// throttled, or suspended with its machine. The time without an answer from a node is
// measured by this clock, since a stopped process cannot read.
//
// It ticks, and counts the time between two ticks as two regular intervals at most. The
// longer the process stops, the later the next tick.
type Pulse struct {
	interval time.Duration

	mu   sync.Mutex
	ran  time.Duration // until the last tick; guarded by mu
	last time.Time     // the last tick; guarded by mu
}

// NewPulse returns a clock that starts now and ticks at an interval once [Pulse.Run] runs.
func NewPulse(interval time.Duration, now time.Time) *Pulse {
	return &Pulse{interval: interval, last: now}
}

// at returns how long the process has run.
func (p *Pulse) at(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.atLocked(now)
}

func (p *Pulse) atLocked(now time.Time) time.Duration {
	return p.ran + min(now.Sub(p.last), 2*p.interval)
}

func (p *Pulse) beat(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ran, p.last = p.atLocked(now), now
}

// Run ticks until ctx ends.
func (p *Pulse) Run(ctx context.Context) {
	for Sleep(ctx, p.interval) {
		p.beat(time.Now())
	}
}

// Ran returns for how long the process has run since [NewPulse].
func (p *Pulse) Ran() time.Duration { return p.at(time.Now()) }

// Wait is the start of a measured wait.
type Wait struct {
	Began time.Time
	Ran   time.Duration // of the pulse
}

// Wait starts to measure a wait.
func (p *Pulse) Wait() Wait { return Wait{time.Now(), p.Ran()} }

// Stalled reports whether the process was stopped for most of the time since w began.
func (p *Pulse) Stalled(w Wait) bool { return p.Ran()-w.Ran < time.Since(w.Began)/2 }
