// Package mapfollow follows the shard map and the members at one node after another,
// limited to the shards that the watches of a client need.
//
// Read [Follower] first. It is safe for use by several goroutines.
package mapfollow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/client/internal/connect"
	"github.com/shardwatch/shardwatch/client/internal/keyrange"
	"github.com/shardwatch/shardwatch/client/internal/nodes"
	"github.com/shardwatch/shardwatch/client/internal/outcome"
	"github.com/shardwatch/shardwatch/client/internal/retry"
	"github.com/shardwatch/shardwatch/client/internal/shardmap"
)

// maxMap bounds a shard map: 100,000 shards take some 21 MB.
const maxMap = 64 << 20

// narrowEvery is how often a client checks for shards that it no longer needs to follow.
const narrowEvery = time.Minute

// Watches are the watches of a client.
type Watches interface {
	// Ranges returns the ranges of the watches that have not ended.
	Ranges() []keyrange.Range
	// Open places all watches: the map is known, or the first attempt to get it has failed.
	Open()
	// Mapped places the watches that wait for shards that t has.
	Mapped(t *shardmap.Topology)
	// Regroup makes the watches leave nodes of other clusters.
	Regroup(cluster string)
}

// Config configures a [Follower]. All fields must be set.
type Config struct {
	Pool      *nodes.Pool
	Pulse     *retry.Pulse // the clock for the silence of nodes
	Connect   *connect.Options
	Logger    *slog.Logger
	Endpoints []string // connections to these are kept
	// Pick returns the address of the node to ask next.
	Pick    func(tried retry.Tried) string
	Watches Watches
}

// Follower follows the shard map at one node after another, limited to the shards that
// the client's watches need.
type Follower struct {
	cfg Config

	Topology atomic.Pointer[shardmap.Topology] // nil: not known yet
	First    chan struct{}                     // closed by Run: the map is known, or the first attempt failed
	Unmapped atomic.Int64                      // watches that wait for the shards of their ranges
	grown    chan struct{}                     // capacity 1: a watch needs shards that are not known

	mu       sync.Mutex
	unfollow func() // switches to another node; guarded by mu
}

// New returns a follower without a map.
func New(cfg Config) *Follower {
	return &Follower{cfg: cfg, First: make(chan struct{}), grown: make(chan struct{}, 1)}
}

// Run keeps the topology up to date until ctx ends.
func (f *Follower) Run(ctx context.Context) {
	var failures int
	var tried retry.Tried
	opened := sync.OnceFunc(func() { f.open() })
	defer opened()
	lost := false
	for ctx.Err() == nil {
		addr := f.cfg.Pick(tried)
		got := false
		began := time.Now()
		err := f.followAt(ctx, addr, func() {
			got = true
			if lost {
				lost = false
				f.cfg.Logger.Info("cluster reachable again", "node", addr)
			}
			opened()
		})
		if ctx.Err() != nil {
			return
		}
		if got && time.Since(began) > retry.Settled {
			failures, tried = 0, nil
		}
		failures++
		v := outcome.Judge(err)
		f.cfg.Connect.Renewed(v, began)
		if v.Penalise || errors.Is(err, outcome.ErrSilent) {
			f.cfg.Pool.Penalise(addr, 0)
		}
		if failures == len(f.cfg.Endpoints)+2 && !lost {
			lost = true
			f.cfg.Logger.Warn("no node answers; retrying", "endpoints", f.cfg.Endpoints, "last_error", outcome.Brief(err))
		}
		opened()
		tried.Add(addr)
		if !retry.Sleep(ctx, retry.Backoff(failures, v.After)) {
			return
		}
	}
}

// open releases the calls and watches that wait for the first map.
func (f *Follower) open() {
	close(f.First)
	f.cfg.Watches.Open()
}

// followAt follows the map and members at one node until that fails; got is called for messages.
func (f *Follower) followAt(parent context.Context, addr string, got func()) error {
	n, err := f.cfg.Pool.Get(addr)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	cluster := pb.NewClusterServiceClient(n.Conn)
	defer f.Following(nil)

	var heard atomic.Int64 // on the pulse; 0: nothing yet. A map that does not change sends nothing
	var g sync.WaitGroup
	defer g.Wait()
	defer cancel(nil)
	g.Go(func() {
		if f.cfg.Pool.Probe(ctx, n, &heard) {
			cancel(outcome.ErrSilent)
		}
	})

	for err == nil {
		err = f.followPart(ctx, cluster, addr, func() {
			heard.Store(int64(f.cfg.Pulse.Ran()))
			f.Following(func() { cancel(outcome.ErrForeign) }) // not before: a map that has not arrived cannot be doubted
			f.cfg.Pool.Praise(addr)
			got()
		})
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, outcome.ErrSilent):
		f.cfg.Pool.Drop(n)
		return fmt.Errorf("%s: %w", addr, outcome.ErrSilent)
	case errors.Is(cause, outcome.ErrForeign):
		return fmt.Errorf("%s: %w than others", addr, outcome.ErrForeign)
	}
	return fmt.Errorf("%s: follow the shard map: %w", addr, err)
}

// followPart follows the part of the topology that the client needs at one node, until
// the client needs another part. got is called for every message.
func (f *Follower) followPart(ctx context.Context, cluster pb.ClusterServiceClient, addr string, got func()) error {
	in := f.interest()
	t := f.Topology.Load().Narrowed(in)
	if t != nil {
		f.Topology.Store(t)
	}
	part, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	stream, err := cluster.WatchShardMap(part, t.Request(addr, in), grpc.MaxCallRecvMsgSize(maxMap))
	for first := true; err == nil; first = false {
		var r *pb.WatchShardMapResponse
		if r, err = stream.Recv(); err == nil {
			if err = f.learn(addr, in, r); err == nil {
				got()
			}
		}
		if first && err == nil {
			watching.Go(func() {
				f.outgrown(part, in)
				cancel()
			})
		}
	}
	if part.Err() != nil && ctx.Err() == nil {
		return nil
	}
	return err //nolint:wrapcheck // wrapped by followAt
}

// learn applies a message of a node to the topology.
func (f *Follower) learn(addr string, in shardmap.Interest, r *pb.WatchShardMapResponse) error {
	old := f.Topology.Load()
	t, err := old.With(addr, in, r)
	if err != nil {
		return err
	}
	f.Topology.Store(t)
	if f.Unmapped.Load() > 0 {
		f.cfg.Watches.Mapped(t)
	}
	f.cfg.Pool.Forget(f.known(t))
	if old == nil || old.ClusterID != t.ClusterID {
		f.cfg.Watches.Regroup(t.ClusterID)
	}
	return nil
}

// Following sets the function with which [Follower.Doubt] switches to another node; nil:
// no node is followed.
func (f *Follower) Following(unfollow func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unfollow = unfollow
}

// Doubt follows the map at another node if t is still current: a node turned out to
// belong to another cluster.
func (f *Follower) Doubt(t *shardmap.Topology) {
	f.mu.Lock()
	unfollow := f.unfollow
	f.mu.Unlock()
	if f.Topology.Load() == t && unfollow != nil {
		unfollow()
	}
}

// interest returns the part of the map that the client needs.
func (f *Follower) interest() shardmap.Interest {
	return f.Topology.Load().Need(f.cfg.Watches.Ranges())
}

// outgrown returns when the client needs another part of the map than requested, or when ctx ends.
func (f *Follower) outgrown(ctx context.Context, in shardmap.Interest) {
	tick := time.NewTicker(narrowEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.grown:
			t := f.Topology.Load()
			if slices.ContainsFunc(f.cfg.Watches.Ranges(), func(r keyrange.Range) bool { return !t.Covers(r) }) {
				return
			}
		case <-tick.C:
			if now := f.interest(); f.Topology.Load().Narrower(in, now) {
				return
			}
		}
	}
}

// Grow requests the shards of further ranges.
func (f *Follower) Grow() {
	select {
	case f.grown <- struct{}{}:
	default:
	}
}

// known returns the addresses of the nodes that may serve, and the endpoints.
func (f *Follower) known(t *shardmap.Topology) map[string]bool {
	known := map[string]bool{}
	for _, m := range t.Members {
		if !m.Gone() {
			known[m.Address] = true
		}
	}
	for _, e := range f.cfg.Endpoints {
		known[e] = true
	}
	return known
}
