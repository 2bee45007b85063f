// Package homing moves watches back to their homes: the nodes that the shard map prefers.
//
// After a rolling restart the watches of every client are on the nodes that restarted first, and
// the last one has none. The mover therefore moves watches back gradually, a few at a time, and
// at different times for each client. A move is a resume from the watch's position.
package homing

import (
	"context"
	"math/rand/v2"
	"time"

	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/shardwatch/shardwatch/client/internal/connect"
	"github.com/shardwatch/shardwatch/client/internal/nodes"
	"github.com/shardwatch/shardwatch/client/internal/retry"
	"github.com/shardwatch/shardwatch/client/internal/shardmap"
)

const (
	// every is the mean time between two rounds: the actual time is 0.5 to 1.5 times as long.
	every = 30 * time.Second
	// maxLooked bounds the watches that one round checks, unless a tenth of all is more.
	maxLooked = 1000
	// part is the divisor for the watches that one round moves: a tenth of all, at
	// least one and at most a stream's.
	part = 10
	// maxWait bounds the wait of a watch that was moved and did not stay; each move
	// doubles the wait.
	maxWait = time.Hour
	// settled is how long a watch must stay before its wait is reset.
	settled = 10 * time.Minute
)

// Moves has the recent moves of a watch to its home, and when it may be moved again.
type Moves struct {
	n     int
	after time.Time
}

// Add records a move.
func (m *Moves) Add(now time.Time) {
	m.after = now.Add(min(every<<min(m.n, 10), maxWait))
	m.n++
}

// Wait reports whether the watch must not be moved yet.
func (m *Moves) Wait(now time.Time) bool { return now.Before(m.after) }

// Home records that the watch has been at its home since a time.
func (m *Moves) Home(since time.Time) {
	if time.Since(since) > settled {
		*m = Moves{}
	}
}

// Watch is a watch that may move.
type Watch interface {
	// Home returns the address of the node that should serve the watch, if another one does.
	// Empty: the watch is at home or on no node, or its home is unknown, suspect or drains.
	Home(t *shardmap.Topology) string
	// MoveTo moves the watch to a node, and reports whether it did.
	MoveTo(addr string) bool
}

// Mover moves the watches of a client. All fields must be set.
type Mover struct {
	Pool *nodes.Pool
	// Silence bounds the health check of a target node.
	Silence  time.Duration
	Topology func() *shardmap.Topology // nil: not known
	// Starts counts the starts of watches: after a start, a watch may be away from its home.
	Starts func() int64
	// Some returns up to most(all) watches, in any order, and the total number.
	Some func(most func(all int) int) (some []Watch, all int)
}

// Run moves watches until ctx ends.
func (m *Mover) Run(ctx context.Context) {
	var seen *shardmap.Topology // of the last round, if it found all watches at home
	var starts int64
	for retry.Sleep(ctx, every/2+rand.N(every)) {
		t, n := m.Topology(), m.Starts()
		if t == nil || t == seen && n == starts {
			continue
		}
		seen, starts = nil, n
		if m.Round(ctx, t) {
			seen = t
		}
	}
}

// Round moves some watches to their homes. It reports whether all were there already.
func (m *Mover) Round(ctx context.Context, t *shardmap.Topology) bool {
	some, all := m.Some(func(all int) int { return min(all, max(maxLooked, all/part)) })
	away := map[string][]Watch{}
	for _, w := range some {
		if home := w.Home(t); home != "" {
			away[home] = append(away[home], w)
		}
	}
	left := min(max(all/part, 1), nodes.MaxWatches)
	for addr, ws := range away { // in any order
		most := m.room(ctx, addr)
		for _, w := range ws {
			if left > 0 && most > 0 && w.MoveTo(addr) {
				left, most = left-1, most-1
			}
		}
	}
	return len(away) == 0 && len(some) == all
}

// room returns how many watches may move to a node: none if it cannot be reached, one
// if it serves no watch of this client yet.
func (m *Mover) room(ctx context.Context, addr string) int {
	n, err := m.Pool.Get(addr)
	if err != nil {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, m.Silence)
	defer cancel()
	if connect.Connected(ctx, n.Conn, n.Addr) != nil {
		return 0
	}
	if _, err := healthgrpc.NewHealthClient(n.Conn).Check(ctx, &healthgrpc.HealthCheckRequest{}); err != nil {
		return 0
	}
	return m.Pool.Room(n)
}
