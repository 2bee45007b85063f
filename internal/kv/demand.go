package kv

import (
	"slices"
	"sync"
)

// Demand carries requests for progress from a follower to its source: Ask calls the source
// directly, through all layers between the two. It keeps the highest requested revision for a
// source that begins later. The zero Demand is ready to use, and a nil one has no requests. All
// methods may be called from any goroutine.
type Demand struct {
	mu      sync.Mutex
	highest Revision
	sources []*func(Revision) // guarded by mu; the stored slice is never changed, only replaced
}

// Ask makes the source report progress of revision soon. It does not block.
func (d *Demand) Ask(revision Revision) {
	d.mu.Lock()
	d.highest = max(d.highest, revision)
	sources := d.sources
	d.mu.Unlock()
	for _, ask := range sources {
		(*ask)(revision)
	}
}

// Serve calls ask with each requested revision, and at once with the highest one so far if it is
// above after, the follower's position. ask must not block. A call of ask may still be running
// when end returns.
func (d *Demand) Serve(after Revision, ask func(Revision)) (end func()) {
	if d == nil {
		return func() {}
	}
	d.mu.Lock()
	d.sources = append(slices.Clip(d.sources), &ask)
	highest := d.highest
	d.mu.Unlock()
	if highest > max(0, after) {
		ask(highest)
	}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.sources = slices.DeleteFunc(slices.Clone(d.sources), func(f *func(Revision)) bool { return f == &ask })
	}
}
