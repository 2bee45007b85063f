package etcd

import (
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/mutant"
)

// assembly turns the responses of one watch into whole revisions. It is a
// value without a clock: responses in, updates out.
//
// What etcd promises, in etcd 3.7.3 (and 3.5.33, 3.6.14 alike):
//
//   - The events of a response are ordered by revision, and without fragments
//     a response never ends inside a revision. A synced watch gets one response
//     per revision (storage/mvcc/watchable_store.go, notify). One that catches
//     up gets up to 1,000 revisions at once; the cut is made before the first
//     event of the next revision (watcher_group.go, eventBatch.add).
//   - Fragments cut a response by size, anywhere between two events, so inside
//     a revision too (api/v3rpc/watch.go, sendFragments). All but the last say
//     so. One loop sends all of a stream: nothing comes in between.
//   - Responses that waited for the watch to be announced are sent behind the
//     announcement, never in fragments.
//   - Fragments must be asked for, and are dear; see position.
//   - The header's revision may be ahead of the events: it is etcd's current
//     one while catching up (syncWatchers; seen: 5001 on events 2..1001). It is
//     progress only without events, and not on an announcement or a cancel.
//   - Progress on request carries the watch ID -1 (progressAll), on etcd's own
//     accord the watch's. Both go through the channel of the events, behind
//     them. But -1 does not wait for the announcement as events do: whoever
//     asks before it can be told of progress ahead of the events it covers. We
//     ask after it.
//
// Invariant: revisions given out strictly increase, and all of them are > done.
type assembly struct {
	from kv.Revision // the watch began here: nothing below it is wanted
	done kv.Revision // everything up to here has been given out

	announced bool  // etcd has created the watch
	id        int64 // its ID
	begun     bool  // etcd holds all that was asked for: it is not compacted

	open      kv.Revision // the revision that pending belongs to; 0: none
	pending   []kv.Event  // events of open, which may have more
	fragments bool        // the last response has another fragment behind it

	events, bytes int // counts
}

func newAssembly(from kv.Revision) *assembly { return &assembly{from: from, done: from - 1} }

// errProtocol says that etcd did what it promises not to do.
var errProtocol = errors.New("etcd broke the watch protocol")

// anyWatch is the watch ID of answers that concern every watch of a stream
// (clientv3.InvalidWatchID).
const anyWatch = -1

// add takes the next response, complete at now, and returns what it makes
// known. A watch that etcd ends is an error: a *kv.CompactedError when it
// begins at what is compacted, errToken when a login would help.
func (a *assembly) add(r *etcdserverpb.WatchResponse, now time.Time) ([]kv.Update, error) {
	if r.GetCanceled() {
		return nil, a.ended(r)
	}
	if r.GetCreated() {
		if a.announced {
			return nil, fmt.Errorf("%w: a second watch was announced", errProtocol)
		}
		a.announced, a.id = true, r.GetWatchId()
		// A watch from beyond the current revision has nothing to catch up
		// with and nothing that could be compacted.
		a.begun = a.from > kv.Revision(r.GetHeader().GetRevision())
		return nil, nil
	}
	if id := r.GetWatchId(); !a.announced || (id != a.id && id != anyWatch) {
		return nil, fmt.Errorf("%w: a response to watch %d, which is not ours", errProtocol, id)
	}
	if len(r.GetEvents()) == 0 && !r.GetFragment() && !a.fragments {
		return a.progress(kv.Revision(r.GetHeader().GetRevision())), nil
	}
	return a.take(r, now)
}

// progress handles a response without events.
func (a *assembly) progress(revision kv.Revision) []kv.Update {
	a.begun = true
	if revision <= a.done {
		return nil
	}
	a.done = revision
	return []kv.Update{{Kind: kv.UpdateProgress, Revision: revision}}
}

// take handles events. A revision is complete when an event of a later one
// comes, or the end of the last fragment.
func (a *assembly) take(r *etcdserverpb.WatchResponse, now time.Time) (out []kv.Update, err error) {
	a.begun = true
	for _, e := range r.GetEvents() {
		revision := kv.Revision(e.GetKv().GetModRevision())
		switch {
		case revision < a.from:
			continue // we did not ask for it
		case revision <= a.done || revision < a.open:
			return nil, fmt.Errorf("%w: an event of revision %d behind those of %d", errProtocol, revision, max(a.done, a.open))
		case revision > a.open:
			out = a.flush(out, now)
			a.open = revision
		}
		a.events++
		a.bytes += len(e.GetKv().GetKey()) + len(e.GetKv().GetValue())
		a.pending = append(a.pending, event(e))
	}
	a.fragments = r.GetFragment()
	if !a.fragments || mutant.On("fragment-applied-early") {
		out = a.flush(out, now)
	}
	if mutant.On("watermark-from-header") {
		a.done = max(a.done, kv.Revision(r.GetHeader().GetRevision()))
	}
	return out, nil
}

func (a *assembly) flush(out []kv.Update, now time.Time) []kv.Update {
	if len(a.pending) == 0 {
		return out
	}
	out = append(out, kv.Update{
		Kind: kv.UpdateBatch, Revision: a.open,
		Batch: kv.Batch{Revision: a.open, Events: a.pending, Received: now},
	})
	a.done, a.open, a.pending = a.open, 0, nil
	return out
}

// ended returns why etcd ended the watch.
//
// A watch may begin at the compact revision itself: it is cancelled when it
// needs a revision below (watcher_group.go, chooseAll), and compaction keeps
// what happened at its own revision, deletes included (key_index.go,
// doCompact). So the compact revision is the floor.
func (a *assembly) ended(r *etcdserverpb.WatchResponse) error {
	if floor := r.GetCompactRevision(); floor != 0 {
		return &kv.CompactedError{Requested: a.done + 1, Floor: kv.Revision(floor)}
	}
	reason := r.GetCancelReason()
	if wantsLogin(reason) {
		return fmt.Errorf("%w: %s", errToken, reason)
	}
	if reason == "" {
		reason = "no reason given"
	}
	return fmt.Errorf("etcd cancelled the watch: %s", reason)
}

func event(e *mvccpb.Event) kv.Event {
	out := kv.Event{Type: kv.Put}
	if e.GetType() == mvccpb.Event_DELETE {
		out.Type = kv.Delete
		out.KV = kv.NewKeyValue(kv.Fields{Key: e.GetKv().GetKey(), ModRevision: kv.Revision(e.GetKv().GetModRevision())})
	} else {
		out.KV = keyValue(e.GetKv())
	}
	if prev := e.GetPrevKv(); prev != nil {
		out.Prev = keyValue(prev)
	}
	return out
}
