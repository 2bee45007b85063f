package native

import (
	"context"
	"iter"
	"sync"
	"time"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/auth/authz"
	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/edge/callers"
	"github.com/shardwatch/shardwatch/internal/edge/pump"
	"github.com/shardwatch/shardwatch/internal/edge/syncbatch"
	"github.com/shardwatch/shardwatch/internal/fair"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/ops/watchstats"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// Config configures an API. All fields are required, except where nil is explained.
type Config struct {
	Router *router.Router
	// Callers identifies callers. Guard checks the read rights of clients; nil: they may read
	// everything.
	Callers *callers.Checker
	Guard   callers.EtcdAuth
	// Access is the policy; nil: it allows everything. Audit records refusals; nil: no audit.
	Access *authz.Authorizer
	Audit  *authz.Audit
	// OpenQueue limits the watches that are being opened at a time.
	OpenQueue *fair.Gate
	// Budget bounds the memory that the node uses for clients; nil: no bound.
	Budget *budget.Budget
	// Turns schedules expensive work fairly among clients.
	Turns *fair.Turns
	// Stopping is closed once no new watch may start.
	Stopping <-chan struct{}
	// Happened is called with operator events about watches. It must not
	// block; nil: not called.
	Happened func(Happening)
	Self     shard.NodeID

	// The remaining fields are documented in server.Config.
	MaxWatchesPerStream int
	MaxResyncs          int
	ResyncRate          int64
	Patience            syncbatch.Patience
	FragmentBytes       int
	ProgressInterval    time.Duration
}

// Bounds of the progress interval that a client may request.
const (
	MinProgressInterval = 100 * time.Millisecond
	MaxProgressInterval = 10 * time.Minute
)

// API serves the native API's reads and watches. Create it with New.
type API struct {
	cfg     Config
	batches *syncbatch.Queue

	mu       sync.Mutex
	streams  map[*stream]struct{} // guarded by mu
	draining bool                 // guarded by mu
}

// New returns an API.
func New(cfg Config) *API {
	a := &API{cfg: cfg, streams: make(map[*stream]struct{})}
	a.batches = syncbatch.New(syncbatch.Config{
		Router: cfg.Router, Budget: cfg.Budget, MaxResyncs: cfg.MaxResyncs, ResyncRate: cfg.ResyncRate,
		FragmentBytes: cfg.FragmentBytes, Patience: cfg.Patience, Done: a.resynced,
	})
	return a
}

// ForClients returns the service for clients, whose watches pumps serve. ForNodes returns the service
// for other nodes: it serves only this node's shards and forwards nothing.
func (a *API) ForClients(pumps *pump.Pumps) shardwatchv1.CacheServiceServer {
	return &service{api: a, pumps: pumps}
}

// ForNodes is documented with ForClients.
func (a *API) ForNodes(pumps *pump.Pumps) shardwatchv1.CacheServiceServer {
	return &service{api: a, pumps: pumps, local: true}
}

// Run builds sync batches, and ends watches whose callers have lost their rights, until
// ctx ends.
func (a *API) Run(ctx context.Context) {
	var wg sync.WaitGroup
	if a.cfg.Guard != nil {
		wg.Go(func() { a.recheck(ctx) })
	}
	if a.cfg.Access != nil {
		wg.Go(func() { a.enforce(ctx) })
	}
	a.batches.Run(ctx)
	wg.Wait()
}

// Drain refuses new streams from now on. left returns the number of remaining watches on
// the streams that were open at the time of the call.
func (a *API) Drain() (left func() int) {
	a.mu.Lock()
	a.draining = true
	a.mu.Unlock()
	streams := a.allStreams()
	return func() (n int) {
		for _, st := range streams {
			n += st.count()
		}
		return n
	}
}

// Watches returns the number of open watches.
func (a *API) Watches() (n int) {
	for _, st := range a.allStreams() {
		n += st.count()
	}
	return n
}

// Watchers returns the open watches of clients. It blocks no other caller,
// and may include watches that have just ended.
func (a *API) Watchers() iter.Seq[watchstats.Watcher] {
	return func(yield func(watchstats.Watcher) bool) {
		for _, st := range a.allStreams() {
			for _, w := range st.list() {
				if w.stats.Mode() == 0 {
					continue
				}
				out := watchstats.Watcher{Client: st.from, ID: w.id, Range: w.rng, Watch: &w.stats}
				if caller := w.caller.Load(); caller != nil {
					out.User = *caller
				}
				if !yield(out) {
					return
				}
			}
		}
	}
}

// Batches returns the counts of sync batches since the start, by outcome.
func (a *API) Batches() syncbatch.Stats { return a.batches.Stats() }

// allStreams returns the Watch streams.
func (a *API) allStreams() []*stream {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]*stream, 0, len(a.streams))
	for st := range a.streams {
		out = append(out, st)
	}
	return out
}

// tooMany returns the error of a watch over the limit.
func (a *API) tooMany() error {
	return &kv.LimitError{
		Limit: "--max-watches-per-stream", Max: int64(a.cfg.MaxWatchesPerStream),
		Detail: "too many watches on one stream: open another one", RetryAfter: time.Second,
	}
}

// enter registers a stream; false if the node drains.
func (a *API) enter(st *stream) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.draining {
		return false
	}
	a.streams[st] = struct{}{}
	return true
}

func (a *API) leave(st *stream) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.streams, st)
}
