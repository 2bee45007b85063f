package client

import (
	"context"
	"math/rand/v2"
	"time"

	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/shardwatch/shardwatch/client/internal/connect"
	"github.com/shardwatch/shardwatch/client/internal/nodes"
	"github.com/shardwatch/shardwatch/client/internal/outcome"
	"github.com/shardwatch/shardwatch/client/internal/retry"
	"github.com/shardwatch/shardwatch/client/internal/shardmap"
)

// After a rolling restart the watches of every client sit on the nodes that were
// restarted first, and the last one has none. So watches move back to the node that
// the shard map prefers for them, their home: slowly, a few at a time, and at a time
// of its own for each client. A move is a resume from the watch's position.

const (
	// homeEvery is the mean time between two rounds. A round comes after half to
	// one and a half of it.
	homeEvery = 30 * time.Second
	// homeWatches bounds the watches that one round looks at, or a tenth of all.
	homeWatches = 1000
	// homePart is the part of the watches that one round moves, at least one and at
	// most a stream's.
	homePart = 10
	// homeMax bounds how long a watch waits that was moved and did not stay; each
	// move doubles the wait.
	homeMax = time.Hour
	// homeSettled is how long a watch must have stayed for the next wait to be the
	// first one again.
	homeSettled = 10 * time.Minute
)

// homing is how often a watch was moved to its home lately, and when it may be
// moved again.
type homing struct {
	moves int
	after time.Time
}

// add notes a move.
func (h *homing) add(now time.Time) {
	h.after = now.Add(min(homeEvery<<min(h.moves, 10), homeMax))
	h.moves++
}

// goHome moves watches to their homes until the client is closed.
func (c *Client) goHome() {
	var seen *shardmap.Topology // at the last round, if that found all watches at home
	var starts int64
	for retry.Sleep(c.ctx, homeEvery/2+rand.N(homeEvery)) {
		t, n := c.follower.Topology.Load(), c.starts.Load()
		if t == nil || t == seen && n == starts {
			continue
		}
		seen, starts = nil, n
		if c.moveHome(t) {
			seen = t
		}
	}
}

// moveHome is one round. It reports whether all watches were at home.
func (c *Client) moveHome(t *shardmap.Topology) bool {
	watchers, all := c.someWatchers()
	away := map[string][]*Watcher{}
	for _, w := range watchers {
		if home := w.home(t); home != "" {
			away[home] = append(away[home], w)
		}
	}
	left := min(max(all/homePart, 1), nodes.MaxWatches)
	for addr, ws := range away { // in any order
		most := c.ready(addr)
		for _, w := range ws {
			if left > 0 && most > 0 && w.moveTo(addr) {
				left, most = left-1, most-1
			}
		}
	}
	return len(away) == 0 && len(watchers) == all
}

// someWatchers returns some watchers of the client, in any order, and how many
// there are.
func (c *Client) someWatchers() ([]*Watcher, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := len(c.watchers)
	out := make([]*Watcher, 0, min(all, max(homeWatches, all/homePart)))
	for w := range c.watchers {
		if len(out) == cap(out) {
			break
		}
		out = append(out, w)
	}
	return out, all
}

// ready returns how many watches may move to a node: none when it cannot be
// reached, one when it serves none of this client yet.
func (c *Client) ready(addr string) int {
	n, err := c.pool.Get(addr)
	if err != nil {
		return 0
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.cfg.Silence)
	defer cancel()
	if connect.Connected(ctx, n.Conn, n.Addr) != nil {
		return 0
	}
	if _, err := healthgrpc.NewHealthClient(n.Conn).Check(ctx, &healthgrpc.HealthCheckRequest{}); err != nil {
		return 0
	}
	return c.pool.Room(n)
}

// home returns the address of the node that should serve the watch, if another
// one does. Empty: the watch is at home, or nowhere, or its home is about to go or not
// known.
func (w *Watcher) home(t *shardmap.Topology) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.on == nil || !w.asm.created || !t.Covers(w.asm.rng.keys()) {
		return ""
	}
	home := t.Home(w.asm.rng.keys(), w.c.prefers)
	if home == w.on.Addr() {
		if time.Since(w.since) > homeSettled {
			w.homing = homing{}
		}
		return ""
	}
	return home
}

// moveTo has the watch resume at a node. It does not while the watch is in the
// middle of a unit, or a recent move failed.
func (w *Watcher) moveTo(addr string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if w.err != nil || w.on == nil || !w.asm.steady() || now.Before(w.homing.after) {
		return false
	}
	w.homing.add(now)
	w.detachLocked(outcome.ErrHome, true)
	w.failures, w.tried, w.hints = 0, nil, []string{addr}
	w.placeLocked()
	return true
}
