package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
)

// probeEvery is how long the map may be quiet before its node is asked
// whether it is still there: a map that does not change sends nothing.
const probeEvery = 5 * time.Second

// follow keeps the topology until the client is closed, at one node after the
// other.
func (c *Client) follow() {
	var failures int
	var tried tried
	opened := sync.OnceFunc(func() { c.open() })
	defer opened()
	lost := false
	for c.ctx.Err() == nil {
		addr := c.pick(Range{}, nil, tried)
		got := false
		began := time.Now()
		err := c.followAt(addr, func() {
			got = true
			if lost {
				lost = false
				c.cfg.Logger.Info("cluster found again", "node", addr)
			}
			opened()
		})
		if c.ctx.Err() != nil {
			return
		}
		if got && time.Since(began) > settled {
			failures, tried = 0, nil
		}
		failures++
		v := judge(err)
		c.renewed(v, began)
		if v.penalise || errors.Is(err, errSilent) {
			c.penalise(addr, 0)
		}
		if failures == len(c.cfg.Endpoints)+2 && !lost {
			lost = true
			c.cfg.Logger.Warn("no node answers; retrying", "endpoints", c.cfg.Endpoints, "last_error", brief(err))
		}
		opened()
		tried.add(addr)
		if !sleep(c.ctx, backoff(failures, v.after)) {
			return
		}
	}
}

// open lets those go that wait for the first map.
func (c *Client) open() {
	close(c.first)
	for _, w := range c.living() {
		w.place()
	}
}

// followAt keeps the topology from one node, until that fails; got is called
// for every answer.
func (c *Client) followAt(addr string, got func()) error {
	n, err := c.node(addr)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(c.ctx)
	defer cancel(nil)
	cluster, health := pb.NewClusterServiceClient(n.conn), healthgrpc.NewHealthClient(n.conn)
	defer c.following(nil)

	var heard atomic.Int64 // as Client.ran; 0: nothing yet
	var g sync.WaitGroup
	defer g.Wait()
	defer cancel(nil)
	g.Go(func() {
		began := c.ran()
		for sleep(ctx, min(c.cfg.Silence, probeEvery)) {
			at := heard.Load()
			if at == 0 {
				if c.ran()-began > c.cfg.Silence {
					cancel(errSilent)
				}
				continue
			}
			if c.ran()-time.Duration(at) < probeEvery {
				continue
			}
			wait := c.wait()
			probe, done := context.WithTimeout(ctx, c.cfg.Silence)
			_, err := health.Check(probe, &healthgrpc.HealthCheckRequest{})
			done()
			switch there, silent := judgeProbe(status.Code(err), c.stalled(wait)); {
			case silent:
				cancel(errSilent)
				return
			case there:
				heard.Store(int64(c.ran()))
			}
		}
	})

	for err == nil {
		err = c.followPart(ctx, cluster, addr, func() {
			heard.Store(int64(c.ran()))
			c.following(func() { cancel(errForeign) }) // not before: a map that is on its way is not doubted
			c.praise(addr)
			got()
		})
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errSilent):
		c.drop(n)
		return fmt.Errorf("%s: %w", addr, errSilent)
	case errors.Is(cause, errForeign):
		return fmt.Errorf("%s: %w than others", addr, errForeign)
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
func (c *Client) followPart(ctx context.Context, cluster pb.ClusterServiceClient, addr string, got func()) error {
	in := c.interest()
	t := c.topology.Load().narrowed(in)
	if t != nil {
		c.topology.Store(t)
	}
	part, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	stream, err := cluster.WatchShardMap(part, t.request(addr, in), grpc.MaxCallRecvMsgSize(maxMap))
	for first := true; err == nil; first = false {
		var r *pb.WatchShardMapResponse
		if r, err = stream.Recv(); err == nil {
			if err = c.learn(addr, in, r); err == nil {
				got()
			}
		}
		if first && err == nil {
			watching.Go(func() {
				c.outgrown(part, in)
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
func (c *Client) learn(addr string, in interest, r *pb.WatchShardMapResponse) error {
	old := c.topology.Load()
	t, err := old.with(addr, in, r)
	if err != nil {
		return err
	}
	c.topology.Store(t)
	if c.unmapped.Load() > 0 {
		for _, w := range c.living() {
			w.mapped(t)
		}
	}
	c.forget(t)
	if old == nil || old.shards.clusterID != t.shards.clusterID {
		c.regroup(t.shards.clusterID)
	}
	return nil
}

// regroup has all watches leave nodes of other clusters. They resume with their
// positions, which say that they are of another cluster.
func (c *Client) regroup(cluster string) {
	watchers := c.living()
	for _, w := range watchers {
		w.follow(cluster, herd(len(watchers)))
	}
}

// following keeps what has the map followed at another node; nil: it is followed
// nowhere.
func (c *Client) following(unfollow func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unfollow = unfollow
}

// doubt has the map followed at another node, if it is still t: a node has turned
// out to be of another cluster.
func (c *Client) doubt(t *topology) {
	c.mu.Lock()
	unfollow := c.unfollow
	c.mu.Unlock()
	if c.topology.Load() == t && unfollow != nil {
		unfollow()
	}
}

// living returns the watchers that have not ended.
func (c *Client) living() []*Watcher {
	c.mu.Lock()
	defer c.mu.Unlock()
	watchers := make([]*Watcher, 0, len(c.watchers))
	for w := range c.watchers {
		watchers = append(watchers, w)
	}
	return watchers
}
