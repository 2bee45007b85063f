package api

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kube/source"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// feed is a resource that is followed: its cache, and what belongs to it.
type feed struct {
	r     source.Resource
	src   *source.Source
	cache *cache.Cache
	past  *past
	stop  context.CancelFunc

	users atomic.Int64 // requests that use it
	used  atomic.Int64 // when the last of them ended, in nanoseconds of Unix
}

// feeds are the resources that are followed.
type feeds struct {
	cfg *Config
	ctx context.Context //nolint:containedctx // ends all feeds; they outlive the request that starts them

	mu  sync.Mutex
	all map[source.Resource]*feed // guarded by mu
	run sync.WaitGroup
}

// use returns the feed of a resource, which the caller releases, and starts it
// if there is none; nil: there are too many.
func (s *feeds) use(r source.Resource) *feed {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.all[r]
	if f == nil {
		if len(s.all) >= s.cfg.MaxFeeds || s.ctx.Err() != nil {
			return nil
		}
		f = s.startLocked(r)
	}
	f.users.Add(1)
	return f
}

// loaded reports whether a resource has its state.
func (s *feeds) loaded(r source.Resource) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.all[r]
	if f == nil {
		return false
	}
	select {
	case <-f.cache.Ready():
		return true
	default:
		return false
	}
}

func (f *feed) release() {
	f.used.Store(time.Now().UnixNano())
	f.users.Add(-1)
}

func (s *feeds) startLocked(r source.Resource) *feed {
	ctx, stop := context.WithCancel(s.ctx)
	f := &feed{r: r, past: newPast(s.cfg.PastBytes), stop: stop}
	f.used.Store(time.Now().UnixNano())
	f.src = s.cfg.Source.Source(r, f.past.gap)
	cfg := s.cfg.Cache
	cfg.Range, cfg.Source, cfg.Logger = r.InNamespace(""), f.src, s.cfg.Logger
	cfg.Applied = f.past.deleted
	cfg.OtherHistory = func(e *kv.ContradictionError) {
		// The versions of the resource went back: etcd was restored. A new feed
		// begins with the next request, and positions of this one end.
		s.cfg.Logger.Warn("resource has another history than before: dropping its cache", "resource", r.String(), "error", e)
		s.drop(f)
	}
	f.cache = cache.New(cfg)
	s.all[r] = f
	s.run.Go(func() {
		_ = f.cache.Run(ctx) // nil, once ctx ends
	})
	s.cfg.Logger.Info("following resource", "resource", r.String())
	return f
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

// feedsStatus adds up what feeds hold.
type feedsStatus struct{ feeds, objects, bytes, losses int64 }

func (s *feeds) status() (sum feedsStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.all {
		st := f.cache.Status()
		sum.feeds++
		sum.objects += int64(st.Keys)
		sum.bytes += st.StateBytes + st.RootsBytes + st.WindowBytes
		sum.losses += st.Resets + st.Leaps
	}
	return sum
}

// sweep ends the feeds that no request has used for a time.
func (s *feeds) sweep(now time.Time, idle time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r, f := range s.all {
		if f.users.Load() == 0 && now.Sub(time.Unix(0, f.used.Load())) >= idle {
			delete(s.all, r)
			f.stop()
			s.cfg.Logger.Info("resource is not followed any more", "resource", r.String())
		}
	}
}
