package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/client/internal/keyrange"
	"github.com/shardwatch/shardwatch/client/internal/outcome"
	"github.com/shardwatch/shardwatch/client/internal/retry"
	"github.com/shardwatch/shardwatch/client/internal/shardmap"
)

// probeEvery is how long the map may be quiet before its node is asked
// whether it is still there: a map that does not change sends nothing.
const probeEvery = 5 * time.Second

// maxMap bounds a shard map: 100,000 shards take some 21 MB.
const maxMap = 64 << 20

// narrowEvery is how often a client looks for shards that it need not follow any
// more.
const narrowEvery = time.Minute

// follower follows the shard map at one node after the other, as far as the client's
// watches need it.
type follower struct {
	c        *Client
	topology atomic.Pointer[shardmap.Topology]
	first    chan struct{} // closed by run: the map is known, or the first try failed
	grown    chan struct{} // capacity 1: a watch needs shards that are not known
	unmapped atomic.Int64  // watches that wait for the shards of their ranges

	mu       sync.Mutex
	unfollow func() // has the map followed at another node; guarded by mu
}

func newFollower(c *Client) *follower {
	return &follower{c: c, first: make(chan struct{}), grown: make(chan struct{}, 1)}
}

// run keeps the topology until the client is closed.
func (f *follower) run() {
	var failures int
	var tried retry.Tried
	opened := sync.OnceFunc(func() { f.open() })
	defer opened()
	lost := false
	for f.c.ctx.Err() == nil {
		addr := f.c.pick(Range{}, nil, tried)
		got := false
		began := time.Now()
		err := f.followAt(addr, func() {
			got = true
			if lost {
				lost = false
				f.c.cfg.Logger.Info("cluster found again", "node", addr)
			}
			opened()
		})
		if f.c.ctx.Err() != nil {
			return
		}
		if got && time.Since(began) > retry.Settled {
			failures, tried = 0, nil
		}
		failures++
		v := judge(err)
		f.c.connect.Renewed(v, began)
		if v.Penalise || errors.Is(err, outcome.ErrSilent) {
			f.c.pool.Penalise(addr, 0)
		}
		if failures == len(f.c.cfg.Endpoints)+2 && !lost {
			lost = true
			f.c.cfg.Logger.Warn("no node answers; retrying", "endpoints", f.c.cfg.Endpoints, "last_error", outcome.Brief(err))
		}
		opened()
		tried.Add(addr)
		if !retry.Sleep(f.c.ctx, retry.Backoff(failures, v.After)) {
			return
		}
	}
}

// open lets those go that wait for the first map.
func (f *follower) open() {
	close(f.first)
	for _, w := range f.c.living() {
		w.place()
	}
}

// followAt keeps the topology from one node, until that fails; got is called
// for every answer.
func (f *follower) followAt(addr string, got func()) error {
	n, err := f.c.pool.Get(addr)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(f.c.ctx)
	defer cancel(nil)
	cluster, health := pb.NewClusterServiceClient(n.Conn), healthgrpc.NewHealthClient(n.Conn)
	defer f.following(nil)

	var heard atomic.Int64 // as Client.pulse.Ran; 0: nothing yet
	var g sync.WaitGroup
	defer g.Wait()
	defer cancel(nil)
	g.Go(func() {
		began := f.c.pulse.Ran()
		for retry.Sleep(ctx, min(f.c.cfg.Silence, probeEvery)) {
			at := heard.Load()
			if at == 0 {
				if f.c.pulse.Ran()-began > f.c.cfg.Silence {
					cancel(outcome.ErrSilent)
				}
				continue
			}
			if f.c.pulse.Ran()-time.Duration(at) < probeEvery {
				continue
			}
			wait := f.c.pulse.Wait()
			probe, done := context.WithTimeout(ctx, f.c.cfg.Silence)
			_, err := health.Check(probe, &healthgrpc.HealthCheckRequest{})
			done()
			switch there, silent := judgeProbe(status.Code(err), f.c.pulse.Stalled(wait)); {
			case silent:
				cancel(outcome.ErrSilent)
				return
			case there:
				heard.Store(int64(f.c.pulse.Ran()))
			}
		}
	})

	for err == nil {
		err = f.followPart(ctx, cluster, addr, func() {
			heard.Store(int64(f.c.pulse.Ran()))
			f.following(func() { cancel(outcome.ErrForeign) }) // not before: a map that is on its way is not doubted
			f.c.pool.Praise(addr)
			got()
		})
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, outcome.ErrSilent):
		f.c.pool.Drop(n)
		return fmt.Errorf("%s: %w", addr, outcome.ErrSilent)
	case errors.Is(cause, outcome.ErrForeign):
		return fmt.Errorf("%s: %w than others", addr, outcome.ErrForeign)
	}
	return fmt.Errorf("%s: follow the shard map: %w", addr, err)
}

// judgeProbe says what a probe shows of a node: that it is there, that it is silent, or
// neither. stalled: this process stood still meanwhile.
func judgeProbe(code codes.Code, stalled bool) (there, silent bool) {
	switch code {
	case codes.DeadlineExceeded: // which a process that stood still finds at any node
		return false, !stalled
	case codes.Unavailable:
		return false, true
	case codes.Unauthenticated: // perhaps it was not even sent
		return false, false
	default:
		return true, false
	}
}

// followPart keeps that part of the topology that the client needs from one node, until
// it needs another part. got is called for every answer.
func (f *follower) followPart(ctx context.Context, cluster pb.ClusterServiceClient, addr string, got func()) error {
	in := f.interest()
	t := f.topology.Load().Narrowed(in)
	if t != nil {
		f.topology.Store(t)
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

// learn takes over what a node has sent.
func (f *follower) learn(addr string, in shardmap.Interest, r *pb.WatchShardMapResponse) error {
	old := f.topology.Load()
	t, err := old.With(addr, in, r)
	if err != nil {
		return err
	}
	f.topology.Store(t)
	if f.unmapped.Load() > 0 {
		for _, w := range f.c.living() {
			w.mapped(t)
		}
	}
	f.c.pool.Forget(f.c.known(t))
	if old == nil || old.ClusterID != t.ClusterID {
		f.regroup(t.ClusterID)
	}
	return nil
}

// regroup has all watches leave nodes of other clusters. They resume with their
// positions, which say that they are of another cluster.
func (f *follower) regroup(cluster string) {
	watchers := f.c.living()
	for _, w := range watchers {
		w.follow(cluster, retry.Herd(len(watchers)))
	}
}

// following keeps what has the map followed at another node; nil: it is followed
// nowhere.
func (f *follower) following(unfollow func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unfollow = unfollow
}

// doubt has the map followed at another node, if it is still t: a node has turned
// out to be of another cluster.
func (f *follower) doubt(t *shardmap.Topology) {
	f.mu.Lock()
	unfollow := f.unfollow
	f.mu.Unlock()
	if f.topology.Load() == t && unfollow != nil {
		unfollow()
	}
}

// interest returns what the client needs of the map.
func (f *follower) interest() shardmap.Interest {
	var ranges []keyrange.Range
	for _, w := range f.c.living() {
		ranges = append(ranges, w.asm.rng.keys()) // which never changes
	}
	return f.topology.Load().Need(ranges)
}

// outgrown returns when what was asked for is not what the client needs, or when ctx
// ends.
func (f *follower) outgrown(ctx context.Context, in shardmap.Interest) {
	tick := time.NewTicker(narrowEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.grown:
			t := f.topology.Load()
			if slices.ContainsFunc(f.c.living(), func(w *Watcher) bool { return !t.Covers(w.asm.rng.keys()) }) {
				return
			}
		case <-tick.C:
			if now := f.interest(); f.topology.Load().Narrower(in, now) {
				return
			}
		}
	}
}

// grow has the shards of further ranges followed.
func (f *follower) grow() {
	select {
	case f.grown <- struct{}{}:
	default:
	}
}
