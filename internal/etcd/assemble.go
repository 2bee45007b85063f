package etcd

import (
	"errors"
	"fmt"
	"time"

	"github.com/shardwatch/shardwatch/internal/etcd/etcdconn"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// assembly turns the responses of one watch into whole revisions. It is a
// value without a clock: responses in, updates out.
//
// The promises of etcd, in etcd 3.7.3 (and 3.5.33, 3.6.14 alike):
//
//   - The events of a response are ordered by revision, and without fragments a
//     response never ends inside a revision. A synced watch gets one response per
//     revision (storage/mvcc/watchable_store.go, notify). A watch that catches up gets
//     up to 1,000 revisions at once; the cut is before the first event of the next
//     revision (watcher_group.go, eventBatch.add).
//   - Fragments cut a response by size, between any two events, also inside a revision
//     (api/v3rpc/watch.go, sendFragments). All but the last have the fragment flag. One
//     loop sends all responses of a stream, so nothing comes in between.
//   - Responses that waited for the announcement of the watch are sent after it, never
//     in fragments.
//   - etcd sends fragments only on request, and they are expensive; see position.
//   - The header's revision may be ahead of the events: during a catch-up it is etcd's
//     current one (syncWatchers; seen: 5001 on events 2..1001). It is progress only
//     without events, and not on an announcement or a cancel.
//   - Requested progress carries the watch ID -1 (progressAll), unrequested progress
//     that of the watch. Both go through the channel of the events, after them. But -1
//     does not wait for the announcement as events do: a reader that asks before it can
//     get progress ahead of the events it covers. We ask after it.
//
// Invariant: returned revisions strictly increase, and all of them are > done.
type assembly struct {
	from kv.Revision // the first revision of the watch; events below are ignored
	done kv.Revision // everything up to here has been returned

	announced bool  // etcd has created the watch
	id        int64 // its ID
	begun     bool  // etcd still has everything from the first revision on: it is not compacted

	open      kv.Revision // the revision that pending belongs to; 0: none
	pending   []kv.Event  // events of open, which may have more
	fragments bool        // another fragment of the last response follows

	out []kv.Update // the last result of add
}

func newAssembly(from kv.Revision) *assembly { return &assembly{from: from, done: from - 1} }

// errProtocol reports that etcd broke one of its promises.
var errProtocol = errors.New("etcd broke the watch protocol")

// anyWatch is the watch ID of answers that concern every watch of a stream
// (clientv3.InvalidWatchID).
const anyWatch = -1

// add takes the next response, complete at now, and returns the updates that it
// completes, valid until the next call. A watch that etcd ends is an error: a
// *kv.CompactedError when its first revision is compacted, etcdconn.ErrToken when a
// login would help.
func (a *assembly) add(r *watchResponse, now time.Time) ([]kv.Update, error) {
	a.reset()
	if r.canceled {
		return nil, a.ended(r)
	}
	if r.created {
		if a.announced {
			return nil, fmt.Errorf("%w: a second watch was announced", errProtocol)
		}
		a.announced, a.id = true, r.watch
		// A watch from beyond the current revision does not catch up, and nothing of it
		// can be compacted.
		a.begun = a.from > r.revision
		return nil, nil
	}
	if !a.announced || (r.watch != a.id && r.watch != anyWatch) {
		return nil, fmt.Errorf("%w: a response to unknown watch %d", errProtocol, r.watch)
	}
	if len(r.events) == 0 && !r.fragment && !a.fragments {
		a.progress(r.revision)
		return a.out, nil
	}
	if err := a.take(r, now); err != nil {
		return nil, err
	}
	return a.out, nil
}

// reused is the capacity up to which slices are reused for the next response. The data
// that they point to lives until then.
const reused = 256

// reset drops the updates that were returned.
func (a *assembly) reset() {
	if clear(a.out); cap(a.out) > reused {
		a.out = nil
	}
	a.out = a.out[:0]
}

// progress handles a response without events.
func (a *assembly) progress(revision kv.Revision) {
	a.begun = true
	if revision > a.done {
		a.done = revision
		a.out = append(a.out, kv.Update{Kind: kv.UpdateProgress, Revision: revision})
	}
}

// take handles events. A revision is complete when an event of a later one comes, or
// when the last fragment ends.
func (a *assembly) take(r *watchResponse, now time.Time) error {
	a.begun = true
	for rest := r.events; len(rest) > 0; {
		revision := rest[0].KV.ModRevision()
		n := 1
		for n < len(rest) && rest[n].KV.ModRevision() == revision {
			n++
		}
		events := rest[:n]
		rest = rest[n:]
		switch {
		case revision < a.from:
			continue // we did not ask for it
		case revision <= a.done || revision < a.open:
			return fmt.Errorf("%w: an event of revision %d follows those of %d", errProtocol, revision, max(a.done, a.open))
		case revision > a.open:
			a.flush(now)
			a.open = revision
		}
		a.pending = append(a.pending, events...)
	}
	a.fragments = r.fragment
	if !a.fragments {
		a.flush(now)
	}
	return nil
}

func (a *assembly) flush(now time.Time) {
	if len(a.pending) == 0 {
		return
	}
	a.out = append(a.out, kv.Update{
		Kind: kv.UpdateBatch, Revision: a.open,
		Batch: kv.Batch{Revision: a.open, Events: a.pending, Received: now},
	})
	a.done, a.open, a.pending = a.open, 0, nil
}

// ended returns the reason for which etcd ended the watch.
//
// A watch may begin at the compact revision itself: it is cancelled when it
// needs a revision below (watcher_group.go, chooseAll), and compaction keeps
// the events at its own revision, deletes included (key_index.go,
// doCompact). So the compact revision is the floor.
func (a *assembly) ended(r *watchResponse) error {
	if r.compacted != 0 {
		return &kv.CompactedError{Requested: a.done + 1, Floor: r.compacted}
	}
	reason := r.reason
	if etcdconn.WantsLogin(reason) {
		return fmt.Errorf("%w: %s", etcdconn.ErrToken, reason)
	}
	if reason == "" {
		reason = "no reason given"
	}
	return fmt.Errorf("etcd cancelled the watch: %s", reason)
}
