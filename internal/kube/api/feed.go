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

	users   atomic.Int64 // open requests
	watches atomic.Int64 // open watches that have sent their initial state
	used    atomic.Int64 // when the last request ended, in Unix nanoseconds; 0: there was none
	kept    atomic.Int64 // when another node last used it, in Unix nanoseconds
}

// idle reports whether neither clients nor other nodes have used a feed for the idle time.
func (f *feed) idle(now time.Time, idle time.Duration) bool {
	last := max(f.used.Load(), f.kept.Load())
	return f.users.Load() == 0 && now.Sub(time.Unix(0, last)) >= idle
}

// usedHere reports whether clients of this node have used a feed within the idle time.
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

// kind returns the type of the objects: from the source, else from an object, else from an
// apiserver. The feed must be loaded.
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

// clusterScoped reports whether the objects have no namespace. Without objects this is unknown, and it returns false.
// The feed must be loaded.
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

// feeds is the set of followed resources.
type feeds struct {
	cfg *Config
	ctx context.Context //nolint:containedctx // ends all feeds; they outlive the request that starts them

	mu  sync.Mutex
	all map[source.Resource]*feed // guarded by mu
	// over are the preloaded resources that were withdrawn, and not loaded since.
	over map[source.Resource]bool // guarded by mu
	// refused are the resources that this node cannot follow, MaxFeeds at most, each with the time of the next attempt.
	refused map[source.Resource]time.Time // guarded by mu
	run     sync.WaitGroup
}

// refusedFor is the time before the next attempt to follow a resource that cannot be followed.
const refusedFor = 30 * time.Second

// use returns the feed of a resource, and starts it if necessary; nil: there are too many feeds, or it
// cannot be followed. The caller must release the feed.
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

// keep follows a resource that other nodes use, and returns its feed; nil: there are too many feeds, or it
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

// used returns the resources that clients of this node have used within the idle time.
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

// loaded reports whether a resource is loaded, or was withdrawn after it had been loaded.
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

// waits returns why a resource is not loaded yet, in a line of a few hundred bytes.
func (s *feeds) waits(r source.Resource) error {
	if f := s.find(r); f != nil {
		if err := f.src.Failure(); err != nil {
			return fmt.Errorf("%s is not loaded yet: %s", r, line(err))
		}
	}
	return fmt.Errorf("%s is not loaded yet", r)
}

// line returns the text of a failure as one line of a few hundred bytes.
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

// startedLocked returns the feed of a resource, and starts it if necessary; nil: there are too many feeds, or
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
		_ = f.cache.Run(ctx) // nil when ctx ends
	})
	s.cfg.Logger.Info("following resource", "resource", r.String())
	return f
}

// otherHistory drops a feed whose versions went backwards, because etcd was restored. The next request
// starts a new feed; positions in this feed become invalid.
func (s *feeds) otherHistory(f *feed, why error) {
	s.cfg.Logger.Warn("resource has another history than before: dropping its cache", "resource", f.r.String(), "error", why)
	s.drop(f)
}

// ending is a source that reports its failures to the feed.
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

// failed drops a feed that can no longer get events, or that cannot load. A preloaded feed retries.
func (s *feeds) failed(f *feed, err error) {
	switch {
	case errors.Is(err, source.ErrWithdrawn):
		s.withdrawn(f, err)
	case !f.loaded() && !source.MayFollow(err) && !slices.Contains(s.cfg.Preload, f.r):
		s.refuse(f, err)
	}
}

// refuse drops a feed that cannot load. If the failure is lasting, the next requests are passed on without another
// attempt, each of which would cost a refused watch. A resource that no apiserver has is not a lasting failure: its
// definition may be added, and a watch passed on until then would stay at the apiserver.
func (s *feeds) refuse(f *feed, why error) {
	lasts := errors.Is(why, source.ErrRefused) || errors.Is(why, object.ErrMalformed)
	if lasts && !slices.Contains(s.cfg.Preload, f.r) && s.remember(f.r, time.Now()) {
		s.cfg.Logger.Info("resource cannot be followed: passing its requests on", "resource", f.r.String(), "for", refusedFor, "error", why)
	}
	s.drop(f)
}

// remember records that a resource cannot be followed. It returns false if it is recorded already, or too many are.
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

// refuses reports whether a resource is recorded as one that cannot be followed.
func (s *feeds) refuses(r source.Resource) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refusedLocked(r)
}

func (s *feeds) refusedLocked(r source.Resource) bool { return time.Now().Before(s.refused[r]) }

// withdrawn drops a feed whose resource is no longer served. Apiservers answer its requests. If the resource is
// preloaded, the node is ready without it.
func (s *feeds) withdrawn(f *feed, why error) {
	s.cfg.Logger.Warn("resource is not served any more: dropping its cache", "resource", f.r.String(), "error", why)
	if slices.Contains(s.cfg.Preload, f.r) {
		s.mu.Lock()
		s.over[f.r] = true
		s.mu.Unlock()
	}
	s.drop(f)
}

// drop ends a feed and its requests.
func (s *feeds) drop(f *feed) {
	s.mu.Lock()
	if s.all[f.r] == f {
		delete(s.all, f.r)
	}
	s.mu.Unlock()
	f.stop()
}

// every returns all feeds.
func (s *feeds) every() []*feed {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.all))
}

// sweep ends the idle feeds.
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
