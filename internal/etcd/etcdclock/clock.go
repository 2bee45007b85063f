package etcdclock

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/shardwatch/shardwatch/internal/etcd/etcdconn"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// clockTimeout bounds a read of etcd's revision and the wait for the one before it, so
// that callers need no bound of their own.
const clockTimeout = 3 * time.Second

// Clock is etcd's revision at some moment after At.
type Clock struct {
	// At is the start of the read, on this machine's monotonic clock: a cache that has
	// everything up to Revision is not older than At.
	At       time.Time
	Revision kv.Revision
	// Term is the raft term of the member that answered, Member its ID.
	Term, Member uint64
	// Cluster is the cluster's ID. It may survive a restore.
	Cluster uint64
	// Index is the index of a raft log entry that the member has committed; 0: not known.
	// Within one history it is not below the index of any earlier look. It may miss entries
	// of the last indexEvery: entries without a revision, and entries between the member's
	// status answer and the next look at the member. Only Look sets it.
	Index uint64
}

// Reader reads etcd's clock. Readers share the connections of one etcdconn.Conns.
type Reader struct {
	conns *etcdconn.Conns
	// probeFloor fails with a *kv.CompactedError if etcd has compacted a revision: see New.
	probeFloor func(ctx context.Context, gone kv.Revision) error
	log        *slog.Logger

	reads    shared[Clock]
	looks    shared[sight]
	lineage  lineage
	indexes  indexes
	verdicts shared[verdict]
	floors   shared[struct{}] // watches that learn etcd's compact revision
	asked    askers           // by callers that wait for a verdict
	past     past
	cluster  atomic.Uint64 // 0: not known yet
	term     atomic.Uint64 // of the newest read of the clock; 0: none yet
	count    counters
}

// New returns a Reader. It calls probeFloor for the compact revision when etcd has
// compacted the revision gone. probeFloor returns a *kv.CompactedError with it, nil
// when the asked member has not compacted gone yet, or the cause why it is not known.
func New(conns *etcdconn.Conns, probeFloor func(ctx context.Context, gone kv.Revision) error, log *slog.Logger) *Reader {
	return &Reader{conns: conns, probeFloor: probeFloor, log: log, reads: shared[Clock]{timeout: clockTimeout}}
}

// Stats are a Reader's counts since its creation.
type Stats struct {
	ClockCalls     int64
	RevisionChecks int64
	ClockReads     int64 // reads of etcd for these and for looks; callers share them
	// Disagreements counts answers of one member of etcd that contradict another
	// member's.
	Disagreements int64
}

type counters struct{ clockCalls, revisionChecks, clockReads, disagreements atomic.Int64 }

// Stats returns the counts as of now.
func (c *Reader) Stats() Stats {
	n := &c.count
	return Stats{
		ClockCalls: n.clockCalls.Load(), RevisionChecks: n.revisionChecks.Load(), ClockReads: n.clockReads.Load(),
		Disagreements: n.disagreements.Load(),
	}
}

// Revision returns etcd's revision by a linearizable read that begins after the call:
// it covers every write that was acknowledged before.
func (c *Reader) Revision(ctx context.Context) (kv.Revision, error) {
	clock, err := c.Clock(ctx)
	return clock.Revision, err
}

// Clock is Revision with the other fields of etcd's answer. Callers share reads:
// callers that come while one is in flight wait for the next. It fails with a
// *kv.HistoryError when etcd no longer has the history of the adopted lineage.
func (c *Reader) Clock(ctx context.Context) (Clock, error) {
	c.count.clockCalls.Add(1)
	if err := c.lineage.err(); err != nil {
		return Clock{}, err
	}
	return c.reads.do(ctx, c.readClock)
}

func (c *Reader) readClock(ctx context.Context) (Clock, error) {
	return c.probe(ctx, "read etcd's revision", 0)
}

// probe makes a linearizable read as of a revision, 0: now, and fails if the answer
// belongs to another history.
func (c *Reader) probe(ctx context.Context, deed string, at kv.Revision) (Clock, error) {
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
		return Clock{}, etcdconn.Unavailable(deed, errMoved)
	}
	return clock, c.lineage.err()
}

// read makes a linearizable read as of a revision; 0: now.
func (c *Reader) read(ctx context.Context, deed string, at kv.Revision, opts ...grpc.CallOption) (Clock, error) {
	var clock Clock
	err := c.conns.Read(ctx, deed, c.conns.ReadTimeout(), func(ctx context.Context) error {
		c.count.clockReads.Add(1)
		var err error
		clock, err = c.header(ctx, c.conns.Reads, at, opts...)
		return err
	})
	if err != nil {
		return Clock{}, err
	}
	c.FoundCluster(clock.Cluster)
	c.term.Store(clock.Term)
	c.past.saw(clock.Revision)
	return clock, nil
}

// header makes a linearizable read and returns only the header.
func (c *Reader) header(ctx context.Context, from etcdserverpb.KVClient, at kv.Revision, opts ...grpc.CallOption) (Clock, error) {
	clock := Clock{At: time.Now()}
	h, err := c.conns.Header(ctx, from, at, opts...)
	switch {
	case etcdconn.Is(err, rpctypes.ErrGRPCCompacted):
		return clock, errGone
	case etcdconn.Is(err, rpctypes.ErrGRPCFutureRev):
		return clock, errNotYet
	case err != nil:
		return clock, err //nolint:wrapcheck // the caller sorts it
	}
	clock.Revision, clock.Term = kv.Revision(h.GetRevision()), h.GetRaftTerm()
	clock.Member, clock.Cluster = h.GetMemberId(), h.GetClusterId()
	return clock, nil
}

// FoundCluster notes the ID of etcd's cluster, unless it is known.
func (c *Reader) FoundCluster(id uint64) { c.cluster.CompareAndSwap(0, id) }

// Identity returns the ID of etcd's cluster and the raft term, as of the newest
// read of the clock; zeros while there was none.
func (c *Reader) Identity() (cluster, term uint64) { return c.cluster.Load(), c.term.Load() }

// ClusterID returns the ID of etcd's cluster, and asks etcd if it is not known yet.
func (c *Reader) ClusterID(ctx context.Context) (uint64, error) {
	if id := c.cluster.Load(); id != 0 {
		return id, nil
	}
	clock, err := c.Clock(ctx)
	if err != nil {
		return 0, fmt.Errorf("learn etcd's cluster ID: %w", err)
	}
	return clock.Cluster, nil
}
