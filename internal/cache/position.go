package cache

import (
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// Position is the progress of a watcher, and of its cache.
type Position struct {
	// Revision is the revision up to which Next has returned all events.
	Revision kv.Revision
	// Newest is the revision up to which the cache has all events.
	Newest kv.Revision
	// Since is the time at which the oldest batch that Next has yet to read was
	// received; zero when there is none.
	Since time.Time
}

// Position returns the progress of the watcher, like Progress. Unlike Progress, any
// goroutine may call it: it changes nothing.
func (w *Watcher) Position() Position {
	settled := w.c.settled.Load().progress // before the state, as in Progress
	state := w.state.Load()
	if state&idleBit != 0 {
		return Position{Revision: settled, Newest: settled}
	}
	v := w.c.view.Load()
	p := Position{Revision: v.progress, Newest: v.progress}
	switch pos := state >> 1; {
	case pos < v.win.first:
		at := v.win.passedBy(pos)
		p.Revision, p.Since = at.reached, at.received
	case pos < v.win.next:
		e := v.win.at(pos)
		p.Revision, p.Since = e.Revision-1, e.Received
	}
	return p
}

// Batch returns the batch of a revision, in all of the cache's range; nil when there
// is none in the window.
func (w *Watcher) Batch(revision kv.Revision) *kv.Batch {
	v := w.c.view.Load()
	if pos := v.win.seek(revision); pos < v.win.next {
		if e := v.win.at(pos); e.Revision == revision {
			return e.Batch
		}
	}
	return nil
}

// Received returns the time at which the first batch at or above revision was
// received; zero when there is none yet.
func (w *Watcher) Received(revision kv.Revision) time.Time {
	v := w.c.view.Load()
	if pos := v.win.seek(revision); pos < v.win.next {
		return v.win.at(pos).Received
	}
	return time.Time{}
}

// Quiet returns a part of the range's history without events: after since and up to
// progress, the cache's progress. A revision whose events are not known counts as an
// event. So a follower that has all events up to since, from this cache or another, has
// all events up to progress.
func (c *Cache) Quiet() (since, progress kv.Revision) {
	v := c.view.Load()
	return v.changed, v.progress
}
