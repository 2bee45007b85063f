package replica

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// run is one call of Follow.
type run struct {
	f       *Failover
	req     kv.FollowRequest // the first request; see request
	yield   func(kv.Update, error) bool
	began   time.Time
	updates int
	// from is the first missing revision; 0: all are missing. The following goroutine
	// advances it, and the scout reads it.
	from atomic.Int64

	// stuck is the first missing revision when a source was left as stale; 0: none was.
	// Until it has come, a node is followed only if it sends it at once.
	stuck int64
	// rescuing: a node is followed for events that the candidates no longer have.
	rescuing bool
	// gone is when the candidates first reported that the missing events are compacted;
	// zero if they have not.
	gone time.Time
}

// request returns the request for the events that are missing now.
func (r *run) request() kv.FollowRequest {
	req := r.req
	req.From = kv.Revision(r.from.Load())
	return req
}

// position returns the revision up to which everything has come.
func (r *run) position() kv.Revision { return max(0, kv.Revision(r.from.Load())-1) }

// advance notes that everything up to revision has come.
func (r *run) advance(revision kv.Revision) {
	if next := int64(revision) + 1; next > r.from.Load() {
		r.from.Store(next)
	}
	r.updates++
}

// hungFor is how long a silent candidate is passed over, unless the scout hears from it
// earlier, and how long a stale candidate is.
const hungFor = 3 * time.Second

// passedOver has the candidates that are passed over, and until when. It outlives a
// Follow.
type passedOver struct {
	mu    sync.Mutex
	until map[string]time.Time // guarded by mu
}

func (h *passedOver) has(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Now().Before(h.until[name])
}

func (h *passedOver) add(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.until == nil {
		h.until = make(map[string]time.Time)
	}
	h.until[name] = time.Now().Add(hungFor)
}

func (h *passedOver) remove(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.until, name)
}

func (h *passedOver) clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.until)
}

// warm tries to take state and window from a node that has them. It returns false when
// the consumer has stopped.
func (r *run) warm(ctx context.Context) bool {
	req := r.req
	req.Want, req.Idle, req.Progress = nil, nil, nil // the stream ends with the state
	for _, c := range r.f.Warm() {
		if r.avoids(c) || r.f.hung.has(c.Name) || r.f.stale.has(c.Name) {
			continue
		}
		more, ready := true, false
		r.f.asks(c.Name)
		var revision kv.Revision
		for u, err := range c.Source.Follow(ctx, req) {
			if err != nil {
				r.f.Logger.Debug("not taking the state from this node", "peer", c.Name, "range", r.req.Range, "error", err)
				break
			}
			if u.Kind == kv.UpdateBegin {
				if revision = u.Revision; r.req.Held != nil && revision <= r.req.HeldAt {
					break // the node is at our revision, and cannot continue either
				}
			}
			ready = u.Kind == kv.UpdateReady
			if more = r.yield(u, nil); !more || ready {
				break
			}
		}
		switch {
		case !more || ctx.Err() != nil:
			return false
		case ready:
			r.from.Store(int64(revision) + 1)
			r.f.notice(Notice{What: StateTaken, Source: c.Name, Began: r.began, Revision: revision}, r.req.Range)
			return true
		}
	}
	return true
}

// patience returns how long to wait for a node that is not ready.
func (r *run) patience() time.Duration {
	if r.req.Held != nil {
		return rescuePatience
	}
	return patience
}

// avoids reports whether c must not be followed: it was rejected, or the state is
// needed but must not come from c.
func (r *run) avoids(c Candidate) bool {
	return r.f.rejects(c.Name) || r.from.Load() == 0 && slices.Contains(r.f.Avoid, c.Name)
}

// round tries the candidates in order and follows the first usable one until it is
// lost. It returns false when Follow must end.
func (r *run) round(ctx context.Context) bool {
	var gone verdict
	for _, c := range r.f.Candidates() {
		if ctx.Err() != nil {
			return false
		}
		switch {
		case r.f.hung.has(c.Name), r.avoids(c):
			gone.open = true
			continue
		case r.f.stale.has(c.Name):
			continue // it answers, and has nothing that is missing
		case c.Away && gone.compacted != nil && r.from.Load() > 0:
			// A node that reads etcd no longer has the missing events, and etcd does not
			// answer this node: ask the other nodes first.
			switch r.rescue(ctx) {
			case rescued:
				return true
			case ended:
				return false
			case lost, unanswered:
			}
		}
		before := r.updates
		last := r.follow(ctx, c, true)
		switch err := last.err; {
		case !last.more:
			return false
		case errors.Is(err, ErrSilent):
			r.f.hung.add(last.Name)
		case errors.Is(err, ErrStale):
			r.f.stale.add(last.Name)
			r.stuck = r.from.Load()
		case errors.Is(err, errBetter):
			r.f.hung.clear()
			return true
		}
		if last.got && r.updates > before {
			// The source worked for a while: start again with the best.
			r.gone = time.Time{}
			if last.err != nil && ctx.Err() == nil {
				r.f.notice(Notice{What: leftWith(last.err), Source: last.Name, Err: last.err, Revision: r.position()}, r.req.Range)
			}
			return true
		}
		err := last.err
		// A source that begins and then sends no update counts as one that does not
		// begin: continue with the next candidate, or this source would block the round.
		if errors.Is(err, kv.ErrOtherHistory) {
			r.yield(kv.Update{}, err) // the consumer reports it
			return false
		}
		gone.add(c, err)
		if err != nil {
			r.f.Logger.Debug("source rejected", "source", c.Name, "range", r.req.Range, "error", err)
		}
		if r.from.Load() == 0 && notReady(err) && !gone.refused && time.Since(r.began) < r.patience() {
			// It is alive and loading: wait, so that not every replica lists the same
			// keys at etcd. It cannot load what a better candidate refuses.
			return true
		}
	}
	return r.withoutSource(ctx, gone.err())
}

// withoutSource handles a round without a usable candidate. If all have compacted the
// missing events, it reads them from another node, or ends. It returns false when Follow
// must end.
func (r *run) withoutSource(ctx context.Context, compacted *kv.CompactedError) bool {
	if compacted == nil || r.from.Load() == 0 {
		return true
	}
	if r.gone.IsZero() {
		r.gone = time.Now()
	}
	switch r.rescue(ctx) {
	case rescued:
		return true
	case unanswered:
		if time.Since(r.gone) < rescuePatience {
			return true
		}
	case ended:
		return false
	case lost:
	}
	r.yield(kv.Update{}, compacted)
	return false
}
