package etcd

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// Clock is etcd's revision at some moment after At.
type Clock struct {
	// At is when the read began, on this machine's monotonic clock: whoever has
	// everything up to Revision is not older than that.
	At       time.Time
	Revision kv.Revision
	// Term is the raft term of the member that answered, Member its ID.
	Term, Member uint64
	// Cluster is the cluster's ID. It survives a restore.
	Cluster uint64
}

// Revision returns etcd's revision by a linearizable read that begins after
// the call: every write that was acknowledged before is in it.
func (c *Client) Revision(ctx context.Context) (kv.Revision, error) {
	clock, err := c.Clock(ctx)
	return clock.Revision, err
}

// Clock is Revision with all that etcd tells beside it. Callers share reads:
// those who come while one is in flight wait for the next.
func (c *Client) Clock(ctx context.Context) (Clock, error) {
	c.count.clockCalls.Add(1)
	return c.reads.do(ctx, c.readClock)
}

func (c *Client) readClock(ctx context.Context) (Clock, error) {
	return c.probe(ctx, "read etcd's revision", 0)
}

// probe makes a linearizable read as of a revision; 0: now.
func (c *Client) probe(ctx context.Context, deed string, at kv.Revision) (Clock, error) {
	var clock Clock
	err := c.call(ctx, deed, c.cfg.CallTimeout, func(ctx context.Context) error {
		c.count.clockReads.Add(1)
		clock.At = time.Now()
		// Only the header is of interest. A count of one key never leaves
		// etcd's index.
		r, err := c.clock.Range(ctx, &etcdserverpb.RangeRequest{Key: []byte(c.cfg.ProbeKey), CountOnly: true, Revision: int64(at)})
		switch {
		case is(err, rpctypes.ErrGRPCCompacted):
			return errGone
		case is(err, rpctypes.ErrGRPCFutureRev):
			return errNotYet
		case err != nil:
			return err
		}
		h := r.GetHeader()
		clock.Revision, clock.Term = kv.Revision(h.GetRevision()), h.GetRaftTerm()
		clock.Member, clock.Cluster = h.GetMemberId(), h.GetClusterId()
		return nil
	})
	if err != nil {
		return Clock{}, err
	}
	c.cluster.CompareAndSwap(0, clock.Cluster)
	c.term.Store(clock.Term)
	c.past.saw(clock.Revision)
	return clock, nil
}

// Identity returns the ID of etcd's cluster and the raft term, as of the newest
// read of the clock; zeros while there was none.
func (c *Client) Identity() (cluster, term uint64) { return c.cluster.Load(), c.term.Load() }

// ClusterID returns the ID of etcd's cluster, asking for it when it is not
// known yet.
func (c *Client) ClusterID(ctx context.Context) (uint64, error) {
	if id := c.cluster.Load(); id != 0 {
		return id, nil
	}
	clock, err := c.Clock(ctx)
	if err != nil {
		return 0, fmt.Errorf("learn etcd's cluster ID: %w", err)
	}
	return clock.Cluster, nil
}
