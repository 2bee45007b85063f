package client

import (
	"errors"
	"fmt"
	"time"
)

// WatchOption changes what [Client.Watch] delivers.
type WatchOption interface{ watch(o *watchOptions) }

// MirrorOption is a [WatchOption] that mirrors (package mirror) and follow.Run take,
// too.
type MirrorOption interface {
	WatchOption
	mirror()
}

type watchOption func(*watchOptions)

func (f watchOption) watch(o *watchOptions) { f(o) }

type mirrorOption struct{ watchOption }

func (mirrorOption) mirror() {}

type watchOptions struct {
	from     int64
	history  history
	behind   bool // from follows from a position
	token    []byte
	state    bool
	noResync bool
	prevKV   bool
	progress bool
	conflate time.Duration
	maxStale time.Duration
	buffer   int
	onResume func(Resume)
}

func (o *watchOptions) validate() error {
	n := 0
	for _, set := range []bool{o.from != 0, o.token != nil, o.state} {
		if set {
			n++
		}
	}
	var errs []error
	if n > 1 {
		errs = append(errs, fmt.Errorf("%w: FromRevision, FromToken and WithState exclude each other", ErrInvalid))
	}
	if o.token != nil && len(o.token) == 0 && o.noResync {
		errs = append(errs, fmt.Errorf("%w: the resume token is empty, because the watch that gave it had not started: "+
			"start with WithState, or without WithoutResync", ErrInvalid))
	}
	if o.behind && o.from <= 1 {
		errs = append(errs, fmt.Errorf("%w: FromPosition needs a revision, %d is none: the watch had not started", ErrInvalid, o.from-1))
	} else if o.from < 0 {
		errs = append(errs, fmt.Errorf("%w: start revision %d is negative", ErrInvalid, o.from))
	}
	if o.conflate != 0 && (o.conflate < 10*time.Millisecond || o.conflate > time.Hour) {
		errs = append(errs, fmt.Errorf("%w: conflation (%v) must be between 10ms and 1h", ErrInvalid, o.conflate))
	}
	if o.conflate != 0 && (o.noResync || o.prevKV) {
		errs = append(errs, fmt.Errorf("%w: WithConflation excludes WithoutResync and WithPrevKV: it merges events into units", ErrInvalid))
	}
	if o.maxStale != 0 && o.maxStale < 100*time.Millisecond {
		errs = append(errs, fmt.Errorf("%w: max staleness (%v) must be at least 100ms", ErrInvalid, o.maxStale))
	}
	if o.buffer <= 0 {
		errs = append(errs, fmt.Errorf("%w: a buffer of %d bytes holds nothing", ErrInvalid, o.buffer))
	}
	return errors.Join(errs...)
}

// FromRevision starts at a revision, which is the first one delivered. It may
// lie in the future. Without it, and without [WithState] or [FromToken], a
// watch starts at the revision etcd has when the request arrives. It does not say
// which history the revision belongs to, and no node checks it: to resume, use
// [FromPosition] or [FromToken].
func FromRevision(revision int64) WatchOption {
	return watchOption(func(o *watchOptions) { o.from = revision })
}

// FromPosition resumes after a position, of an [Update], a [Listing] or a
// [GetResult]: the next revision is the first one delivered. If the history is
// another one by now, because etcd was restored or another cluster answers, the
// watch begins with a resync ([WithoutResync]: it ends with [ErrLineage]).
func FromPosition(p Position) WatchOption {
	return watchOption(func(o *watchOptions) { o.from, o.history, o.behind = p.Revision+1, p.history(), true })
}

// FromToken resumes after a position that [Watcher.Token] gave out, for the same
// range. The token of another history is taken as [FromPosition] takes a position.
// An empty one, of a watch that had not started, stands for no position: the watch
// begins with a resync. A token that was cut, forged, or made for another range ends the watch with
// [ErrInvalid], and the error says which.
func FromToken(token []byte) WatchOption {
	return watchOption(func(o *watchOptions) { o.token = append([]byte{}, token...) }) // not nil: asked for
}

// WithState delivers the state of the range first, then the events behind it.
func WithState() WatchOption { return watchOption(func(o *watchOptions) { o.state = true }) }

// WithoutResync ends the watch, with [*CompactedError] or [ErrLineage], if the servers
// cannot replay every event after its position. By default the watch continues with a
// unit: a [KindDelta] if the servers know what changed, else a [KindResync].
func WithoutResync() WatchOption { return watchOption(func(o *watchOptions) { o.noResync = true }) }

// WithConflation delivers, instead of every event, at most one unit
// ([KindConflated]) in so much time, with the latest value of each key that has
// changed. From 10 ms to 1 h. It excludes [WithPrevKV] and [WithoutResync].
func WithConflation(d time.Duration) MirrorOption {
	return mirrorOption{func(o *watchOptions) { o.conflate = d }}
}

// WithMaxStaleness names the age at which what a node sends is too old: the
// watch then looks for a node that is closer to etcd, for as long as it takes.
// At least 100 ms. [WatcherStats.FreshAt] tells how old it is meanwhile.
func WithMaxStaleness(d time.Duration) MirrorOption {
	return mirrorOption{func(o *watchOptions) { o.maxStale = d }}
}

// WithPrevKV delivers the key's previous value with each event.
func WithPrevKV() WatchOption { return watchOption(func(o *watchOptions) { o.prevKV = true }) }

// WithProgress delivers progress too: that everything up to a revision has
// been delivered, a few times per second, though nothing changed. What is
// waiting for the consumer is merged.
func WithProgress() WatchOption { return watchOption(func(o *watchOptions) { o.progress = true }) }

// WithBuffer sets the watcher's buffer in bytes; see [Config.Buffer].
func WithBuffer(bytes int) MirrorOption {
	return mirrorOption{func(o *watchOptions) { o.buffer = bytes }}
}

// OnResume is called whenever the watch resumes on a node after it had been
// started before, one at a time, and before updates from that node are returned:
// until it has returned, [Watcher.Next] waits. It may call Close of the watcher, the
// mirror and the client. Close does not wait for it. Resumes that follow each other
// while it runs are reported as one.
func OnResume(f func(Resume)) MirrorOption {
	return mirrorOption{func(o *watchOptions) { o.onResume = f }}
}

// Resume reports that a watch has resumed on a node.
type Resume struct {
	// From and To are the names of the nodes; they may be equal.
	From, To string
	// Reason is why it left From.
	Reason error
	// Revision is the position: everything up to it had been received.
	Revision int64
}

// ListOption changes what [Client.List] returns.
type ListOption interface{ list(o *readOptions) }

// ReadOption is a [ListOption] that [Client.Get] and [Client.Count] take, too.
type ReadOption interface {
	ListOption
	read()
}

type listOption func(*readOptions)

func (f listOption) list(o *readOptions) { f(o) }

type readOption struct{ listOption }

func (readOption) read() {}

type readOptions struct {
	revision     int64
	serializable bool
	maxStaleness time.Duration
	limit        int64
	page         []byte
	keysOnly     bool
	changes      bool
	since        int64
	history      history
}

// AtRevision reads at an exact revision, of whatever history. Older revisions are kept for a short
// time only: [*CompactedError] says how far back.
func AtRevision(revision int64) ReadOption {
	return readOption{func(o *readOptions) { o.revision = revision }}
}

// Serializable reads what the node has, if it is not older than maxStaleness
// (0: the node's own bound). It needs no etcd. Without it a read sees every
// write that was acknowledged before it.
func Serializable(maxStaleness time.Duration) ReadOption {
	return readOption{func(o *readOptions) { o.serializable, o.maxStaleness = true, maxStaleness }}
}

// Limit ends a list after this number of keys; [Listing.NextPage] continues after it.
func Limit(keys int64) ListOption { return listOption(func(o *readOptions) { o.limit = keys }) }

// Page continues after an earlier page of the same range, at that page's
// revision.
func Page(token []byte) ListOption { return listOption(func(o *readOptions) { o.page = token }) }

// KeysOnly leaves the values out of a list.
func KeysOnly() ListOption { return listOption(func(o *readOptions) { o.keysOnly = true }) }

// AtPosition is [AtRevision] for a revision whose history is known: when that is
// another one by now the read fails with [ErrLineage].
func AtPosition(p Position) ReadOption {
	return readOption{func(o *readOptions) { o.revision, o.history = p.Revision, p.history() }}
}

// ChangedSince lists the keys that have changed after a position, and
// [Listing.Deleted] those that were deleted. When the history is another one by
// now the list fails with [ErrLineage]. It fails with [*CompactedError] when the nodes no
// longer keep the deletes since then; its floor less one is the oldest possible revision.
// It excludes [Limit], [Page] and [KeysOnly].
func ChangedSince(p Position) ListOption {
	return listOption(func(o *readOptions) { o.changes, o.since, o.history = true, p.Revision, p.history() })
}
