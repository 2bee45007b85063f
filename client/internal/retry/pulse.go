package retry

import (
	"context"
	"sync"
	"time"
)

// Pulse is a clock that stands still while the process does not run: stopped by a
// signal, throttled, or suspended with its machine. Time without an answer is held
// against a node only as far as this clock has moved, since nothing could be read
// while the process stood still.
//
// It beats, and counts the time between two beats for two regular intervals at
// most. The longer the process stands still, the later the next beat.
type Pulse struct {
	interval time.Duration

	mu   sync.Mutex
	ran  time.Duration // until the last beat; guarded by mu
	last time.Time     // the last beat; guarded by mu
}

// NewPulse returns a clock that starts now and beats at an interval once [Pulse.Run] runs.
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

// Run beats until ctx ends.
func (p *Pulse) Run(ctx context.Context) {
	for Sleep(ctx, p.interval) {
		p.beat(time.Now())
	}
}

// Ran returns for how long the process has run since [NewPulse].
func (p *Pulse) Ran() time.Duration { return p.at(time.Now()) }

// Wait measures how long something takes.
type Wait struct {
	Began time.Time
	Ran   time.Duration // of the pulse
}

// Wait begins to measure.
func (p *Pulse) Wait() Wait { return Wait{time.Now(), p.Ran()} }

// Stalled reports whether the process has stood still for most of the time since w began.
func (p *Pulse) Stalled(w Wait) bool { return p.Ran()-w.Ran < time.Since(w.Began)/2 }
