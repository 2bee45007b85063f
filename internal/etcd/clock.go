package etcd

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// clockTimeout bounds a read of etcd's revision and the wait for the one before it, so
// that callers need no bound of their own.
const clockTimeout = 3 * time.Second

// Clock is etcd's revision at some moment after At.
type Clock struct {
	// At is when the read began, on this machine's monotonic clock: a cache that has
	// everything up to Revision is not older than that.
	At       time.Time
	Revision kv.Revision
	// Term is the raft term of the member that answered, Member its ID.
	Term, Member uint64
	// Cluster is the cluster's ID. It may survive a restore.
	Cluster uint64
	// Index is that of the last entry of raft's log which the member knows to be
	// committed; 0: not known. Only Look tells it.
	Index uint64
}

// Revision returns etcd's revision by a linearizable read that begins after
// the call: every write that was acknowledged before is in it.
func (c *Client) Revision(ctx context.Context) (kv.Revision, error) {
	clock, err := c.Clock(ctx)
	return clock.Revision, err
}

// Clock is Revision with all that etcd tells beside it. Callers share reads:
// callers that come while one is in flight wait for the next. It fails with a
// *kv.HistoryError when etcd has another history than that of the lineage that
// was adopted.
func (c *Client) Clock(ctx context.Context) (Clock, error) {
	c.count.clockCalls.Add(1)
	if err := c.lineage.err(); err != nil {
		return Clock{}, err
	}
	return c.reads.do(ctx, c.readClock)
}

func (c *Client) readClock(ctx context.Context) (Clock, error) {
	return c.probe(ctx, "read etcd's revision", 0)
}

// probe makes a linearizable read as of a revision, 0: now, and answers with it
// unless it is of another history.
func (c *Client) probe(ctx context.Context, deed string, at kv.Revision) (Clock, error) {
	before := c.lineage.now()
	clock, err := c.read(ctx, deed, at)
	if err != nil {
		return Clock{}, err
	}
	if found := before.mark.Judge(clock.Mark()); found != nil {
		return clock, c.doubt(ctx, deed, found)
	}
	c.lineage.saw(before.lineage, clock.Mark())
	if c.lineage.now().lineage != before.lineage {
		return Clock{}, unavailable(deed, errMoved)
	}
	return clock, c.lineage.err()
}

// read makes a linearizable read as of a revision; 0: now.
func (c *Client) read(ctx context.Context, deed string, at kv.Revision, opts ...grpc.CallOption) (Clock, error) {
	var clock Clock
	err := c.call(ctx, deed, c.readTimeout(), func(ctx context.Context) error {
		c.count.clockReads.Add(1)
		var err error
		clock, err = c.readHeader(ctx, c.clock, at, opts...)
		return err
	})
	if err != nil {
		return Clock{}, err
	}
	c.cluster.CompareAndSwap(0, clock.Cluster)
	c.term.Store(clock.Term)
	c.past.saw(clock.Revision)
	return clock, nil
}

// readHeader makes a linearizable read of which only the header is of interest:
// a count of one key never leaves etcd's index.
func (c *Client) readHeader(ctx context.Context, from etcdserverpb.KVClient, at kv.Revision, opts ...grpc.CallOption) (Clock, error) {
	clock := Clock{At: time.Now()}
	r, err := from.Range(ctx, &etcdserverpb.RangeRequest{Key: []byte(c.cfg.ProbeKey), CountOnly: true, Revision: int64(at)}, opts...)
	switch {
	case is(err, rpctypes.ErrGRPCCompacted):
		return clock, errGone
	case is(err, rpctypes.ErrGRPCFutureRev):
		return clock, errNotYet
	case err != nil:
		return clock, err
	}
	h := r.GetHeader()
	clock.Revision, clock.Term = kv.Revision(h.GetRevision()), h.GetRaftTerm()
	clock.Member, clock.Cluster = h.GetMemberId(), h.GetClusterId()
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
