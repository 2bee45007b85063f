package client

import (
	"errors"
	"fmt"
	"math"
	"time"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/client/internal/nodes"
	"github.com/shardwatch/shardwatch/client/internal/outcome"
	"github.com/shardwatch/shardwatch/client/internal/retry"
	"github.com/shardwatch/shardwatch/client/internal/shardmap"
)

// The placement of a watch: on a stream to one node, until the stream breaks or the
// node ends the watch; then on another node, or for a while on none.
//
//	place ─▶ on a stream ─detach─▶ on none ─retry─▶ place

// place puts the watch on a stream, unless it has ended or is on one.
func (w *Watcher) place() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.placeLocked()
}

func (w *Watcher) placeLocked() {
	if w.err != nil || w.on != nil || w.paused || w.timer != nil {
		return
	}
	if w.awaitMapLocked() {
		return
	}
	addr := w.c.pick(w.asm.rng, w.hints, w.tried)
	w.hints = nil
	s, id, err := w.c.pool.Join(placed{w}, addr)
	if err != nil {
		if !errors.Is(err, ErrClosed) { // Close ends all watchers
			w.c.pool.Penalise(addr, 0)
			w.tried.Add(addr)
			w.retryLocked(0, 0)
		}
		return
	}
	w.on, w.id = s, id
}

// retryLocked places the watch again after its next backoff, at the earliest after the
// delay that the node requested (after), plus spread.
func (w *Watcher) retryLocked(after, spread time.Duration) {
	if w.err != nil || w.timer != nil {
		return
	}
	w.failures++
	d := retry.Backoff(w.failures, after) + spread
	if d == 0 {
		w.placeLocked()
		return
	}
	w.placeLaterLocked(d)
}

// placeLaterLocked places the watch after d.
func (w *Watcher) placeLaterLocked(d time.Duration) {
	// The client's Close ends every watcher before it waits: until then the group may grow.
	w.c.wg.Add(1)
	w.timer = time.AfterFunc(d, func() {
		defer w.c.wg.Done()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.timer = nil
		w.placeLocked()
	})
}

// awaitMapLocked delays the placement until the shards of the range are known, for
// mapWait at most. A watch waits for them once. It reports whether the watch waits.
func (w *Watcher) awaitMapLocked() bool {
	w.stopAwaitingLocked()
	if w.awaited || w.c.follower.Topology.Load() == nil || len(w.hints) > 0 {
		return false
	}
	w.awaited, w.unmapped = true, true
	w.c.follower.Unmapped.Add(1) // before Covers: learn reads this after it has stored a topology
	if w.c.follower.Topology.Load().Covers(w.asm.rng.keys()) {
		w.stopAwaitingLocked()
		return false
	}
	w.c.follower.Grow()
	w.placeLaterLocked(mapWait)
	return true
}

func (w *Watcher) stopAwaitingLocked() {
	if w.unmapped {
		w.unmapped = false
		w.c.follower.Unmapped.Add(-1)
	}
}

// mapped places the watch if it waits for shards that t has.
func (w *Watcher) mapped(t *shardmap.Topology) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unmapped && w.timer != nil && t.Covers(w.asm.rng.keys()) && w.timer.Stop() {
		w.c.wg.Done()
		w.timer = nil
		w.placeLocked()
	}
}

// detachLocked takes the watch off its stream.
func (w *Watcher) detachLocked(reason error, tell bool) {
	if w.on == nil {
		return
	}
	if w.asm.created && time.Since(w.since) > retry.Settled {
		w.failures, w.tried = 0, nil
	}
	if w.reason == nil {
		w.reason = reason
	}
	w.lastErr = reason
	w.tried.Add(w.on.Addr())
	w.on.Remove(w.id, tell)
	w.on, w.id = nil, 0
	w.asm.partial, w.asm.size = Update{}, 0 // up to Config.MaxUnit, and useless for the next node
}

// placed implements the interfaces of the streams and the mover for a watcher.
type placed struct{ *Watcher }

// Begin implements [nodes.Watch].
func (w placed) Begin() *pb.CreateWatch { return w.asm.begin() }

// Handle implements [nodes.Watch].
func (w placed) Handle(s *nodes.Stream, id int64, r *nodes.Response) { w.handle(s, id, r) }

// Lost implements [nodes.Watch].
func (w placed) Lost(s *nodes.Stream, id int64, v outcome.Verdict, spread time.Duration) {
	v.Err = public(v.Err)
	w.lost(s, id, v, spread)
}

// End implements [nodes.Watch].
func (w placed) End(err error) { w.end(public(err)) }

// lost handles the failure of a stream, or of the watch on it. The watch is placed
// again after its backoff plus spread.
func (w *Watcher) lost(s *nodes.Stream, id int64, v outcome.Verdict, spread time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.on != s || w.id != id {
		return
	}
	w.detachLocked(v.Err, true)
	w.hints = v.Hints
	w.retryLocked(v.After, spread)
}

// follow leaves a node that is not of the map's cluster, after spread.
func (w *Watcher) follow(cluster string, spread time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.on == nil || !w.asm.created || w.asm.there.cluster == cluster {
		return // createdLocked compares the cluster of a watch that is starting
	}
	w.detachLocked(fmt.Errorf("%s: %w", w.on.Addr(), outcome.ErrForeign), true)
	w.tried = nil
	w.retryLocked(0, spread)
}

// brokenLocked leaves a node that lags, belongs to another cluster, or violates the protocol.
func (w *Watcher) brokenLocked(err error) {
	if !errors.Is(err, outcome.ErrBehind) && !errors.Is(err, outcome.ErrForeign) {
		w.c.cfg.Logger.Warn("leaving a node", "node", w.on.Addr(), "range", w.asm.rng.String(), "error", err)
	}
	w.detachLocked(err, true)
	w.retryLocked(retry.Base, 0)
}

func (w *Watcher) endedLocked(e *pb.Ended) {
	because := func(err error) error { return fmt.Errorf("watch %v: %w", w.asm.rng, err) }
	switch e.GetReason() {
	case pb.EndReason_END_REASON_INVALID:
		w.endLocked(because(fmt.Errorf("%w: %s", ErrInvalid, e.GetMessage())))
		return
	case pb.EndReason_END_REASON_DENIED:
		w.endLocked(because(fmt.Errorf("%w: %s", ErrDenied, e.GetMessage())))
		return
	case pb.EndReason_END_REASON_UNAUTHENTICATED:
		err := fmt.Errorf("%w: %s", ErrUnauthenticated, e.GetMessage())
		if !w.c.connect.Renewed(outcome.Verdict{Err: err, Refused: true}, w.on.Began()) {
			w.endLocked(because(err))
			return
		}
		w.on.Retire() // a stream keeps the token that it was opened with
		w.detachLocked(fmt.Errorf("%s: %w", w.on.Addr(), err), false)
		w.retryLocked(e.GetRetryAfter().AsDuration(), 0)
		return
	case pb.EndReason_END_REASON_COMPACTED:
		if !w.asm.wantState { // else the state's revision is compacted: the next attempt gets a newer one
			floor, nowhere := w.compactedLocked(e)
			switch {
			case !nowhere:
				return
			case w.asm.noResync:
				w.endLocked(because(&CompactedError{Requested: w.asm.next(), Floor: floor}))
				return
			}
			w.asm.startOver() // a server without units
		}
	case pb.EndReason_END_REASON_LINEAGE:
		switch {
		case w.asm.wantState:
		case w.asm.noResync:
			w.endLocked(because(fmt.Errorf("%w: %s", outcome.Lineage(e.GetForeign()), e.GetMessage())))
			return
		case w.asm.created: // this node has the history that all nodes will follow
			addr := w.on.Addr()
			w.detachLocked(fmt.Errorf("%s: %w", addr, ErrLineage), false)
			w.tried, w.hints = nil, []string{addr}
			w.retryLocked(e.GetRetryAfter().AsDuration(), retry.Herd(nodes.MaxWatches))
			return
		default:
			w.asm.startOver() // a server without units
		}
	case pb.EndReason_END_REASON_DRAINING:
		w.c.pool.Penalise(w.on.Addr(), drainPenalty)
	}
	hints := e.GetEndpoints()
	w.detachLocked(fmt.Errorf("%s ended the watch: %s", w.on.Addr(), e.GetMessage()), false)
	w.hints = hints
	w.retryLocked(e.GetRetryAfter().AsDuration(), 0)
}

// compactedLocked resumes on a node that was not asked yet. If several nodes have
// reported the next revision compacted, it returns the lowest floor instead.
func (w *Watcher) compactedLocked(e *pb.Ended) (floor int64, nowhere bool) {
	if w.floors == nil {
		w.floors = make(map[string]int64)
	}
	w.floors[w.on.Addr()] = e.GetFloor()
	if len(w.floors) < maxAsked {
		for _, addr := range w.c.follower.Topology.Load().Candidates(w.asm.rng.keys(), w.c.prefers) {
			if _, asked := w.floors[addr]; asked {
				continue
			}
			w.floors[addr] = math.MaxInt64 // asked once, even if it does not answer
			w.detachLocked(fmt.Errorf("%s no longer has the next revision", w.on.Addr()), false)
			w.tried, w.hints = nil, []string{addr}
			w.retryLocked(0, 0)
			return 0, false
		}
	}
	floor = e.GetFloor()
	for _, f := range w.floors {
		floor = min(floor, f)
	}
	return floor, true
}

// maxAsked is how many nodes are asked for history before it counts as compacted: more
// than a shard has replicas.
const maxAsked = 5

// drainPenalty is how long a draining node is avoided, unless it answers again.
const drainPenalty = 5 * time.Second

// mapWait is how long a new watch waits for the shards of its range. After that any
// node serves it, and the mover moves it to its preferred node later.
const mapWait = 250 * time.Millisecond
