package etcd

import (
	"context"
	"errors"

	"google.golang.org/grpc"

	"github.com/shardwatch/shardwatch/internal/etcd/etcdclock"
	"github.com/shardwatch/shardwatch/internal/etcd/etcdconn"
	"github.com/shardwatch/shardwatch/internal/kv"
)

type (
	conns  = etcdconn.Conns
	reader = etcdclock.Reader
)

// Client reads from one etcd cluster.
type Client struct {
	*conns
	*reader
	cfg       Config
	permits   Permits
	muxes     muxes
	pastReads pastReads
	historian chan struct{} // held by the goroutine that reads history for all callers
	largePast pastSpan      // owned by the goroutine that reads history
	count     counters
}

// New returns a client of the cluster at cfg.Endpoints. It connects when first used, so
// etcd may be unavailable. Close closes the connections.
func New(cfg Config) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	all, err := etcdconn.New(cfg.Config)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the endpoint
	}
	c := &Client{
		conns: all, cfg: cfg, permits: NewLocalPermits(cfg.MaxConcurrentLists), historian: make(chan struct{}, 1),
	}
	c.muxes.pause = runPause
	c.reader = etcdclock.New(all, c.probeFloor, cfg.Logger)
	return c, nil
}

// Close closes the connections; open calls fail. It may be called
// twice.
func (c *Client) Close() error {
	err := c.conns.Close()
	c.muxes.close()
	return err //nolint:wrapcheck // there is none
}

// Check asks every endpoint for its version and cluster; see [etcdconn.Conns.Check].
func (c *Client) Check(ctx context.Context) error {
	cluster, err := c.conns.Check(ctx)
	if err == nil {
		c.FoundCluster(cluster)
	}
	return err //nolint:wrapcheck // it names the operation
}

// ProxyConn returns the connection for forwarded calls; see [etcdconn.Conns.ProxyConn].
func (c *Client) ProxyConn() grpc.ClientConnInterface { return c.conns.ProxyConn(c.Compacted) }

// probeFloor opens a watch from a revision that etcd has compacted, which etcd cancels
// with its compact revision: a *kv.CompactedError. A member that has not applied the
// compaction reads its log from that revision instead, so the watch needs a permit when
// it is far behind. Then the compact revision stays unknown, and probeFloor returns nil.
func (c *Client) probeFloor(ctx context.Context, gone kv.Revision) error {
	req := kv.FollowRequest{Range: kv.Single(c.cfg.ProbeKey), From: gone}
	err := c.followFrom(ctx, req, position{from: gone}, func(kv.Update) bool { return false })
	switch {
	case errors.Is(err, errEnough): // the member still has the log from that revision on
		return nil
	case errors.Is(err, errSilent):
		return etcdconn.Unavailable("watch", err)
	}
	return err
}
