package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shardwatch/shardwatch/internal/kube/object"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wait"
)

// Kind is the type of a resource's objects.
type Kind struct{ APIVersion, Kind string }

// Source follows one resource. It is a cache.Source.
type Source struct {
	c    *Client
	r    Resource
	gap  Gap
	kind atomic.Pointer[Kind]

	failed  chan error // the newest failure of Follow that was not received
	failure atomic.Pointer[error]
	server  atomic.Pointer[string] // the followed server; nil: none
}

// Gap is called, from within Follow, before a source leaps over versions without
// their events: with the version that its consumer holds, the version at which the
// leap ends, and the held objects that changed between them or are gone.
type Gap func(after, before kv.Revision, held []*kv.KeyValue)

// Source returns a source of a resource. gap may be nil.
func (c *Client) Source(r Resource, gap Gap) *Source {
	if gap == nil {
		gap = func(kv.Revision, kv.Revision, []*kv.KeyValue) {}
	}
	return &Source{c: c, r: r, gap: gap, failed: make(chan error, 1)}
}

// Resource returns the followed resource.
func (s *Source) Resource() Resource { return s.r }

// SetKind sets the result of Kind, for a consumer that gets its state from another node.
func (s *Source) SetKind(k Kind) { s.kind.Store(&k) }

// Kind returns the type of the objects. It returns false until a state has been
// received, even an empty one, or SetKind was called.
func (s *Source) Kind() (Kind, bool) {
	if k := s.kind.Load(); k != nil {
		return *k, true
	}
	return Kind{}, false
}

// Failed delivers the failures of Follow. A failure that is not received is replaced by the next.
func (s *Source) Failed() <-chan error { return s.failed }

// Failure returns the newest failure of Follow; nil: there was none, or an update has arrived since.
func (s *Source) Failure() error {
	if err := s.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// Server returns the URL of the followed apiserver; "": none is followed.
func (s *Source) Server() string {
	if server := s.server.Load(); server != nil {
		return *server
	}
	return ""
}

// Ended reports whether a failure is the regular end of a watch, after which the next watch begins.
func Ended(failure error) bool { return errors.Is(failure, errEnded) }

// fails records a failure.
func (s *Source) fails(err error) {
	s.failure.Store(&err)
	select {
	case <-s.failed: //nolint:errcheck // the newer failure replaces it
	default:
	}
	select {
	case s.failed <- err:
	default: // a concurrent call of Follow has sent its failure
	}
}

// errEnough reports that the consumer has stopped the iteration.
var errEnough = errors.New("the consumer has stopped")

// Follow sends the updates of the resource, as cache.Source describes. With From 0
// it lists; with Held it sends the difference, as a leap. With another From it
// watches from that version, at the first apiserver whose window has it. If none
// has it, Follow fails with a *kv.CompactedError.
//
// Follow ignores the range and the lineage of req. A request of Want gets progress
// within a few seconds; see [prober].
func (s *Source) Follow(ctx context.Context, req kv.FollowRequest) iter.Seq2[kv.Update, error] {
	return func(yield func(kv.Update, error) bool) {
		emit := func(u kv.Update) error {
			if !yield(u, nil) {
				return errEnough
			}
			if s.failure.Load() != nil {
				s.failure.Store(nil)
			}
			return nil
		}
		err := s.follow(ctx, req, emit)
		if err != nil && !errors.Is(err, errEnough) && ctx.Err() == nil {
			s.fails(err)
			yield(kv.Update{}, err)
		}
	}
}

func (s *Source) follow(ctx context.Context, req kv.FollowRequest, emit func(kv.Update) error) error {
	var errs []error
	expired, refused := false, false
	for _, server := range s.c.Servers() {
		follows := func(u kv.Update) error {
			s.server.Store(&server)
			return emit(u)
		}
		f := &follower{s: s, server: server, req: req, emit: follows, at: req.From - 1, asked: wait.NewBell()}
		err := f.run(ctx)
		if s.refuses(f, err) && s.c.Ready(ctx, server) == nil {
			err = f.run(ctx) // it may have become ready since
			refused = refused || s.refuses(f, err)
		}
		s.server.CompareAndSwap(&server, nil) // another call may follow
		if errors.Is(err, errEnough) || errors.Is(err, errEnded) || ctx.Err() != nil {
			return err
		}
		if f.moved {
			s.c.avoid(server, err)
			return err
		}
		expired = expired || CodeOf(err) == http.StatusGone
		errs = append(errs, err)
		s.c.avoid(server, err)
	}
	if expired && req.From > 0 {
		// The floor is above the request but unknown: apiservers do not report it.
		return &kv.CompactedError{Requested: req.From, Floor: req.From + 1}
	}
	err := errors.Join(errs...)
	switch {
	case !refused:
		return err
	case resumes(req):
		return fmt.Errorf("%w: %w", ErrWithdrawn, err)
	default:
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
}

var (
	// ErrWithdrawn reports that a resource was followed before, but that a ready apiserver no longer serves it, or not
	// to this node, and that no other apiserver serves it either.
	ErrWithdrawn = errors.New("apiservers do not serve the resource any more")
	// ErrRefused reports that a resource was not followed before, that a ready apiserver refuses it, to this node or
	// in this encoding, and that no other apiserver serves it. 404 does not count as a refusal.
	ErrRefused = errors.New("apiservers do not let this node follow the resource")
)

// resumes reports whether the resource was followed before.
func resumes(req kv.FollowRequest) bool { return req.From > 0 || req.Held != nil }

// refuses reports whether a server refuses a resource that was followed before, or that it has.
func (s *Source) refuses(f *follower, err error) bool {
	code := CodeOf(err)
	return !f.moved && code != 0 && !MayFollow(err) && (resumes(f.req) || code != http.StatusNotFound)
}

// follower follows a resource at one server.
type follower struct {
	s      *Source
	server string
	req    kv.FollowRequest
	emit   func(kv.Update) error

	moved bool        // an update was emitted: another server would have to resume from at
	at    kv.Revision // everything up to it was emitted
	// held are deletes of Events of one version, which may have more deletes; see [Resource.IsEvents].
	held []kv.Event

	mu    sync.Mutex
	want  kv.Revision // guarded by mu; progress that the consumer waits for
	asked wait.Bell   // want has grown
}

// ask records that the consumer waits for progress up to revision.
func (f *follower) ask(revision kv.Revision) {
	f.mu.Lock()
	f.want = max(f.want, revision)
	f.mu.Unlock()
	f.asked.Wake()
}

// wants reports whether the consumer waits for progress.
func (f *follower) wants() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.want > f.at
}

// arrival is an event or error of a watch.
type arrival struct {
	from  *watch
	event object.Event
	err   error
}

func (f *follower) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	arrivals := make(chan arrival) // unbuffered: a slow consumer blocks the apiserver
	var readers sync.WaitGroup
	defer readers.Wait()
	defer cancel()
	main, err := f.begin(ctx)
	if err != nil {
		return err
	}
	readers.Go(func() { main.read(ctx, arrivals) })
	defer f.req.Want.Serve(f.at, f.ask)()
	whole := time.NewTimer(wholeAfter)
	defer whole.Stop()
	probes := prober{f: f, to: arrivals, running: &readers}
	for {
		probes.start(ctx)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-f.asked:
		case <-probes.pause:
			probes.pause = nil
		case <-whole.C:
			if err := f.release(); err != nil {
				return err
			}
		case a := <-arrivals:
			switch {
			case a.from != main:
				err = probes.arrived(a)
			case a.err != nil:
				err = fmt.Errorf("%s: watch %s from %d: %w", f.server, f.s.r, f.at, a.err)
			default:
				err = f.take(a.event)
			}
			if err != nil {
				return err
			}
			if len(f.held) > 0 && a.err == nil && a.event.Type != object.Error {
				whole.Reset(wholeAfter)
			}
		}
	}
}

// wholeAfter is the time without events after which the held deletes of a version count as complete.
const wholeAfter = time.Second

// begin emits Begin and the state if one is needed, and returns the watch that continues.
func (f *follower) begin(ctx context.Context) (*watch, error) {
	if f.req.From == 0 {
		return f.load(ctx)
	}
	// After a restore, etcd is at an older version. A watch from a future version is silent.
	switch now, err := f.s.c.currentAt(ctx, f.server, f.s.r); {
	case err != nil:
		return nil, err
	case now < f.at:
		return nil, f.older(now, f.at)
	}
	w, err := f.watch(ctx, f.at, 0)
	if err != nil {
		return nil, err
	}
	if err := f.emit(kv.Update{Kind: kv.UpdateBegin, Revision: f.at, Floor: f.req.From}); err != nil {
		return nil, err
	}
	return w, f.emit(kv.Update{Kind: kv.UpdateReady})
}

// older returns the error of an apiserver whose version is below the consumer's version.
func (f *follower) older(now, before kv.Revision) error {
	return &kv.ContradictionError{Ahead: true, Detail: fmt.Sprintf("%s is at version %d, and was at %d", f.s.r, now, before)}
}

// take emits an event. Two watches may deliver it. Each is complete up to its
// newest event, so all events up to the newest of both have been emitted.
func (f *follower) take(e object.Event) error {
	if e.Type == object.Error {
		status, err := object.ParseStatus(f.s.r.Encoding, e.Object)
		if err != nil {
			return err
		}
		return fmt.Errorf("%s: watch %s from %d: %w", f.server, f.s.r, f.at, status)
	}
	if e.Type == object.Bookmark {
		o, err := object.Parse(f.s.r.Encoding, e.Object)
		if err != nil {
			return err
		}
		version, err := o.Version()
		if err != nil || kv.Revision(version) <= f.at {
			return err
		}
		if err := f.release(); err != nil || kv.Revision(version) == f.at {
			return err
		}
		f.at, f.moved = kv.Revision(version), true
		return f.emit(kv.Update{Kind: kv.UpdateProgress, Revision: f.at})
	}
	item, err := f.s.r.item(e.Object)
	if err != nil {
		return err
	}
	event := kv.Event{KV: item}
	switch e.Type {
	case object.Added, object.Modified:
	case object.Deleted:
		event.Type = kv.Delete
	default:
		return fmt.Errorf("%w: a watch event of type %.20q", object.ErrMalformed, e.Type)
	}
	if len(f.held) > 0 && item.ModRevision() > f.held[0].KV.ModRevision() {
		if err := f.release(); err != nil {
			return err
		}
	}
	switch {
	case item.ModRevision() <= f.at:
		return nil
	case event.Type == kv.Delete && f.s.r.IsEvents():
		if !slices.ContainsFunc(f.held, func(h kv.Event) bool { return bytes.Equal(h.KV.Key(), event.KV.Key()) }) {
			f.held = append(f.held, event)
		}
		return nil
	}
	return f.batch(event)
}

// release emits the held deletes.
func (f *follower) release() error {
	held := f.held
	if len(held) == 0 {
		return nil
	}
	f.held = nil
	return f.batch(held...)
}

// batch emits events of one version.
func (f *follower) batch(events ...kv.Event) error {
	f.at, f.moved = events[0].KV.ModRevision(), true
	return f.emit(kv.Update{Kind: kv.UpdateBatch, Batch: kv.Batch{Revision: f.at, Events: events, Received: time.Now()}})
}

// errEnded reports that an apiserver has closed a watch, as it does at the watch's
// timeout.
var errEnded = errors.New("the apiserver has closed the watch")

// watch is a watch at an apiserver.
type watch struct {
	body   io.ReadCloser
	frames *object.Frames
}

// read sends the events of the watch until it ends.
func (w *watch) read(ctx context.Context, to chan<- arrival) {
	defer w.body.Close()
	for {
		e, err := w.frames.Next()
		if errors.Is(err, io.EOF) {
			err = errEnded
		}
		select {
		case to <- arrival{from: w, event: e, err: err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}
