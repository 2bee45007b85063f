package etcdwatch

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/shardwatch/shardwatch/internal/auth/authz"
	"github.com/shardwatch/shardwatch/internal/auth/policy"
	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/edge/etcdview"
	"github.com/shardwatch/shardwatch/internal/edge/farewell"
	"github.com/shardwatch/shardwatch/internal/edge/pump"
	"github.com/shardwatch/shardwatch/internal/etcd"
	"github.com/shardwatch/shardwatch/internal/fair"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/wait"
)

func errTooManyWatches(limit int) error {
	return &kv.LimitError{Limit: "--max-watches-per-stream", Max: int64(limit), Detail: "too many watches on one stream: open another one"}
}

// Log is etcd's own log.
type Log interface {
	// History returns a part of the past. It fails with a *kv.CompactedError whose Floor
	// is etcd's compact revision.
	History(ctx context.Context, r etcd.HistoryRequest) (etcd.LogPage, error)
}

// Config configures Streams.
type Config struct {
	View   *etcdview.View
	Router *router.Router
	Log    Log
	Guard  etcdview.EtcdAuth // nil: no authentication
	Access *authz.Authorizer // nil: everything is allowed
	// OpenQueue limits the watches that are being opened at a time.
	OpenQueue *fair.Gate
	// Budget bounds the memory that the node uses for clients; nil: no bound.
	Budget *budget.Budget
	Logger *slog.Logger

	// The remaining fields are documented in etcdapi.Config.
	MaxWatchesPerStream    int
	MaxMessageBytes        int
	ProgressNotifyInterval time.Duration
	MaxStaleness           time.Duration
	HomeTimeout            time.Duration
}

// Streams serves etcd's Watch service. Create it with New.
type Streams struct {
	cfg  Config
	view *etcdview.View
	past *past

	mu       sync.Mutex
	streams  map[*stream]struct{} // guarded by mu
	draining bool                 // guarded by mu
}

// New returns Streams.
func New(cfg Config) *Streams {
	x := &Streams{cfg: cfg, view: cfg.View, streams: make(map[*stream]struct{})}
	x.past = newPast(x)
	return x
}

// Service returns the service whose watches pumps serve.
func (x *Streams) Service(pumps *pump.Pumps) etcdserverpb.WatchServer {
	return &watchService{of: x, pumps: pumps}
}

// Bounds of the watches of a node that are being opened with etcd or other nodes, and of
// the watches that wait to be opened.
const (
	maxOpens        = 1000
	MaxOpensWaiting = 100_000
)

// NewOpenQueue returns the gate that both APIs of a node share to open watches.
func NewOpenQueue() *fair.Gate { return fair.NewGate(maxOpens, MaxOpensWaiting) }

// enter registers a stream; false if the node drains.
func (x *Streams) enter(s *stream) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.draining {
		return false
	}
	x.streams[s] = struct{}{}
	return true
}

func (x *Streams) leave(s *stream) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.streams, s)
}

func (x *Streams) list() []*stream {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := make([]*stream, 0, len(x.streams))
	for s := range x.streams {
		out = append(out, s)
	}
	return out
}

// Watches returns the number of open watches.
func (x *Streams) Watches() int {
	n := 0
	for _, s := range x.list() {
		n += s.count()
	}
	return n
}

func (s *stream) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watches)
}

func (s *stream) isOpen() bool { return !wait.Over(s.gone) }

// Drain refuses new watch streams from now on.
func (x *Streams) Drain() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.draining = true
}

// Farewells returns the open watch streams. Ending one makes its client resume on another node.
func (x *Streams) Farewells() []farewell.Farewell {
	var out []farewell.Farewell
	for _, s := range x.list() {
		out = append(out, farewell.Farewell{Client: s.from, Call: s.ctx, Watches: s.count(), End: func() { s.fail(etcdview.ErrStopped) }, Open: s.isOpen})
	}
	return out
}

// Run ends the watches of users that lose the right to read their range,
// until ctx ends. (etcd checks the right only when a watch is created.)
func (x *Streams) Run(ctx context.Context) error {
	defer x.past.run(ctx)
	for {
		var changed <-chan struct{} // never, without a guard
		if x.cfg.Guard != nil {
			changed = x.cfg.Guard.Changed()
		}
		policyChanged := x.cfg.Access.Changed()
		for _, s := range x.list() {
			s.recheck()
		}
		select {
		case <-changed:
		case <-policyChanged:
		case <-ctx.Done():
			return nil
		}
	}
}

// recheck ends the watches whose callers have lost the right to read their ranges.
func (s *stream) recheck() {
	for _, w := range s.list() {
		w.recheck()
	}
}

// recheck ends the watch if its caller has lost the right to read its range.
func (w *watch) recheck() {
	x := w.s.of
	var err error
	if !w.s.caller.Allows(policy.Watch, w.rng) {
		err = etcdview.InEtcdsWords(w.s.caller.May(w.s.ctx, policy.Watch, w.rng))
	} else if x.cfg.Guard != nil {
		err = x.cfg.Guard.MayRead(w.caller, w.rng)
	}
	if err != nil && !etcdview.IsAway(err) {
		w.end(&etcdserverpb.WatchResponse{
			Header: x.view.Header(x.view.Newest()), WatchId: w.id, Canceled: true, CancelReason: err.Error(),
		})
	}
}
