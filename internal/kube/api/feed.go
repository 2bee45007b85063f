package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kube/object"
	"github.com/shardwatch/shardwatch/internal/kube/past"
	"github.com/shardwatch/shardwatch/internal/kube/source"
	"github.com/shardwatch/shardwatch/internal/kube/tier"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wait"
)

// feed is a followed resource with its cache.
type feed struct {
	r     source.Resource
	src   *source.Source
	tier  *tier.Source // nil: this node follows an apiserver
	cache *cache.Cache
	past  *past.Past
	fan   *fan
	stop  context.CancelFunc
	ended <-chan struct{} // closed when the feed ends

	users   atomic.Int64 // requests that use it
	watches atomic.Int64 // that are open, and have sent their first state
	used    atomic.Int64 // when the last request ended, in nanoseconds of Unix; 0: there was none
	kept    atomic.Int64 // when another node used it last, as used
}

// idle reports whether neither clients nor other nodes have used a feed for a time.
func (f *feed) idle(now time.Time, idle time.Duration) bool {
	last := max(f.used.Load(), f.kept.Load())
	return f.users.Load() == 0 && now.Sub(time.Unix(0, last)) >= idle
}

// usedHere reports whether clients of this node have used a feed within a time.
func (f *feed) usedHere(now time.Time, idle time.Duration) bool {
	return f.users.Load() > 0 || now.Sub(time.Unix(0, f.used.Load())) < idle
}

// direct reports whether this node follows the resource at an apiserver.
func (f *feed) direct() (bool, <-chan struct{}) {
	if f.tier == nil {
		return true, nil
	}
	return f.tier.Direct()
}

// kind returns the type of the objects. It comes from the source, or else from an object,
// or else from an apiserver. The feed is loaded.
func (f *feed) kind(ctx context.Context, apiservers *source.Client) (source.Kind, error) {
	if kind, ok := f.src.Kind(); ok {
		return kind, nil
	}
	state, err := f.cache.At(ctx, 0)
	if err != nil {
		return source.Kind{}, err
	}
	var kind source.Kind
	state.Ascend(f.cache.Range(), func(item *kv.KeyValue) bool {
		if o, err := object.Parse(f.r.Encoding, item.Value()); err == nil {
			kind = source.Kind{APIVersion: string(o.APIVersion), Kind: string(o.Kind)}
		}
		return false
	})
	if kind.Kind == "" {
		if kind, err = apiservers.KindOf(ctx, f.r); err != nil {
			return kind, err
		}
	}
	f.src.SetKind(kind)
	return kind, nil
}

// clusterScoped reports whether the objects are in no namespace. Without objects that is not known, and it is false.
// The feed is loaded.
func (f *feed) clusterScoped(ctx context.Context) (is bool) {
	state, err := f.cache.At(ctx, 0)
	if err != nil {
		return false
	}
	state.Ascend(f.cache.Range(), func(first *kv.KeyValue) bool {
		is = bytes.HasPrefix(first.Key(), []byte(f.r.Key("", "")))
		return false
	})
	return is
}

// feeds has the followed resources.
type feeds struct {
	cfg *Config
	ctx context.Context //nolint:containedctx // ends all feeds; they outlive the request that starts them

	mu  sync.Mutex
	all map[source.Resource]*feed // guarded by mu
	// over are preloaded resources that were withdrawn, and not loaded since.
	over map[source.Resource]bool // guarded by mu
	// refused are resources that this node cannot follow, MaxFeeds at most, and until when that counts.
	refused map[source.Resource]time.Time // guarded by mu
	run     sync.WaitGroup
}

// refusedFor is for how long a resource that cannot be followed is not tried again.
const refusedFor = 30 * time.Second

// use returns the feed of a resource, which the caller releases, and starts it
// if there is none; nil: there are too many, or it cannot be followed.
func (s *feeds) use(r source.Resource) *feed {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.startedLocked(r)
	if f != nil {
		f.users.Add(1)
		f.used.Store(time.Now().UnixNano())
	}
	return f
}

// keep follows a resource that other nodes use, and returns its feed; nil: there are too many, or it
// cannot be followed.
func (s *feeds) keep(r source.Resource) *feed {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.startedLocked(r)
	if f != nil {
		f.kept.Store(time.Now().UnixNano())
	}
	return f
}

// find returns the feed of a resource, or nil.
func (s *feeds) find(r source.Resource) *feed {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[r]
}

// used returns the resources that clients of this node have used within a time.
func (s *feeds) used(now time.Time, idle time.Duration) (out []source.Resource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r, f := range s.all {
		if f.usedHere(now, idle) {
			out = append(out, r)
		}
	}
	return out
}

// loaded reports whether a resource has its state, or was withdrawn when it had.
func (s *feeds) loaded(r source.Resource) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loadedLocked(r)
}

func (s *feeds) loadedLocked(r source.Resource) bool {
	if f := s.all[r]; f != nil && f.loaded() {
		delete(s.over, r) // apiservers serve it again
		return true
	}
	return s.over[r]
}

// waits returns why a resource has no state yet, in a line of some hundred bytes.
func (s *feeds) waits(r source.Resource) error {
	if f := s.find(r); f != nil {
		if err := f.src.Failure(); err != nil {
			return fmt.Errorf("%s is not loaded yet: %s", r, line(err))
		}
	}
	return fmt.Errorf("%s is not loaded yet", r)
}

// line returns the text of a failure in a line of some hundred bytes.
func line(err error) string {
	return fmt.Sprintf("%.*s", maxWhy, strings.ReplaceAll(err.Error(), "\n", "; "))
}

// maxWhy bounds the reported cause of a failure, in characters.
const maxWhy = 500

func (f *feed) loaded() bool {
	return wait.Over(f.cache.Ready())
}

func (f *feed) release() {
	f.used.Store(time.Now().UnixNano())
	f.users.Add(-1)
}

// startedLocked returns the feed of a resource, and starts it if there is none; nil: there are too many, or
// it cannot be followed.
func (s *feeds) startedLocked(r source.Resource) *feed {
	if f := s.all[r]; f != nil || len(s.all) >= s.cfg.MaxFeeds || s.refusedLocked(r) || s.ctx.Err() != nil {
		return f
	}
	ctx, stop := context.WithCancel(s.ctx)
	f := &feed{r: r, past: past.New(s.cfg.PastBytes), stop: stop, ended: ctx.Done()}
	f.src = s.cfg.Source.Source(r, f.past.Gap)
	cfg := s.cfg.Cache
	direct := ending{f.src, func(err error) { s.failed(f, err) }}
	cfg.Range, cfg.Source, cfg.Logger = r.InNamespace(""), direct, s.cfg.Logger
	if s.cfg.Tier != nil {
		f.tier = s.cfg.Tier.Source(r, direct, func(req kv.FollowRequest) func(*kv.Update) { return f.past.Observe(f.cache, req) })
		cfg.Source = f.tier
	}
	cfg.Applied = f.past.Applied
	cfg.OtherHistory = func(e *kv.ContradictionError) { s.otherHistory(f, e) }
	f.cache = cache.New(cfg)
	f.fan = newFan(f)
	s.all[r] = f
	s.run.Go(func() { f.fan.run(ctx) })
	s.run.Go(func() {
		_ = f.cache.Run(ctx) // nil, once ctx ends
	})
	s.cfg.Logger.Info("following resource", "resource", r.String())
	return f
}

// otherHistory drops a feed whose versions went back: etcd was restored. A new feed begins with
// the next request, and positions of this one end.
func (s *feeds) otherHistory(f *feed, why error) {
	s.cfg.Logger.Warn("resource has another history than before: dropping its cache", "resource", f.r.String(), "error", why)
	s.drop(f)
}

// ending is the source of a feed that ends with its resource.
type ending struct {
	*source.Source
	failed func(err error)
}

// Follow implements cache.Source.
func (e ending) Follow(ctx context.Context, req kv.FollowRequest) iter.Seq2[kv.Update, error] {
	return func(yield func(kv.Update, error) bool) {
		for u, err := range e.Source.Follow(ctx, req) {
			if err != nil {
				e.failed(err)
			}
			if !yield(u, err) {
				return
			}
		}
	}
}

// failed ends a feed that can get no events any more, or no state. One that is preloaded tries again.
func (s *feeds) failed(f *feed, err error) {
	switch {
	case errors.Is(err, source.ErrWithdrawn):
		s.withdrawn(f, err)
	case !f.loaded() && !source.MayFollow(err) && !slices.Contains(s.cfg.Preload, f.r):
		s.refuse(f, err)
	}
}

// refuse drops a feed that has no state, because of a failure. If that will last, the next requests do not try
// again, each with a watch that is refused. It does not last if no apiserver has the resource: its definition may
// come, and a watch that was passed on then would stay at the apiserver.
func (s *feeds) refuse(f *feed, why error) {
	lasts := errors.Is(why, source.ErrRefused) || errors.Is(why, object.ErrMalformed)
	if lasts && !slices.Contains(s.cfg.Preload, f.r) && s.remember(f.r, time.Now()) {
		s.cfg.Logger.Info("resource cannot be followed: passing its requests on", "resource", f.r.String(), "for", refusedFor, "error", why)
	}
	s.drop(f)
}

// remember notes that a resource cannot be followed. It returns false if that was known, or there are too many.
func (s *feeds) remember(r source.Resource, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.refused, func(_ source.Resource, until time.Time) bool { return !now.Before(until) })
	if _, known := s.refused[r]; known || len(s.refused) >= s.cfg.MaxFeeds {
		return false
	}
	s.refused[r] = now.Add(refusedFor)
	return true
}

// refuses reports whether it is known that a resource cannot be followed.
func (s *feeds) refuses(r source.Resource) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refusedLocked(r)
}

func (s *feeds) refusedLocked(r source.Resource) bool { return time.Now().Before(s.refused[r]) }

// withdrawn drops a feed that can get no events any more. An apiserver answers its requests. One that is
// preloaded does not keep the node from being ready.
func (s *feeds) withdrawn(f *feed, why error) {
	s.cfg.Logger.Warn("resource is not served any more: dropping its cache", "resource", f.r.String(), "error", why)
	if slices.Contains(s.cfg.Preload, f.r) {
		s.mu.Lock()
		s.over[f.r] = true
		s.mu.Unlock()
	}
	s.drop(f)
}

// drop ends a feed. Its requests end, too.
func (s *feeds) drop(f *feed) {
	s.mu.Lock()
	if s.all[f.r] == f {
		delete(s.all, f.r)
	}
	s.mu.Unlock()
	f.stop()
}

// every returns the feeds.
func (s *feeds) every() []*feed {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.all))
}

// sweep ends the feeds that no request has used for a time.
func (s *feeds) sweep(now time.Time, idle time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r, f := range s.all {
		if f.idle(now, idle) {
			delete(s.all, r)
			f.stop()
			s.cfg.Logger.Info("resource is not followed any more", "resource", r.String())
		}
	}
}
