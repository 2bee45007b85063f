package cachetest

import (
	"context"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// Start is the revision of a new history, with no keys.
const Start kv.Revision = 10

// Script is a scripted event log in place of etcd: all batches, one for each revision. Create it
// with New.
type Script struct {
	mu      sync.Mutex
	batches []kv.Batch    // guarded by mu; of revision Start+1, Start+2, …
	changed chan struct{} // guarded by mu; closed with the next revision
	down    error         // guarded by mu; the error of Revision, if it fails
	floor   kv.Revision   // guarded by mu; the oldest revision that new caches get
}

// New returns a history without events.
func New() *Script { return &Script{changed: make(chan struct{}), floor: Start + 1} }

// Op is a change of one key: a delete when Value is nil.
type Op struct {
	Key   string
	Value []byte
}

// Put returns the Op that sets a key.
func Put(key, value string) Op { return Op{Key: key, Value: []byte(value)} }

// Delete returns the Op that deletes a key.
func Delete(key string) Op { return Op{Key: key} }

// Commit makes all changes at one revision and returns it. Unlike in etcd, the
// delete of a key that does not exist is an event. Keys must differ.
func (h *Script) Commit(ops ...Op) kv.Revision {
	h.mu.Lock()
	defer h.mu.Unlock()
	revision := Start + kv.Revision(len(h.batches)) + 1
	b := kv.Batch{Revision: revision, Received: time.Now()}
	for _, op := range ops {
		e := kv.Event{Type: kv.Put, KV: kv.NewKeyValue(kv.Fields{
			Key: []byte(op.Key), Value: op.Value, CreateRevision: revision, ModRevision: revision, Version: 1,
		})}
		if op.Value == nil {
			e = kv.Event{Type: kv.Delete, KV: kv.NewKeyValue(kv.Fields{Key: []byte(op.Key), ModRevision: revision})}
		}
		b.Events = append(b.Events, e)
	}
	h.batches = append(h.batches, b)
	close(h.changed)
	h.changed = make(chan struct{})
	return revision
}

// Restore removes all revisions after one, as a restore of etcd from a snapshot does. Caches that have
// received them keep them.
func (h *Script) Restore(to kv.Revision) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.batches = slices.Clip(h.batches[:to-Start]) // an append must not overwrite batches in use
}

// Now returns the newest revision.
func (h *Script) Now() kv.Revision {
	now, _ := h.watch()
	return now
}

// watch returns the newest revision, and a channel that is closed with the next.
func (h *Script) watch() (kv.Revision, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return Start + kv.Revision(len(h.batches)), h.changed
}

// Revision implements router.Clock.
func (h *Script) Revision(context.Context) (kv.Revision, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return Start + kv.Revision(len(h.batches)), h.down
}

// Fail makes Revision fail with err; nil ends that.
func (h *Script) Fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.down = err
}

// Forget sets the oldest revision that caches get when they start from now on.
func (h *Script) Forget(below kv.Revision) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.floor = below
}

// past returns the floor and the older batches for a cache that starts at a revision.
func (h *Script) past(r kv.Range, at kv.Revision) (kv.Revision, []kv.Batch) {
	h.mu.Lock()
	floor := min(h.floor, at+1)
	h.mu.Unlock()
	return floor, h.Batches(r, floor-1, at)
}

// between returns all batches after one revision and up to another. Both may be
// outside the history.
func (h *Script) between(after, upTo kv.Revision) []kv.Batch {
	h.mu.Lock()
	defer h.mu.Unlock()
	newest := kv.Revision(len(h.batches))
	begin := min(max(after-Start, 0), newest)
	end := min(max(upTo-Start, begin), newest)
	return h.batches[begin:end]
}

// Batches returns the batches with events of r after one revision and up to another.
// Both may be outside the history.
func (h *Script) Batches(r kv.Range, after, upTo kv.Revision) []kv.Batch {
	var out []kv.Batch
	for _, b := range h.between(after, upTo) {
		part := kv.Batch{Revision: b.Revision, Received: b.Received}
		for i := range b.Events {
			if r.ContainsBytes(b.Events[i].KV.Key()) {
				part.Events = append(part.Events, b.Events[i]) // a copy: caches set Prev
			}
		}
		if len(part.Events) > 0 {
			out = append(out, part)
		}
	}
	return out
}

// State returns the keys of r at a revision, in order.
func (h *Script) State(r kv.Range, at kv.Revision) []*kv.KeyValue {
	last := make(map[string]*kv.KeyValue)
	for _, b := range h.Batches(r, Start, at) {
		for i := range b.Events {
			if key := string(b.Events[i].KV.Key()); b.Events[i].Type == kv.Delete {
				delete(last, key)
			} else {
				last[key] = b.Events[i].KV
			}
		}
	}
	var out []*kv.KeyValue
	for _, item := range last {
		out = append(out, item)
	}
	slices.SortFunc(out, func(a, b *kv.KeyValue) int { return strings.Compare(string(a.Key()), string(b.Key())) })
	return out
}

// Gate bounds the revisions that a source delivers. The zero Gate has no bound.
type Gate struct {
	mu      sync.Mutex
	upTo    kv.Revision   // guarded by mu; 0: no bound
	changed chan struct{} // guarded by mu
	closed  bool          // guarded by mu: not even the state
}

// Limit lets the source deliver up to a revision; 0: no bound.
func (g *Gate) Limit(upTo kv.Revision) { g.set(upTo, false) }

// Close makes the source deliver nothing, not even the state.
func (g *Gate) Close() { g.set(0, true) }

func (g *Gate) set(upTo kv.Revision, closed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.upTo, g.closed = upTo, closed
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

func (g *Gate) get(now kv.Revision) (upTo kv.Revision, closed bool, changed <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.changed == nil {
		g.changed = make(chan struct{})
	}
	if g.upTo > 0 {
		now = min(now, g.upTo)
	}
	return now, g.closed, g.changed
}

// Source returns a cache.Source of the history behind a gate.
func (h *Script) Source(g *Gate) *Source { return &Source{h: h, gate: g} }

// Source is a cache.Source of the history up to the gate's limit. It reports progress only on
// request, as etcd does.
type Source struct {
	h      *Script
	gate   *Gate
	looked func(at time.Time, revision kv.Revision) (behind bool) // reports etcd's revision to the cache; may be nil
}

// Follow implements cache.Source.
func (s *Source) Follow(ctx context.Context, req kv.FollowRequest) iter.Seq2[kv.Update, error] {
	return func(yield func(kv.Update, error) bool) {
		at := req.From - 1
		begun := false
		var wanted kv.Revision
		var asked atomic.Int64 // the highest requested revision
		rung := make(chan struct{}, 1)
		defer req.Want.Serve(at, func(revision kv.Revision) {
			for old := asked.Load(); int64(revision) > old && !asked.CompareAndSwap(old, int64(revision)); old = asked.Load() {
			}
			select {
			case rung <- struct{}{}:
			default:
			}
		})()
		for {
			now, changed := s.h.watch()
			upTo, closed, moved := s.gate.get(now)
			if !closed && !begun {
				begun = true
				begin := kv.Update{Kind: kv.UpdateBegin, Revision: at}
				var state []*kv.KeyValue
				var past []kv.Batch
				if at < 0 {
					at = upTo
					begin.Revision = at
					begin.Floor, past = s.h.past(req.Range, at)
					state = s.h.State(req.Range, at)
				}
				if !yield(begin, nil) || state != nil && !yield(kv.Update{Kind: kv.UpdateState, KVs: state}, nil) {
					return
				}
				for _, b := range past {
					if !yield(kv.Update{Kind: kv.UpdateHistory, Revision: b.Revision, Batch: b}, nil) {
						return
					}
				}
				if !yield(kv.Update{Kind: kv.UpdateReady}, nil) {
					return
				}
			}
			if begun && upTo > at {
				for _, b := range s.h.Batches(req.Range, at, upTo) {
					at = b.Revision
					if !yield(kv.Update{Kind: kv.UpdateBatch, Revision: b.Revision, Batch: b}, nil) {
						return
					}
				}
			}
			if begun && wanted > 0 && upTo >= min(wanted, at+1) { // etcd's answer counts, too
				at = max(at, upTo)
				if upTo >= wanted {
					wanted = 0
				}
				if s.looked != nil {
					s.looked(time.Now(), at)
				}
				if !yield(kv.Update{Kind: kv.UpdateProgress, Revision: at}, nil) {
					return
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-changed:
			case <-moved:
			case <-rung:
				wanted = max(wanted, kv.Revision(asked.Load()))
			}
		}
	}
}
