package router

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wait"
)

// Shards provides the shards of the node to the router. All methods may be called from
// any goroutine.
type Shards interface {
	// Map returns the shard map that Replica uses; nil while none is known.
	Map() *shard.Map
	// Replica returns this node's copy of a shard, or nil.
	Replica(id shard.ID) *cache.Cache
	// Relay returns a running, ready relay of a shard that is not here, and a
	// function that releases it.
	Relay(ctx context.Context, id shard.ID) (*cache.Cache, func(), error)
	// Conn returns a connection to another node's peer port.
	Conn(node shard.NodeID) (grpc.ClientConnInterface, error)
	// Endpoints returns the client endpoints of the nodes, without this one.
	Endpoints(nodes []shard.NodeID) []string
}

// Clock reports etcd's revision.
type Clock interface {
	// Revision returns etcd's current revision by a linearizable read that
	// begins after the call. It fails when etcd does not answer in time.
	Revision(ctx context.Context) (kv.Revision, error)
}

// Config configures a Router.
type Config struct {
	Shards Shards
	Clock  Clock
	Self   shard.NodeID
	// MaxStaleness is the maximum age of data for serializable reads that set
	// no maximum.
	MaxStaleness time.Duration
	// Budget bounds the keys of other nodes that readings hold; nil: no bound.
	Budget *budget.Budget
	Logger *slog.Logger
}

// Bounds of waiting.
const (
	// mapTimeout bounds the wait of a stream for the first shard map.
	mapTimeout = 5 * time.Second
	// progressTimeout bounds a read's wait for a shard, nodeTimeout the part of it for which a
	// read waits for one node while others can be asked.
	progressTimeout = 3 * time.Second
	nodeTimeout     = time.Second
	// changeTimeout bounds a read's wait for a change of the shard map, which reaches
	// some nodes later than others, and for a revision whose state all shards keep;
	// changeRetry is its first pause.
	changeTimeout = time.Second
	changeRetry   = 10 * time.Millisecond
	// homelessTimeout bounds the time for which a watch may be without a source
	// before its client is sent to another node.
	homelessTimeout = 5 * time.Second
	// homelessRetry is the interval between attempts to find a source while
	// nothing changes.
	homelessRetry = 100 * time.Millisecond
	// homelessWait bounds the wait of one attempt for a relay.
	homelessWait = 500 * time.Millisecond
	// movers bounds the concurrent attempts that do not wait, waitingMovers those
	// that wait for a relay.
	movers        = 16
	waitingMovers = 256
)

// Router finds shards. Create it with New; it serves at once, and Run moves
// watches to new caches when theirs have retired.
type Router struct {
	cfg     Config
	kick    wait.Bell
	fetches fetches
	over    chan struct{} // see load

	// place closes placed once there is a shard map.
	placed chan struct{}
	place  func()

	mu        sync.Mutex
	homeless  map[*Watch]struct{}        // guarded by mu; the watches without a source
	windows   map[*cache.Cache][]*merged // guarded by mu; the windows in use, by their first cache
	perWindow int64                      // mergedBytes, except in tests
	nWindows  int                        // guarded by mu
	ended     bool                       // guarded by mu; Run has ended
	merging   sync.WaitGroup             // goroutines that fill windows
}

// New returns a Router.
func New(cfg Config) *Router {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	r := &Router{
		cfg: cfg, kick: wait.NewBell(), over: make(chan struct{}, 1), placed: make(chan struct{}),
		homeless: make(map[*Watch]struct{}), windows: make(map[*cache.Cache][]*merged), perWindow: mergedBytes,
	}
	r.place = sync.OnceFunc(func() { close(r.placed) })
	return r
}

// Kick notifies the router that the shard map or the caches have changed.
func (r *Router) Kick() {
	if r.cfg.Shards.Map() != nil {
		r.place()
	}
	r.kick.Wake()
}

// Run finds new sources for watches until ctx ends. Then watches over several shards
// pause.
func (r *Router) Run(ctx context.Context) error {
	var waiting errgroup.Group
	waiting.SetLimit(waitingMovers)
	defer r.endMerged()
	defer func() { _ = waiting.Wait() }() // always nil
	for {
		var retry <-chan time.Time
		if r.searching() { // an idle node has no timer
			retry = time.After(homelessRetry)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.kick:
		case <-retry:
		}
		r.settle(ctx, &waiting)
	}
}

// searching reports whether a watch has no source.
func (r *Router) searching() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.homeless) > 0
}

// settle makes one attempt for every watch without a source. Watches whose shards are
// on this node have a source before it returns; a wait for a relay blocks no other watch.
func (r *Router) settle(ctx context.Context, waiting *errgroup.Group) {
	r.mu.Lock()
	looking := r.homeless
	r.homeless = make(map[*Watch]struct{})
	r.mu.Unlock()
	var g errgroup.Group
	g.SetLimit(movers)
	for w := range looking {
		g.Go(func() error {
			if w.settle(ctx, false) {
				w.waker.Wake()
			} else if !waiting.TryGo(func() error { r.await(ctx, w); return nil }) {
				r.keep(w)
			}
			return nil
		})
	}
	_ = g.Wait() // always nil
}

// await makes one attempt that may wait for a relay. The next attempt begins
// after homelessRetry at the earliest.
func (r *Router) await(ctx context.Context, w *Watch) {
	ctx, cancel := context.WithTimeout(ctx, homelessWait)
	defer cancel()
	next := time.NewTimer(homelessRetry)
	defer next.Stop()
	if w.settle(ctx, true) {
		w.waker.Wake()
		return
	}
	select {
	case <-next.C:
	case <-ctx.Done():
	}
	r.keep(w)
	r.Kick()
}

// keep schedules another attempt for a watch.
func (r *Router) keep(w *Watch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.homeless[w] = struct{}{}
}

// Now returns etcd's revision, read after the call. It fails with a
// *kv.UnavailableError.
func (r *Router) Now(ctx context.Context) (kv.Revision, error) {
	revision, err := r.cfg.Clock.Revision(ctx)
	if err != nil {
		return 0, &kv.UnavailableError{
			Why: kv.EtcdUnavailable, RetryAfter: time.Second,
			Detail: fmt.Sprintf("etcd's current revision is not available: %v", err),
		}
	}
	return revision, nil
}

// Newest returns the newest revision that a shard of this node has reached; 0
// when it has none.
func (r *Router) Newest() kv.Revision {
	m := r.cfg.Shards.Map()
	if m == nil {
		return 0
	}
	var newest kv.Revision
	for i := range m.Shards {
		if c := r.cfg.Shards.Replica(m.Shards[i].ID); c != nil {
			newest = max(newest, c.Progress())
		}
	}
	return newest
}

// RevisionSize returns the mean size in bytes of a revision in the windows of this node, or of a key
// in its states if that is larger; 0 when it has none.
func (r *Router) RevisionSize() int64 {
	m := r.cfg.Shards.Map()
	if m == nil {
		return 0
	}
	var window, batches, state, keys int64
	for i := range m.Shards {
		if c := r.cfg.Shards.Replica(m.Shards[i].ID); c != nil {
			s := c.Status()
			window, batches = window+s.WindowBytes, batches+s.WindowBatches
			state, keys = state+s.StateBytes, keys+int64(s.Keys)
		}
	}
	return max(window/max(batches, 1), state/max(keys, 1))
}

// History returns the current history of the cluster; the zero HistoryID while it
// is not known.
func (r *Router) History() kv.HistoryID {
	m := r.cfg.Shards.Map()
	if m == nil {
		return kv.HistoryID{}
	}
	return kv.HistoryID{Cluster: m.ClusterID, Lineage: m.Lineage}
}

// AwaitMap waits for the first shard map: without a map, this node can neither check the
// lineage of a client's position nor find its keys. Streams wait for it before
// they create watches. It fails with a *kv.UnavailableError after mapTimeout.
func (r *Router) AwaitMap(ctx context.Context) error {
	known := func() bool { return r.cfg.Shards.Map() != nil }
	if known() {
		return nil
	}
	timeout := time.NewTimer(mapTimeout)
	defer timeout.Stop()
	select {
	case <-r.placed:
	case <-timeout.C:
		if !known() {
			return noMap()
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

func noMap() error {
	return &kv.UnavailableError{
		Why: kv.NotReady, RetryAfter: time.Second,
		Detail: "this node has no shard map yet: the cluster is being founded, or no member answers (see --join)",
	}
}

// parts returns the shards that a range touches. It fails if the range cannot be served.
func (r *Router) parts(rng kv.Range) (*shard.Map, []shard.Shard, error) {
	m := r.cfg.Shards.Map()
	if m == nil {
		return nil, nil, noMap()
	}
	if !m.Covers(rng) {
		return nil, nil, &kv.NotServedError{Range: rng, Served: m.Spec.Ranges}
	}
	return m, m.Overlapping(rng), nil
}

// Elsewhere returns the client endpoints of other nodes that have the first
// shard of a range, best first.
func (r *Router) Elsewhere(rng kv.Range) []string {
	m := r.cfg.Shards.Map()
	if m == nil {
		return nil
	}
	shards := m.Overlapping(rng)
	if len(shards) == 0 {
		return nil
	}
	return r.cfg.Shards.Endpoints(shards[0].Replicas)
}

// notHere returns an error with the endpoints of the nodes that have the shard.
func (r *Router) notHere(s *shard.Shard) error {
	return &kv.NotHereError{Shard: uint64(s.ID), Epoch: s.Epoch, Endpoints: r.cfg.Shards.Endpoints(s.Replicas)}
}

// Soon translates a cache's ErrNotReady and ErrRetired into an error that a client retries.
func Soon(s *shard.Shard, err error) error {
	if errors.Is(err, cache.ErrNotReady) || errors.Is(err, cache.ErrRetired) {
		return &kv.UnavailableError{Why: kv.NotReady, RetryAfter: 100 * time.Millisecond, Detail: fmt.Sprintf("shard %d: %v", s.ID, err)}
	}
	return err
}
