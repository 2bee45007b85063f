package client

import (
	"errors"
	"fmt"
	"time"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/client/internal/nodes"
	"github.com/shardwatch/shardwatch/client/internal/outcome"
)

// Received messages of a watch: the assembler converts them to updates, which are
// queued for the consumer.

// handle handles a response for the watch id on stream s.
func (w *Watcher) handle(s *nodes.Stream, id int64, r *nodes.Response) {
	w.mu.Lock()
	if w.on != s || w.id != id {
		w.mu.Unlock()
		return
	}
	switch {
	case r.GetCreated() != nil:
		w.createdLocked(r.GetCreated())
	case r.GetEnded() != nil:
		w.endedLocked(r.GetEnded())
	default:
		w.stepLocked(r)
	}
	observed := w.takeObservedLocked()
	w.mu.Unlock()
	for _, f := range observed {
		f()
	}
}

// resumedLocked counts a resume and reports it to OnResume. Resumes during a report are
// merged into one, so that few are kept however long the function takes.
func (w *Watcher) resumedLocked(r Resume) {
	w.resumes++
	w.c.resumes.Add(1)
	if f := w.c.cfg.Observer.Resume; f != nil {
		rng := w.asm.rng
		w.observeLocked(func() { f(rng, r) })
	}
	switch {
	case w.opts.onResume == nil:
	case w.untold != nil:
		w.untold.To, w.untold.Reason = r.To, r.Reason
	default:
		w.untold = &r
		if !w.telling {
			w.telling = true
			go w.tell() // not of Client.wg: the function may call Close, which waits for that
		}
	}
}

// tell calls the OnResume function. No update is returned until it has returned.
func (w *Watcher) tell() {
	for {
		w.mu.Lock()
		r := w.untold
		w.untold = nil
		if r == nil || w.err != nil {
			w.telling = false
			w.signal()
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
		w.opts.onResume(*r)
	}
}

func (w *Watcher) createdLocked(c *pb.Created) {
	if t := w.c.follower.Topology.Load(); t != nil && t.ClusterID != c.GetClusterId() {
		w.c.follower.Doubt(t) // this node was rebuilt, or the one that sent the map
		w.brokenLocked(fmt.Errorf("%w: %s, the shard map is of %s", outcome.ErrForeign, c.GetClusterId(), t.ClusterID))
		return
	}
	fresh := !w.asm.positioned && !w.asm.wantState && w.asm.token == nil
	if err := w.asm.start(c); err != nil {
		if errors.Is(err, ErrLineage) {
			w.endLocked(fmt.Errorf("watch %v: %w", w.asm.rng, err))
			return
		}
		w.brokenLocked(err)
		return
	}
	if !w.begun && w.asm.positioned {
		w.read = w.asm.at()
	}
	w.on.Started(w.id)
	w.c.starts.Add(1)
	w.c.pool.Praise(w.on.Addr())
	name := c.GetNode()
	if name == "" {
		name = w.on.Addr()
	}
	w.since, w.floors = time.Now(), nil
	if w.begun {
		w.resumedLocked(Resume{From: w.nodeName, To: name, Reason: w.reason, Revision: w.asm.position})
	} else {
		w.begun = true
		close(w.started)
	}
	w.nodeName, w.reason, w.lastErr = name, nil, nil
	if fresh {
		w.pushLocked(w.asm.at())
	}
}

func (w *Watcher) stepLocked(r *nodes.Response) {
	if p := r.GetProgress(); p.GetAge() != nil && p.GetRevision() > 0 && w.asm.steady() {
		if at := time.Now().Add(-p.GetAge().AsDuration()); at.After(w.freshAt) {
			w.freshAt = at
		}
	}
	u, whole, err := w.asm.step(r)
	switch {
	case errors.Is(err, ErrTooBig):
		w.endLocked(fmt.Errorf("watch %v: %w", w.asm.rng, err))
	case err != nil:
		w.brokenLocked(err)
	case whole:
		w.pushLocked(u)
	case w.asm.partial.Kind == KindBatch && len(w.queue) > 0 && w.bytes+w.asm.size > w.opts.buffer:
		w.pauseLocked() // never in a unit: the servers spend more on one than on a revision
	}
}

// pushLocked puts an update on the queue. When it does not fit, the watch
// leaves the stream with the update, and resumes once the queue is empty.
func (w *Watcher) pushLocked(u Update) {
	switch u.Kind {
	case KindProgress:
		if !w.opts.progress {
			return
		}
		u.FreshAt = w.freshAt
		if n := len(w.queue); n > 0 && w.queue[n-1].Kind == KindProgress {
			w.queue[n-1] = u
			return
		}
	case KindResync:
		w.freshAt = time.Time{} // it may belong to another history
		fallthrough
	case KindState, KindDelta, KindConflated:
		w.units.add(&u)
		w.c.count(&u)
		if f := w.c.cfg.Observer.Unit; f != nil {
			rng, kind, keys := w.asm.rng, u.Kind, len(u.KVs)+len(u.Deleted)
			w.observeLocked(func() { f(rng, kind, keys) })
		}
	case KindBatch:
	}
	w.queue = append(w.queue, u)
	w.bytes += u.size()
	if len(w.queue) > 1 && w.bytes > w.opts.buffer {
		w.pauseLocked()
	}
	w.signal()
}

func (w *Watcher) pauseLocked() {
	w.paused = true
	w.detachLocked(outcome.ErrFull, true)
	w.failures, w.tried = 0, nil // it is not the node's fault
}

// eventsOf returns the events of a message, which is decoded once for all its watches.
// Appending to them copies them.
func eventsOf(r *nodes.Response) []Event {
	decoded, _ := r.Decoded.([]Event)
	if n := len(r.GetEvents()); decoded == nil && n > 0 {
		decoded = make([]Event, n)
		for i, e := range r.GetEvents() {
			decoded[i] = eventFrom(e)
		}
		r.Decoded = decoded
	}
	return decoded[:len(decoded):len(decoded)]
}
