package client

import (
	"context"
	"sync"
	"time"
)

// pulse is a clock that stands still while the process does not run: stopped by a
// signal, throttled, or suspended with its machine. Time without an answer is held
// against a node only as far as this clock has moved, since nothing could be read
// while the process stood still.
//
// It beats, and counts the time between two beats for two regular intervals at
// most. The longer the process stands still, the later the next beat.
type pulse struct {
	interval time.Duration

	mu   sync.Mutex
	ran  time.Duration // until the last beat; guarded by mu
	last time.Time     // the last beat; guarded by mu
}

func newPulse(interval time.Duration, now time.Time) *pulse {
	return &pulse{interval: interval, last: now}
}

// at returns how long the process has run.
func (p *pulse) at(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.atLocked(now)
}

func (p *pulse) atLocked(now time.Time) time.Duration {
	return p.ran + min(now.Sub(p.last), 2*p.interval)
}

func (p *pulse) beat(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ran, p.last = p.atLocked(now), now
}

// run beats until ctx ends.
func (p *pulse) run(ctx context.Context) {
	for sleep(ctx, p.interval) {
		p.beat(time.Now())
	}
}

// ran returns for how long the process has run since New.
func (c *Client) ran() time.Duration { return c.pulse.at(time.Now()) }

// wait measures how long something takes.
type wait struct {
	began time.Time
	ran   time.Duration
}

func (c *Client) wait() wait { return wait{time.Now(), c.ran()} }

// stalled says that the process has stood still for most of the time.
func (c *Client) stalled(w wait) bool { return c.ran()-w.ran < time.Since(w.began)/2 }
