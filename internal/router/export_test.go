package router

import "github.com/shardwatch/shardwatch/internal/kv"

// Shared returns the numbers of merged windows, of their users, and of the watches that
// currently read them.
func (r *Router) Shared() (windows, users, readers int) {
	for _, m := range r.allMerged() {
		readers += m.window.Status().Watchers
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, list := range r.windows {
		if len(list) == 0 {
			windows++ // an empty list still has an entry
		}
		for _, m := range list {
			windows, users = windows+1, users+m.users
		}
	}
	return windows, users, readers
}

// Joined reports whether the watch reads a merged window.
func (w *Watch) Joined() bool { return w.place.merged != nil && w.place.one != nil }

// ShortenMerged bounds merged windows to very few revisions.
func (r *Router) ShortenMerged() { r.perWindow = 1 }

// MergeAlone makes watches over several shards merge separately.
func (r *Router) MergeAlone() { r.ended = true }

// LookAlone is the first half of Next of a watch that merges separately: it returns the next revision if
// all shards have reached it. WaitAlone is the second half if there was none: it reports whether the
// watch waits for a revision.
func (w *Watch) LookAlone() (kv.Revision, error) {
	revision, _, err := w.place.alone.next(nil)
	return revision, err
}

// WaitAlone is described at LookAlone.
func (w *Watch) WaitAlone() bool { return w.place.alone.waits() }

// MaxMerged is the maximum number of merged windows.
const MaxMerged = maxMerged

// Fetches returns the number of shared fetches, and the number of shards with big
// fetches in progress.
func (r *Router) Fetches() (live, places int) {
	r.fetches.mu.Lock()
	defer r.fetches.mu.Unlock()
	return len(r.fetches.live), len(r.fetches.places)
}

// Earlier computes Position's Since.
var Earlier = earlier
