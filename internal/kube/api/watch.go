package api

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/data/keytree"
	"github.com/shardwatch/shardwatch/internal/kube/object"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// shortestWatch is for how long a watch stays open at least: a reflector that sees
// one end within a second, without an event, lists again.
const shortestWatch = 1500 * time.Millisecond

// writeTime bounds how long a client may take no bytes.
const writeTime = 30 * time.Second

// wakeup is a cache.Waker: something can be read.
type wakeup chan struct{}

// Wake implements cache.Waker.
func (w wakeup) Wake() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// stream is a watch that is being served.
type stream struct {
	*answer
	w       http.ResponseWriter
	control *http.ResponseController
	out     []byte
	began   time.Time
	watcher *cache.Watcher
	wake    wakeup
	sent    kv.Revision // version of the last bookmark or event
}

// watch answers a watch. It returns an error only if nothing was sent.
func (a *answer) watch(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
	s := &stream{answer: a, w: w, control: http.NewResponseController(w), began: time.Now(), wake: make(wakeup, 1)}
	if a.q.initialEvents && !a.q.bookmarks {
		return errUpstream
	}
	if err := a.s.cfg.Budget.Take(a.client, budget.Watches, watchBytes, 0); err != nil {
		return later(err)
	}
	defer a.s.cfg.Budget.Give(a.client, budget.Watches, watchBytes)
	a.s.counts.watches.Add(1)
	defer a.s.counts.watches.Add(-1)
	var state *keytree.Snapshot
	var err error
	if a.q.unset || a.q.version == 0 || a.q.initialEvents {
		state, err = s.fromState(ctx)
	} else {
		err = s.fromVersion(ctx)
	}
	if err != nil {
		return err
	}
	defer func() { s.watcher.Close() }()
	s.w.Header().Set("Content-Type", a.f.r.Encoding.WatchType())
	s.w.WriteHeader(http.StatusOK)
	if state == nil || s.initial(state) {
		s.serve(r)
	}
	return nil
}

// watchBytes is what an open watch holds beside its events, with its stream, about:
// the bound of what was encoded and not written is passed for the time of one write.
const watchBytes = 32 << 10

// fromState begins to watch after the state that it returns.
func (s *stream) fromState(ctx context.Context) (*keytree.Snapshot, error) {
	want := s.q.version
	if s.q.unset {
		var err error
		if want, err = s.s.cfg.Source.Current(ctx, s.f.r); err != nil {
			return nil, err
		}
	}
	if err := s.f.cache.WaitProgress(ctx, want); err != nil {
		if s.q.unset {
			return nil, errUpstream
		}
		return nil, tooLarge(want, s.f.cache.Progress())
	}
	state, err := s.f.cache.At(ctx, 0)
	if err != nil {
		return nil, err
	}
	s.watcher, err = s.f.cache.Watch(s.f.r.InNamespace(s.q.namespace), state.Revision+1, s.wake)
	s.sent = state.Revision
	return state, err
}

// initial sends a state as events. It returns false if the watch cannot go on.
func (s *stream) initial(state *keytree.Snapshot) bool {
	err := s.each(state, s.f.r.InNamespace(s.q.namespace), func(_ []byte, o *object.Object) (bool, error) {
		s.event(object.Added, o)
		return len(s.out) <= maxPending || s.flush(), nil
	})
	if err != nil || len(s.out) > maxPending {
		return false // an object that is not one, or a client that takes nothing
	}
	if s.q.initialEvents {
		s.bookmark(state.Revision, true)
	}
	return true
}

// fromVersion begins after a version, with the difference if the window does
// not reach back to it.
func (s *stream) fromVersion(ctx context.Context) error {
	if err := s.f.cache.WaitProgress(ctx, s.q.version); err != nil {
		return s.ahead(err)
	}
	keys := s.f.r.InNamespace(s.q.namespace)
	var err error
	s.sent = s.q.version
	s.watcher, err = s.f.cache.Watch(keys, s.q.version+1, s.wake)
	var compacted *kv.CompactedError
	if errors.As(err, &compacted) {
		return s.difference(ctx, s.q.version)
	}
	return err
}

// ahead returns the error of a version that the cache does not come to: an
// apiserver knows whether it is of another history.
func (s *stream) ahead(cause error) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.s.cfg.Patience)
	defer cancel()
	current, err := s.s.cfg.Source.Current(ctx, s.f.r)
	if err == nil && current < s.q.version {
		return expired(s.q.version)
	}
	return cause
}

// serve sends until the client, the time of the watch, or the cache ends it.
func (s *stream) serve(r *http.Request) {
	ctx := r.Context()
	length := s.q.timeout
	if length == 0 {
		length = 30*time.Minute + rand.N(30*time.Minute) // as apiservers do
	}
	length = max(length, shortestWatch)
	end := time.NewTimer(length)
	defer end.Stop()
	often := time.NewTicker(s.s.cfg.BookmarkEvery)
	defer often.Stop()
	recheck := time.NewTicker(s.s.cfg.Recheck)
	defer recheck.Stop()
	draining := s.s.draining
	var may chan bool // while a check runs, which may wait for an apiserver
	for {
		alive := s.pending()
		if !s.flush() {
			return
		}
		if !alive {
			s.last(ctx)
			return
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return
		case <-end.C:
			s.last(ctx)
			return
		case <-often.C:
			s.progress()
		case <-recheck.C:
			if may == nil {
				may = make(chan bool, 1)
				go func(answer chan<- bool) { answer <- s.s.mayStill(r, s.q) }(may)
			}
		case <-draining:
			draining = nil
			end.Reset(min(length-time.Since(s.began), s.s.turn()))
		case still := <-may:
			if may = nil; !still {
				s.s.counts.withdrawn.Add(1)
				s.last(ctx)
				return
			}
		}
	}
}

// last ends a watch with a bookmark, and not too early.
func (s *stream) last(ctx context.Context) {
	s.progress()
	if !s.flush() {
		return
	}
	select {
	case <-time.After(shortestWatch - time.Since(s.began)):
	case <-ctx.Done():
	}
}

// maxPending is how many bytes of events are encoded before they are written.
const maxPending = 256 << 10

// pending encodes what can be read. It returns false if the watch cannot go on.
func (s *stream) pending() bool {
	var events []*kv.Event
	for {
		revision, found, err := s.watcher.Next(events[:0])
		events = found
		var compacted *kv.CompactedError
		switch {
		case errors.As(err, &compacted):
			if !s.fellBehind() {
				return false
			}
			continue // the new watcher calls no waker before it is read
		case err != nil:
			return false
		case revision == 0:
			return true
		}
		for _, e := range events {
			if s.transition(e, revision) != nil {
				return false
			}
		}
		if len(s.out) > maxPending && !s.flush() {
			return false
		}
	}
}

// fellBehind goes on with the difference, for a watch that the window has left.
func (s *stream) fellBehind() bool {
	at := s.watcher.Progress()
	s.watcher.Close()
	ctx, cancel := context.WithTimeout(context.Background(), s.s.cfg.Patience)
	defer cancel()
	return s.difference(ctx, at) == nil
}

// transition sends an event as the selector sees it: an object that begins to
// match is added, one that ends to is deleted.
func (s *stream) transition(e *kv.Event, revision kv.Revision) error {
	now, err := object.Parse(s.f.r.Encoding, e.KV.Value())
	if err != nil {
		return err
	}
	var before object.Object
	if e.Prev != nil {
		if before, err = object.Parse(s.f.r.Encoding, e.Prev.Value()); err != nil {
			return err
		}
	}
	was := e.Prev != nil && s.q.selector.Matches(&before)
	is := e.Type == kv.Put && s.q.selector.Matches(&now)
	switch {
	case is && was:
		s.event(object.Modified, &now)
	case is:
		s.event(object.Added, &now)
	case was && e.Type == kv.Delete:
		s.event(object.Deleted, &now) // as the apiserver sent it
	case was:
		gone, err := object.Parse(s.f.r.Encoding, before.WithVersion(int64(revision)))
		if err != nil {
			return err
		}
		s.event(object.Deleted, &gone)
	default:
		return nil
	}
	s.sent = revision
	return nil
}

// event encodes an event in the client's form.
func (s *stream) event(typ string, o *object.Object) {
	raw := o.Raw
	if s.q.form.partial {
		raw = o.Partial()
	}
	s.out = object.AppendEvent(s.out, s.f.r.Encoding, typ, raw)
	s.s.counts.events.Add(1)
}

// bookmark encodes a bookmark.
func (s *stream) bookmark(version kv.Revision, initialEnd bool) {
	kind := s.kind
	if s.q.form.partial {
		kind.APIVersion, kind.Kind = "meta.k8s.io/v1", "PartialObjectMetadata"
	}
	s.out = object.AppendEvent(s.out, s.f.r.Encoding, object.Bookmark, object.NewBookmark(s.f.r.Encoding, kind.APIVersion, kind.Kind, int64(version), initialEnd))
	s.s.counts.events.Add(1)
	s.sent = version
}

// progress encodes a bookmark if the client wants them, and all up to it was
// encoded.
func (s *stream) progress() {
	if !s.pending() || !s.q.bookmarks {
		return
	}
	if at := s.watcher.Progress(); at >= s.sent {
		s.bookmark(at, false)
	}
}

// flush writes what was encoded. It returns false if the client takes nothing.
func (s *stream) flush() bool {
	if err := s.control.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
		return false
	}
	if len(s.out) > 0 {
		if _, err := s.w.Write(s.out); err != nil {
			return false
		}
		s.s.counts.bytes.Add(int64(len(s.out)))
		s.out = s.out[:0]
		if cap(s.out) > maxPending {
			s.out = nil
		}
	}
	if err := s.control.Flush(); err != nil {
		return false
	}
	// HTTP/2 resets a stream whose deadline passes, even if nothing is written.
	return s.control.SetWriteDeadline(time.Time{}) == nil
}
