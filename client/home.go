package client

import (
	"time"

	"github.com/shardwatch/shardwatch/client/internal/homing"
	"github.com/shardwatch/shardwatch/client/internal/outcome"
	"github.com/shardwatch/shardwatch/client/internal/shardmap"
)

// mover returns the mover of the client's watches to the nodes that they prefer.
func (c *Client) mover() *homing.Mover {
	return &homing.Mover{
		Pool: c.pool, Silence: c.cfg.Silence, Topology: c.follower.Topology.Load, Starts: c.starts.Load,
		Some: func(most func(int) int) ([]homing.Watch, int) {
			c.mu.Lock()
			defer c.mu.Unlock()
			all := len(c.watchers)
			some := make([]homing.Watch, 0, most(all))
			for w := range c.watchers {
				if len(some) == cap(some) {
					break
				}
				some = append(some, placed{w})
			}
			return some, all
		},
	}
}

// Home implements [homing.Watch].
func (w placed) Home(t *shardmap.Topology) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.on == nil || !w.asm.created || !t.Covers(w.asm.rng.keys()) {
		return ""
	}
	home := t.Home(w.asm.rng.keys(), w.c.prefers)
	if home == w.on.Addr() {
		w.moves.Home(w.since)
		return ""
	}
	return home
}

// MoveTo implements [homing.Watch]. The watch stays if a unit is incomplete, or a recent move
// failed.
func (w placed) MoveTo(addr string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if w.err != nil || w.on == nil || !w.asm.steady() || w.moves.Wait(now) {
		return false
	}
	w.moves.Add(now)
	w.detachLocked(outcome.ErrHome, true)
	w.failures, w.tried, w.hints = 0, nil, []string{addr}
	w.placeLocked()
	return true
}
