package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/edge/pump"
	"github.com/shardwatch/shardwatch/internal/fair"
	"github.com/shardwatch/shardwatch/internal/kube/guard"
	"github.com/shardwatch/shardwatch/internal/kube/object"
	"github.com/shardwatch/shardwatch/internal/kube/source"
	"github.com/shardwatch/shardwatch/internal/kube/tier"
	"github.com/shardwatch/shardwatch/internal/kube/upstream"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// Config configures a Server.
type Config struct {
	// Node and Zone are the name and zone of this node, for its report.
	Node, Zone string
	// Source follows the resources.
	Source *source.Client
	// Tier is the group of nodes that follow the same resources; nil: there is only this node.
	Tier *tier.Tier
	// Guard identifies the sender of a request, and decides whether caches may answer it.
	// If they may not, an apiserver authorizes it.
	Guard *guard.Guard
	// Upstream answers the requests that caches cannot; see upstream.New.
	Upstream http.Handler
	// Impersonates means that Upstream impersonates the sender, so that a request
	// cannot impersonate another user.
	Impersonates bool
	// Secrets has secrets served from caches, too; otherwise their requests are passed
	// on, and secrets are never held.
	Secrets bool
	// NoDelta makes watches below the window fail with 410 instead of getting the difference.
	NoDelta bool
	// Recheck is the interval between reviews of the rights of the senders of open
	// watches.
	Recheck time.Duration
	// Cache configures the cache of each resource.
	Cache cache.Config
	// PastBytes bounds former versions of objects, for each resource.
	PastBytes int64
	// Budget bounds the memory that requests take, for each client and in total.
	Budget *budget.Budget
	// Turns share the CPU time of lists among clients; nil: the server makes its own.
	Turns *fair.Turns
	// Preload are the resources that are always followed, from the start.
	Preload []source.Resource
	// MaxFeeds bounds the number of followed resources; requests for others go to
	// Upstream.
	MaxFeeds int
	// Idle is the time without requests after which a resource is no longer followed.
	Idle time.Duration
	// Patience bounds how long a request waits for a version.
	Patience time.Duration
	// BookmarkEvery is the interval between bookmarks of a watch.
	BookmarkEvery time.Duration
	// WriteTime is the time after which a watch ends if its client reads nothing.
	WriteTime time.Duration
	Logger    *slog.Logger
}

// Defaults returns the Config of a production node, without Source, Guard,
// Upstream and Budget.
func Defaults() Config {
	c := Config{
		Cache: cache.Defaults(), PastBytes: 32 << 20, MaxFeeds: 200, Idle: 10 * time.Minute,
		Patience: 10 * time.Second, BookmarkEvery: time.Minute, WriteTime: writeTime,
		// A lost right ends a watch within 15 seconds: Recheck, the guard's 10 seconds, and a review.
		Recheck: 3 * time.Second,
	}
	c.SetWindow(c.Cache.WindowBytes, c.Cache.WindowTime)
	return c
}

// SetWindow bounds the window of each resource, in bytes and in time. Lists may be at versions of that time, but of
// 5 minutes at most, as at apiservers, which compact etcd every 5 minutes. The states of these versions take at
// most a quarter of bytes, or 32 MiB if that is more, in addition.
func (c *Config) SetWindow(bytes int64, age time.Duration) {
	c.Cache.WindowBytes, c.Cache.WindowTime = bytes, age
	c.Cache.RootsBytes, c.Cache.RootsTime = max(32<<20, bytes/4), min(age, 5*time.Minute)
}

// Validate returns every mistake, joined.
func (c *Config) Validate() error {
	var errs []error
	if c.Source == nil || c.Guard == nil || c.Upstream == nil || c.Budget == nil {
		errs = append(errs, errors.New("kube: Source, Guard, Upstream and Budget must be set"))
	}
	for name, value := range map[string]int64{
		"PastBytes": c.PastBytes, "MaxFeeds": int64(c.MaxFeeds), "Idle": int64(c.Idle), "Patience": int64(c.Patience), "BookmarkEvery": int64(c.BookmarkEvery),
		"Recheck": int64(c.Recheck), "WriteTime": int64(c.WriteTime),
	} {
		if value <= 0 {
			errs = append(errs, fmt.Errorf("kube: %s must be above 0", name))
		}
	}
	return errors.Join(errs...)
}

// Server answers requests from caches, or passes them on.
type Server struct {
	cfg     Config
	started time.Time
	feeds   *feeds
	stop    context.CancelFunc
	counts  counts
	rounds  rounds
	pumps   pump.Pumps

	draining chan struct{}  // closed when the watches have to end
	spread   atomic.Int64   // the time within which they end, in nanoseconds
	sockets  sync.WaitGroup // watches over WebSockets
}

// New returns a server. It follows resources that are requested, until Run has
// ended.
func New(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	cfg.Turns = cmp.Or(cfg.Turns, fair.NewTurns())
	s := &Server{cfg: cfg, started: time.Now(), draining: make(chan struct{}), rounds: rounds{all: map[sender]*reviewed{}}}
	ctx, stop := context.WithCancel(context.Background())
	s.stop, s.feeds = stop, &feeds{cfg: &s.cfg, ctx: ctx, all: map[source.Resource]*feed{}, over: map[source.Resource]bool{}, refused: map[source.Resource]time.Time{}}
	return s, nil
}

// Run stops following idle resources until ctx ends; then it ends all watches
// and stops following the other resources.
func (s *Server) Run(ctx context.Context) error {
	defer s.feeds.run.Wait()
	defer s.stop()
	s.preload()
	often := time.NewTicker(max(s.cfg.Idle/4, time.Millisecond))
	defer often.Stop()
	rounds := time.NewTicker(s.cfg.every())
	defer rounds.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-rounds.C:
			s.round(now)
		case now := <-often.C:
			s.preload()
			s.feeds.sweep(now, s.cfg.Idle)
		}
	}
}

// preload uses the resources that are always followed, which starts their feeds
// and keeps them from becoming idle.
func (s *Server) preload() {
	for _, r := range s.cfg.Preload {
		if f := s.feeds.use(r); f != nil {
			f.release()
		}
	}
}

// NotReady returns the reasons why clients should use another node; none: the node is ready.
func (s *Server) NotReady() (reasons []string) {
	select {
	case <-s.draining:
		reasons = append(reasons, "draining")
	default:
	}
	for _, r := range s.cfg.Preload {
		if !s.feeds.loaded(r) {
			reasons = append(reasons, s.feeds.waits(r).Error())
		}
	}
	return reasons
}

// ServeHTTP answers from caches if it can.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, status := s.cfg.Guard.Identify(r)
	if status != nil {
		s.counts.failed.Add(1)
		fail(w, status)
		return
	}
	r = guard.With(r, id)
	if upstream.Impersonates(r) {
		if s.cfg.Impersonates {
			s.counts.failed.Add(1)
			fail(w, &object.Status{Code: http.StatusForbidden, Reason: "Forbidden", Message: "this node impersonates its clients, which cannot impersonate others: ask an apiserver"})
			return
		}
		s.pass(w, r)
		return
	}
	q, ok := parse(r)
	if !ok || !s.mayHold(q.resource) {
		s.pass(w, r)
		return
	}
	allowed, status := s.cfg.Guard.Allow(r.Context(), id, q.attributes())
	if status != nil {
		s.counts.failed.Add(1)
		fail(w, status)
		return
	}
	if allowed {
		for _, q.form = range q.forms {
			q.resource.Encoding = q.form.enc
			err := s.answer(w, r, q)
			if err == nil {
				return
			}
			if !errors.Is(err, errNotFollowed) {
				break // another form would fail alike, and load its resource for nothing
			}
		}
	}
	s.pass(w, r)
}

// mayHold reports whether a resource may be cached.
func (s *Server) mayHold(r source.Resource) bool {
	return s.cfg.Secrets || r.Group != "" || r.Name != "secrets"
}

// pass passes a request on, once there is memory for it.
func (s *Server) pass(w http.ResponseWriter, r *http.Request) {
	use, n := upstream.Bytes(r)
	ctx, cancel := context.WithTimeout(r.Context(), s.cfg.Patience)
	defer cancel()
	held, err := s.cfg.Budget.Reserve(ctx, clientOf(r), use, n)
	if err != nil {
		s.counts.failed.Add(1)
		fail(w, object.Later(err))
		return
	}
	defer held.Release()
	s.counts.passed.Add(1)
	s.cfg.Upstream.ServeHTTP(w, r)
}

func clientOf(r *http.Request) budget.Client {
	return budget.Client{Name: guard.From(r).User, Max: budget.HalfOfTotal}
}

// mayStill reports whether the sender of a request still has the right to the answer.
func (s *Server) mayStill(r *http.Request, q *request) bool {
	id, status := s.cfg.Guard.Identify(r)
	if status != nil {
		return false
	}
	allowed, status := s.cfg.Guard.AllowStill(r.Context(), id, q.attributes())
	return allowed && status == nil
}

// answer answers a request in one form. If it returns an error, it has sent nothing: errNotFollowed if
// another form may succeed, otherwise errUpstream.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, q *request) error {
	f := s.feeds.use(q.resource)
	if f == nil {
		return errNotFollowed
	}
	defer f.release()
	ctx, cancel := context.WithTimeout(r.Context(), s.cfg.Patience)
	defer cancel()
	kind, err := s.ready(ctx, f)
	switch {
	case errors.Is(err, errNotFollowed):
		s.feeds.refuse(f, err)
		return errNotFollowed
	case err != nil:
		s.counts.failed.Add(1)
		fail(w, object.Later(err))
		return nil
	case !q.selector.Supports(kind.APIVersion, kind.Kind):
		return errUpstream
	case q.namespace != "" && f.clusterScoped(ctx):
		return errUpstream // apiservers do not serve the path
	}
	a := &answer{s: s, f: f, q: q, kind: kind, client: clientOf(r)}
	if q.watch {
		err = a.watch(ctx, w, r)
	} else {
		err = a.read(ctx, w)
	}
	switch {
	case errors.Is(err, errUpstream):
		return errUpstream
	case err != nil:
		s.counts.failed.Add(1)
		fail(w, statusOf(err))
	default:
		s.counts.cached.Add(1)
	}
	return nil
}

var (
	// errNotFollowed reports that apiservers do not serve the resource in this
	// encoding, or not to this node.
	errNotFollowed = errors.New("the resource cannot be followed")
	// errUpstream reports that an apiserver has to answer.
	errUpstream = errors.New("the caches cannot answer")
)

// ready waits until a feed is loaded.
func (s *Server) ready(ctx context.Context, f *feed) (source.Kind, error) {
	for {
		failed := f.src.Failed()
		select {
		case <-f.cache.Ready():
			return f.kind(ctx, s.cfg.Source)
		case err := <-failed:
			// A loaded feed also fails when it resumes. It ends only if it is withdrawn.
			if !f.loaded() && !source.MayFollow(err) {
				return source.Kind{}, fmt.Errorf("%w: %w", errNotFollowed, err)
			}
		case <-f.ended: // dropped because of its failure, or by another request
			return source.Kind{}, errNotFollowed
		case <-ctx.Done():
			return source.Kind{}, s.feeds.waits(f.r)
		case <-s.feeds.ctx.Done():
			return source.Kind{}, errors.New("the node stops")
		}
	}
}

// expired returns the status of a version that is no longer available, with a token that continues
// the list.
func expired(version kv.Revision, token string) *object.Status {
	return &object.Status{Code: http.StatusGone, Reason: "Expired", Continue: token, Message: fmt.Sprintf("version %d is too old, or of another history: list again", version)}
}

// tooLarge returns the status of a version that the cache has not reached.
func tooLarge(version, current kv.Revision) *object.Status {
	return &object.Status{
		Code: http.StatusGatewayTimeout, Reason: "Timeout", Cause: "ResourceVersionTooLarge", RetryAfter: 1,
		Message: fmt.Sprintf("Too large resource version: %d, current: %d", version, current),
	}
}

func statusOf(err error) *object.Status {
	if status, ok := errors.AsType[*object.Status](err); ok {
		return status
	}
	return object.Later(err)
}

// fail sends a failure.
func fail(w http.ResponseWriter, status *object.Status) {
	if status.RetryAfter > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(status.RetryAfter))
	}
	w.Header().Set("Content-Type", object.JSON.MediaType())
	w.WriteHeader(status.Code)
	_, _ = w.Write(status.Encode(object.JSON)) // the client may have gone
}
