package client

import (
	"errors"
	"fmt"
	"time"
)

// WatchOption changes what [Client.Watch] delivers.
type WatchOption interface{ watch(o *watchOptions) }

// MirrorOption is a [WatchOption] that mirrors (package mirror) and follow.Run also accept.
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
	behind   bool // from is derived from a position
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
		errs = append(errs, fmt.Errorf("%w: the resume token is empty, because its watch had not started: "+
			"start with WithState, or without WithoutResync", ErrInvalid))
	}
	if o.behind && o.from <= 1 {
		errs = append(errs, fmt.Errorf("%w: FromPosition needs a positive revision, not %d: the watch had not started", ErrInvalid, o.from-1))
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
		errs = append(errs, fmt.Errorf("%w: buffer (%d bytes) must be positive", ErrInvalid, o.buffer))
	}
	return errors.Join(errs...)
}

// FromRevision starts at a revision, which is the first one delivered and may be in the
// future. Without it, and without [WithState] or [FromToken], a watch starts at the
// revision etcd has when the request arrives. It does not name the history of the
// revision, and no node checks it: to resume, use [FromPosition] or [FromToken].
func FromRevision(revision int64) WatchOption {
	return watchOption(func(o *watchOptions) { o.from = revision })
}

// FromPosition resumes after the position of an [Update], a [Listing] or a [GetResult]:
// the next revision is the first one delivered. If the history has changed, because
// etcd was restored or another cluster answers, the watch begins with a resync (with
// [WithoutResync] it ends with [ErrLineage]).
func FromPosition(p Position) WatchOption {
	return watchOption(func(o *watchOptions) { o.from, o.history, o.behind = p.Revision+1, p.history(), true })
}

// FromToken resumes after a position that [Watcher.Token] returned, for the same range. A token of
// another history has the effect of such a position in [FromPosition]. An empty token, from a watch
// that had not started, means no position: the watch begins with a resync. A token that was cut,
// forged, or made for another range ends the watch with [ErrInvalid], and the error names the
// mistake.
func FromToken(token []byte) WatchOption {
	return watchOption(func(o *watchOptions) { o.token = append([]byte{}, token...) }) // not nil: asked for
}

// WithState delivers the state of the range first, then the events after it.
func WithState() WatchOption { return watchOption(func(o *watchOptions) { o.state = true }) }

// WithoutResync ends the watch, with [*CompactedError] or [ErrLineage], if the servers
// cannot replay every event after its position. By default the watch continues with a
// unit: a [KindDelta] if the servers know what changed, else a [KindResync].
func WithoutResync() WatchOption { return watchOption(func(o *watchOptions) { o.noResync = true }) }

// WithConflation delivers at most one unit ([KindConflated]) per interval in place of
// the events, with the latest value of each key that has changed. From 10 ms to 1 h. It
// excludes [WithPrevKV] and [WithoutResync].
func WithConflation(d time.Duration) MirrorOption {
	return mirrorOption{func(o *watchOptions) { o.conflate = d }}
}

// WithMaxStaleness sets the age at which the data of a node is too old: the watch then
// searches for a node that is closer to etcd until it finds one. At least 100 ms.
// [WatcherStats.FreshAt] shows the age meanwhile.
func WithMaxStaleness(d time.Duration) MirrorOption {
	return mirrorOption{func(o *watchOptions) { o.maxStale = d }}
}

// WithPrevKV delivers the key's previous value with each event.
func WithPrevKV() WatchOption { return watchOption(func(o *watchOptions) { o.prevKV = true }) }

// WithProgress also delivers progress, a few times per second even without changes: the
// watch has delivered everything up to a revision. Pending progress updates are merged.
func WithProgress() WatchOption { return watchOption(func(o *watchOptions) { o.progress = true }) }

// WithBuffer sets the watcher's buffer in bytes; see [Config.Buffer].
func WithBuffer(bytes int) MirrorOption {
	return mirrorOption{func(o *watchOptions) { o.buffer = bytes }}
}

// OnResume sets a function that is called whenever the watch resumes on a node after
// its first start, one call at a time, before updates from that node are returned:
// [Watcher.Next] waits for it. The function may call Close of the watcher, the mirror
// and the client, which do not wait for it. Resumes that follow each other while it
// runs are reported as one.
func OnResume(f func(Resume)) MirrorOption {
	return mirrorOption{func(o *watchOptions) { o.onResume = f }}
}

// Resume reports that a watch has resumed on a node.
type Resume struct {
	// From and To are the names of the nodes; they may be equal.
	From, To string
	// Reason is the reason why the watch left From.
	Reason error
	// Revision is the position: the watch had received everything up to it.
	Revision int64
}

// ListOption changes what [Client.List] returns.
type ListOption interface{ list(o *readOptions) }

// ReadOption is a [ListOption] that [Client.Get] and [Client.Count] also accept.
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

// AtRevision reads at an exact revision of any history. Nodes keep older revisions for a short
// time only: [*CompactedError] has the oldest one.
func AtRevision(revision int64) ReadOption {
	return readOption{func(o *readOptions) { o.revision = revision }}
}

// Serializable reads the node's data if it is not older than maxStaleness (0: the
// node's own bound). It does not need etcd. Without it, a read sees every write
// acknowledged before it.
func Serializable(maxStaleness time.Duration) ReadOption {
	return readOption{func(o *readOptions) { o.serializable, o.maxStaleness = true, maxStaleness }}
}

// Limit ends a list after this number of keys; [Listing.NextPage] continues after it.
func Limit(keys int64) ListOption { return listOption(func(o *readOptions) { o.limit = keys }) }

// Page continues after an earlier page of the same range, at that page's revision.
func Page(token []byte) ListOption { return listOption(func(o *readOptions) { o.page = token }) }

// KeysOnly leaves the values out of a list.
func KeysOnly() ListOption { return listOption(func(o *readOptions) { o.keysOnly = true }) }

// AtPosition is [AtRevision] for a revision whose history is known: if the history has
// changed the read fails with [ErrLineage].
func AtPosition(p Position) ReadOption {
	return readOption{func(o *readOptions) { o.revision, o.history = p.Revision, p.history() }}
}

// ChangedSince lists the keys that have changed after a position, and [Listing.Deleted]
// returns the deleted ones. If the history has changed the list fails with [ErrLineage].
// If the nodes no longer keep the deletes after the position, it fails with
// [*CompactedError], whose floor less one is the oldest possible revision. It excludes
// [Limit], [Page] and [KeysOnly].
func ChangedSince(p Position) ListOption {
	return listOption(func(o *readOptions) { o.changes, o.since, o.history = true, p.Revision, p.history() })
}
