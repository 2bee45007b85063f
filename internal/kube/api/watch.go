package api

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/data/keytree"
	"github.com/shardwatch/shardwatch/internal/edge/pump"
	"github.com/shardwatch/shardwatch/internal/kube/object"
	"github.com/shardwatch/shardwatch/internal/kube/port"
	"github.com/shardwatch/shardwatch/internal/kube/transition"
	"github.com/shardwatch/shardwatch/internal/kube/upstream"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wait"
)

// writeTime is the default of Config.WriteTime.
const writeTime = 30 * time.Second

// stream is a watch that is being served.
type stream struct {
	*answer
	w       http.ResponseWriter
	control *http.ResponseController
	stuck   *port.Watchdog
	held    int64               // bytes of the budget, while the watch is open
	out     []byte              // frames encoded for this watch alone
	large   *budget.Reservation // for an event in out that is large, or nil
	began   time.Time
	wake    wait.Bell   // events or requests may be pending
	sent    kv.Revision // version of the last bookmark or event

	// A watch reads on its own, or has joined the fan and gets shared frames.
	watcher *cache.Watcher // nil: it has joined, or cannot continue
	member  *member        // nil: it reads on its own
	frames  [][]byte       // slice of the last frames, reused
	behind  *difference    // nil: all of it was encoded, or there was none

	// While apart is set, a goroutine serves the watch, otherwise the pump does.
	apart  atomic.Bool
	asked  atomic.Uint32
	pumped *pump.Stream // nil: the watch is not served yet
	task   pump.Task
	to     outlet
	left   bool // the watch has to read on its own

	ctx     context.Context //nolint:containedctx // of the request, whose handler has returned
	again   *http.Request   // the parts of the request that a review needs
	ends    time.Time       // when its timeout passes
	timer   *time.Timer     // until then
	unwatch func() bool     // stops the callback for the end of ctx
	finish  func()          // ends the response

	reviewed *reviewed   // the watches of its sender
	marked   time.Time   // of the last bookmark; owned by the rounds
	checking atomic.Bool // a review is running
}

// watch answers a watch. If it returns an error, it has sent nothing.
func (a *answer) watch(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
	if a.q.initialEvents && !a.q.bookmarks {
		return errUpstream
	}
	held := int64(watchBytes + selectorFactor*(len(a.q.labels)+len(a.q.fields)) + len(r.Header.Get("Authorization")))
	if err := a.s.cfg.Budget.Take(a.client, budget.Watches, held, 0); err != nil {
		return object.Later(err)
	}
	s := &stream{answer: a, w: w, held: held, ctx: r.Context(), control: http.NewResponseController(w), began: time.Now(), wake: wait.NewBell()}
	s.stuck = port.NewWatchdog(w, s.control, s.s.cfg.WriteTime)
	a.f.users.Add(1)
	var state *keytree.Snapshot
	var err error
	if a.q.unset || a.q.version == 0 || a.q.initialEvents {
		state, err = s.fromState(ctx)
	} else {
		err = s.fromVersion(ctx)
	}
	if err != nil {
		s.stuck.End()
		s.free()
		return err
	}
	if a.q.socket {
		s.serveSocket(r, state)
		return nil
	}
	s.w.Header().Set("Content-Type", a.f.r.Encoding.WatchType())
	// The headers are sent with the first bookmark or event: a connection that breaks between the
	// two makes the client's reflector list.
	if state != nil && !s.initial(state) || !s.encodeDifference() || !s.flush() {
		s.stuck.End()
		s.free()
		return nil
	}
	s.serve(r)
	return nil
}

// free releases the resources of a watch.
func (s *stream) free() {
	s.close()
	s.releaseLarge()
	s.s.cfg.Budget.Give(s.client, budget.Watches, s.held)
	s.f.release()
}

// close releases the watcher or membership of a watch, which then cannot read. It may be called twice.
func (s *stream) close() {
	if s.watcher != nil {
		s.watcher.Close()
	}
	if s.member != nil {
		s.f.fan.leave(s.member)
	}
	if s.behind != nil {
		s.behind.held.Release()
	}
	s.watcher, s.member, s.behind = nil, nil, nil
}

const (
	// watchBytes is the approximate memory of an open watch, its stream and ownBytes.
	watchBytes = 32 << 10
	// ownBytes bounds the frames that a watch encodes for itself before it writes them. Larger
	// events are charged to the budget.
	ownBytes = 16 << 10
	// selectorFactor is the most memory of a parsed selector per byte of its text: a term of one
	// byte, with its comma, takes 56 bytes.
	selectorFactor = 32
)

// fromState begins the watch after the current state, and returns that state.
func (s *stream) fromState(ctx context.Context) (*keytree.Snapshot, error) {
	want := s.q.version
	if s.q.unset {
		var err error
		if want, err = s.current(ctx); err != nil {
			return nil, err
		}
	}
	if err := s.waitProgress(ctx, want); err != nil {
		if s.q.unset || errors.Is(err, errUpstream) {
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

// initial sends a state as events. It returns false if the watch cannot continue.
func (s *stream) initial(state *keytree.Snapshot) bool {
	began, bytes := time.Now(), 0
	err := s.each(state, s.f.r.InNamespace(s.q.namespace), func() error { return nil }, func(_ []byte, o *object.Object) (bool, error) {
		bytes += len(o.Raw)
		if !s.encodeEvent(object.Added, o) || port.TooSlow(began, bytes, writeTime) { // the state stays in memory meanwhile
			return false, errStuck
		}
		return true, nil
	})
	if err != nil {
		return false // an invalid object, or a client that does not read
	}
	if s.q.initialEvents {
		s.bookmark(state.Revision, true)
		s.bookmark(state.Revision, false) // counts as an event for the reflector: see fromVersion
	}
	return true
}

// fromVersion begins the watch after a version, with the difference if the version is below
// the window.
func (s *stream) fromVersion(ctx context.Context) error {
	if err := s.waitProgress(ctx, s.q.version); errors.Is(err, errUpstream) {
		return err
	} else if err != nil {
		return s.ahead(err)
	}
	keys := s.f.r.InNamespace(s.q.namespace)
	var err error
	s.sent = s.q.version
	s.watcher, err = s.f.cache.Watch(keys, s.q.version+1, s.wake)
	if _, ok := errors.AsType[*kv.CompactedError](err); ok {
		return s.catchUp(ctx, s.q.version)
	}
	if err == nil && s.q.bookmarks {
		// A watch that breaks within its first second makes its reflector list, unless it has
		// received an event: nodes and connections can die at any time.
		s.bookmark(s.q.version, false)
	}
	return err
}

// ahead returns the error of a version that the cache does not reach. It asks an apiserver
// whether the version belongs to another history.
func (s *stream) ahead(cause error) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.s.cfg.Patience)
	defer cancel()
	current, err := s.s.cfg.Source.Current(ctx, s.f.r)
	if err == nil && current < s.q.version {
		return expired(s.q.version, "")
	}
	return cause
}

// last ends a watch with a bookmark, but not before the watch has been open for its shortest time.
func (s *stream) last(ctx context.Context) {
	s.progress()
	if !s.flush() {
		return
	}
	wait.Sleep(ctx, upstream.ShortestWatch-time.Since(s.began))
}

// errStuck reports that the client does not read.
var errStuck = errors.New("the client does not read")

// pending encodes and writes the pending events. If the watch cannot continue, it returns false and
// closes the watcher, so that the last bookmark does not skip an unsent event.
func (s *stream) pending() bool {
	alive := s.readable()
	if !alive {
		s.close()
	}
	return alive
}

func (s *stream) readable() bool {
	for s.member != nil {
		left, ok := s.take()
		if !ok {
			return false
		}
		if !left {
			return true
		}
		if !s.leave() {
			return false
		}
	}
	for s.watcher != nil {
		if !s.encodeDifference() {
			return false
		}
		revision, err := s.read(true)
		var compacted *kv.CompactedError
		switch {
		case errors.As(err, &compacted):
			if !s.fellBehind() {
				return false
			}
			continue // the new watcher wakes nothing before its first read
		case err != nil:
			return false
		case revision == 0:
			return s.join()
		}
		if len(s.out) > ownBytes && !s.flush() {
			return false
		}
	}
	return false
}

// take writes the pending frames, and reports whether the watch has to read on its own after
// them; ok is false if the client does not read.
func (s *stream) take() (left, ok bool) {
	frames, last, left := s.member.take(s.frames)
	if len(frames) > 0 && !s.write(frames...) {
		return left, false
	}
	s.took(frames, last, 0)
	return left, true
}

// took counts sent frames, and the given bytes of them, which write has not counted.
func (s *stream) took(frames [][]byte, last kv.Revision, bytes int) {
	if len(frames) > 0 {
		s.s.counts.events.Add(int64(len(frames)))
		s.s.counts.bytes.Add(int64(bytes))
		s.sent = max(s.sent, last)
	}
	clear(frames) // keep no frame in memory that the other watches have sent
	if s.frames = frames; cap(frames) > maxFrames {
		s.frames = nil
	}
}

// maxFrames bounds the capacity of the slice of frames that a watch keeps.
const maxFrames = 8

// read encodes the next events of a watch that reads on its own; version 0: there are none. If waits
// is set, it may block until the client has read earlier events.
func (s *stream) read(waits bool) (kv.Revision, error) {
	revision, events, err := s.watcher.Next(nil)
	for _, e := range events {
		if err == nil {
			err = s.transition(e, revision, waits)
		}
	}
	return revision, err
}

// join adds the watch to the fan, to get shared frames. It returns false if the watch cannot continue.
func (s *stream) join() bool {
	rest := func() (kv.Revision, error) {
		for {
			if revision, err := s.read(false); err != nil || revision == 0 {
				return s.watcher.Progress(), err
			}
		}
	}
	k := groupKey{s.q.namespace, s.q.labels, s.q.fields, s.q.form.partial}
	m, err := s.f.fan.join(k, &s.q.selector, s.kind, s, rest)
	var compacted *kv.CompactedError
	switch {
	case errors.As(err, &compacted):
		s.wake.Wake() // the next read finds the missing events
	case err != nil:
		return false
	case m != nil:
		s.member = m
		s.watcher.Close()
		s.watcher = nil
	}
	return true
}

// leave removes the watch from the fan, so that it reads on its own.
func (s *stream) leave() bool {
	_, last, _ := s.member.take(nil) // no frames are pending: take ran after the watch had left
	s.f.fan.leave(s.member)
	s.member = nil
	return s.alone(max(last, s.sent))
}

// alone makes the watch read on its own after a version, or continue with the difference if the
// version is below the window. It returns false if the watch cannot continue.
func (s *stream) alone(after kv.Revision) bool {
	var err error
	s.watcher, err = s.f.cache.Watch(s.f.r.InNamespace(s.q.namespace), after+1, s.wake)
	var compacted *kv.CompactedError
	if errors.As(err, &compacted) {
		ctx, cancel := context.WithTimeout(context.Background(), s.s.cfg.Patience)
		defer cancel()
		err = s.catchUp(ctx, after)
	}
	return err == nil
}

// fellBehind continues a watch that is below the window with the difference.
func (s *stream) fellBehind() bool {
	at := s.watcher.Progress()
	s.watcher.Close()
	return s.alone(at)
}

// transition encodes an event as the selector sees it. If waits is set, it may block on the client.
func (s *stream) transition(e *kv.Event, revision kv.Revision, waits bool) error {
	v, err := transition.Parse(s.f.r.Encoding, e, revision)
	if err != nil {
		return err
	}
	typ := v.TypeFor(&s.q.selector)
	if typ == "" {
		return nil
	}
	if waits && !s.makeRoom(len(v.Now.Raw)) {
		return errStuck
	}
	frame, err := v.Frame(typ, s.q.form.partial)
	if err != nil {
		return err
	}
	s.out, s.sent = append(s.out, frame...), revision
	s.s.counts.events.Add(1)
	return nil
}

// encodeEvent encodes an event in the client's form, and first writes the encoded events if they
// are many. It returns false if the watch cannot continue.
func (s *stream) encodeEvent(typ string, o *object.Object) bool {
	if !s.makeRoom(len(o.Raw)) {
		return false
	}
	raw := o.Raw
	if s.q.form.partial {
		raw = o.Partial()
	}
	s.out = object.AppendEvent(s.out, s.f.r.Encoding, typ, raw)
	s.s.counts.events.Add(1)
	return true
}

// makeRoom prepares for an event of an object of that many bytes: it writes the encoded bytes if
// they would be too many, and charges a large event to the budget until it is written. It returns
// false if the watch cannot continue.
func (s *stream) makeRoom(bytes int) bool {
	if len(s.out) > 0 && len(s.out)+bytes > ownBytes && !s.flush() {
		return false
	}
	if bytes <= ownBytes {
		return true
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.s.cfg.Patience)
	defer cancel()
	var err error
	s.large, err = s.s.cfg.Budget.Reserve(ctx, s.client, budget.Lists, 2*int64(bytes)) // a frame is copied
	return err == nil
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

// progress encodes a bookmark if the client wants bookmarks, and all events up to
// it are encoded.
func (s *stream) progress() {
	at := s.f.fan.progress() // before the frames are taken
	if !s.pending() || !s.q.bookmarks {
		return
	}
	if s.watcher != nil {
		at = s.watcher.Progress()
	}
	s.bookmark(max(at, s.sent), false)
}

func (s *stream) releaseLarge() {
	if s.large != nil {
		s.large.Release()
		s.large = nil
	}
}

// flush writes the encoded bytes. It returns false if the client does not read.
func (s *stream) flush() bool {
	if !s.write() {
		return false
	}
	s.stuck.Begin()
	defer s.stuck.Pause()
	return s.control.Flush() == nil
}

// write writes the encoded bytes, and frames after them.
func (s *stream) write(frames ...[]byte) bool {
	s.stuck.Begin()
	defer s.stuck.Pause()
	if len(s.out) > 0 {
		if _, err := s.w.Write(s.out); err != nil {
			return false
		}
		s.s.counts.bytes.Add(int64(len(s.out)))
		s.out = nil
		s.releaseLarge()
	}
	for _, frame := range frames {
		if _, err := s.w.Write(frame); err != nil {
			return false
		}
		s.s.counts.bytes.Add(int64(len(frame)))
	}
	return true
}
