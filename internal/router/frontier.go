package router

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// A frontier is what the watches that are merged over the same caches share: a
// revision that many of them wait for is asked for once in each cache, and they
// are woken once, when all of the caches have come to it. Each by itself would
// be woken by one cache after the other, in vain by all but the last.
type frontier struct {
	caches []*cache.Cache
	users  int // guarded by the router's mu

	mu    sync.Mutex
	waits map[kv.Revision]*wait // guarded by mu; none is over
}

// wait is those who wait for a revision. It is the caches' waker.
type wait struct {
	f        *frontier
	revision kv.Revision
	missing  atomic.Int32 // caches that have not called
	places   []*place     // guarded by f.mu
	since    time.Time    // guarded by f.mu; when the first came that has something to deliver; zero: none has
	over     bool         // guarded by f.mu
	forget   []func()     // guarded by f.mu; takes back what the caches were asked for
}

// place is where a watch waits, for one revision at a time.
type place struct {
	waker cache.Waker
	holds bool  // there is something to deliver at that revision
	wait  *wait // guarded by the frontier's mu; nil: nowhere
	index int   // guarded by the frontier's mu; in wait.places
}

// frontier returns that of the caches, of which there is one at least. Leave it
// when it is no longer used.
func (r *Router) frontier(caches []*cache.Cache) *frontier {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.frontiers[caches[0]] {
		if slices.Equal(f.caches, caches) {
			f.users++
			return f
		}
	}
	f := &frontier{caches: caches, users: 1, waits: make(map[kv.Revision]*wait)}
	r.frontiers[caches[0]] = append(r.frontiers[caches[0]], f)
	return f
}

// leave ends a use of the frontier.
func (r *Router) leave(f *frontier) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.users--; f.users > 0 {
		return
	}
	first := f.caches[0]
	others := slices.DeleteFunc(r.frontiers[first], func(x *frontier) bool { return x == f })
	if r.frontiers[first] = others; len(others) == 0 {
		delete(r.frontiers, first)
	}
}

// await has p's waker called once all caches have come to revision or are
// retired; the sources are asked to get there. What p waited for before is
// forgotten.
func (f *frontier) await(p *place, revision kv.Revision) {
	f.mu.Lock()
	if p.wait != nil && p.wait.revision == revision {
		f.mu.Unlock()
		return
	}
	forget := f.takeLocked(p)
	w, ok := f.waits[revision]
	if !ok {
		w = &wait{f: f, revision: revision}
		f.waits[revision] = w
	}
	if p.holds && w.since.IsZero() {
		w.since = time.Now()
	}
	p.wait, p.index = w, len(w.places)
	w.places = append(w.places, p)
	f.mu.Unlock()
	callAll(forget)
	if !ok {
		w.ask()
	}
}

// waitsFor returns the revision that p waits for, or 0.
func (f *frontier) waitsFor(p *place) kv.Revision {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.wait == nil {
		return 0
	}
	return p.wait.revision
}

// forget takes p out.
func (f *frontier) forget(p *place) {
	f.mu.Lock()
	forget := f.takeLocked(p)
	f.mu.Unlock()
	callAll(forget)
}

// takeLocked takes p out. What it returns is to be called without the lock.
func (f *frontier) takeLocked(p *place) (forget []func()) {
	w := p.wait
	if w == nil {
		return nil
	}
	last := len(w.places) - 1
	w.places[p.index] = w.places[last]
	w.places[p.index].index = p.index
	w.places[last] = nil
	w.places = w.places[:last]
	p.wait = nil
	if last > 0 {
		return nil
	}
	return w.endLocked()
}

// endLocked is the end of the wait. What it returns is to be called without the
// lock.
func (w *wait) endLocked() (forget []func()) {
	w.over = true
	delete(w.f.waits, w.revision)
	return w.forget
}

// ask asks the caches for the revision.
func (w *wait) ask() {
	caches := w.f.caches
	w.missing.Store(int32(len(caches))) //nolint:gosec // the shards of a range
	forget := make([]func(), 0, len(caches))
	for _, c := range caches {
		forget = append(forget, c.WakeAt(w.revision, w))
	}
	w.f.mu.Lock()
	over := w.over
	w.forget = forget
	w.f.mu.Unlock()
	if over { // meanwhile
		callAll(forget)
	}
}

// Wake implements cache.Waker: a cache has come to the revision, or is retired. Each
// of the caches calls it once. One that is retired wakes its watchers by itself.
func (w *wait) Wake() {
	if w.missing.Add(-1) > 0 {
		return
	}
	w.f.mu.Lock()
	if w.over {
		w.f.mu.Unlock()
		return
	}
	_ = w.endLocked() // all have been called
	places := w.places
	w.places = nil
	for _, p := range places {
		p.wait = nil
	}
	w.f.mu.Unlock()
	for _, p := range places {
		p.waker.Wake()
	}
}

// HoldingBack returns for how long watches over several of the caches have been
// waiting for one of them to come to a revision that others have brought; caches
// that hold nobody back are not in it.
func (r *Router) HoldingBack() map[*cache.Cache]time.Duration {
	out := make(map[*cache.Cache]time.Duration)
	for _, w := range r.held() {
		for _, c := range w.caches {
			if reached, _ := c.Reached(w.revision); !reached {
				out[c] = max(out[c], time.Since(w.since))
			}
		}
	}
	return out
}

// heldUnit is a revision that is held back.
type heldUnit struct {
	caches   []*cache.Cache // that have to come to it
	revision kv.Revision
	since    time.Time
}

func (r *Router) held() (out []heldUnit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, list := range r.frontiers {
		for _, f := range list {
			f.mu.Lock()
			for revision, w := range f.waits {
				if !w.since.IsZero() {
					out = append(out, heldUnit{caches: f.caches, revision: revision, since: w.since})
				}
			}
			f.mu.Unlock()
		}
	}
	return out
}

func callAll(list []func()) {
	for _, f := range list {
		f()
	}
}
