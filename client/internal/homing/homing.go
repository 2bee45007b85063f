// Package homing moves watches back to the nodes that the shard map prefers for them, their homes.
//
// After a rolling restart the watches of every client are on the nodes that were restarted first,
// and the last one has none. So watches move back: slowly, a few at a time, and at a time of its
// own for each client. A move is a resume from the watch's position.
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
	// every is the mean time between two rounds. A round comes after half to one and a
	// half of it.
	every = 30 * time.Second
	// maxLooked bounds the watches that one round looks at, or a tenth of all.
	maxLooked = 1000
	// part is the part of the watches that one round moves, at least one and at most a
	// stream's.
	part = 10
	// maxWait bounds how long a watch waits that was moved and did not stay; each move
	// doubles the wait.
	maxWait = time.Hour
	// settled is how long a watch must have stayed for the next wait to be the first one
	// again.
	settled = 10 * time.Minute
)

// Moves are the recent moves of a watch to its home, and when it may be moved again.
type Moves struct {
	n     int
	after time.Time
}

// Add notes a move.
func (m *Moves) Add(now time.Time) {
	m.after = now.Add(min(every<<min(m.n, 10), maxWait))
	m.n++
}

// Wait reports whether the watch must not be moved yet.
func (m *Moves) Wait(now time.Time) bool { return now.Before(m.after) }

// Home notes that the watch has been at its home since a time.
func (m *Moves) Home(since time.Time) {
	if time.Since(since) > settled {
		*m = Moves{}
	}
}

// Watch is a watch that may move.
type Watch interface {
	// Home returns the address of the node that should serve the watch, if another one
	// does. Empty: the watch is at home, or on no node, or its home is about to go or not
	// known.
	Home(t *shardmap.Topology) string
	// MoveTo has the watch resume at a node, and reports whether it does.
	MoveTo(addr string) bool
}

// Mover moves the watches of a client. All fields must be set.
type Mover struct {
	Pool *nodes.Pool
	// Silence bounds the check of a node that watches are to move to.
	Silence  time.Duration
	Topology func() *shardmap.Topology // nil: not known
	// Starts counts the starts of watches: after one, a watch may be away from its home.
	Starts func() int64
	// Some returns up to most(all) watches, in any order, and the number of all.
	Some func(most func(all int) int) (some []Watch, all int)
}

// Run moves watches until ctx ends.
func (m *Mover) Run(ctx context.Context) {
	var seen *shardmap.Topology // at the last round, if that found all watches at home
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

// Round moves some watches to their homes. It reports whether all were there.
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

// room returns how many watches may move to a node: none when it cannot be reached, one
// when it serves none of this client yet.
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
