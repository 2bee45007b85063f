package etcdapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/shardwatch/shardwatch/internal/auth/access"
	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/etcd"
	"github.com/shardwatch/shardwatch/internal/fair"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// Upstream is etcd behind the cache. All methods may be called from any
// goroutine.
type Upstream interface {
	// Identity returns etcd's cluster ID and the newest raft term seen; zeros
	// while they are not known.
	Identity() (cluster, term uint64)
	// Verify tells, by a linearizable read that begins after the call, etcd's
	// revision and whether revision can be read there: it fails with a
	// *kv.CompactedError whose Floor is etcd's compact revision, and with a
	// *kv.FutureError. Callers share reads.
	Verify(ctx context.Context, revision kv.Revision) (now kv.Revision, err error)
	// History returns a part of the past from etcd's own log. It fails with a
	// *kv.CompactedError whose Floor is etcd's compact revision.
	History(ctx context.Context, r etcd.HistoryRequest) (etcd.History, error)
	// Passage leads to etcd: what is called through it carries the token of the
	// incoming call, and its wish for a leader.
	Passage() grpc.ClientConnInterface
}

// Guard knows what a caller may read where etcd's authentication is on. All
// methods may be called from any goroutine. Errors are etcd's own.
type Guard interface {
	// Caller returns the user of the call of ctx. Without
	// authentication at etcd, callers have no name and may read everything.
	Caller(ctx context.Context) (string, error)
	// MayRead fails when the caller may not read all of the range.
	MayRead(caller string, r kv.Range) error
	// Changed is closed when rights may have changed.
	Changed() <-chan struct{}
	// Refresh reads users and roles again, here and at the other nodes, after a
	// change of them. It returns when they are in force, or cannot be had for now.
	Refresh(ctx context.Context)
}

// Member is a node as etcd's clients see it: a member of the cluster.
type Member struct {
	Name shard.NodeID
	// Client and Peer are host:port; TLS says how Client is spoken to.
	Client, Peer string
	TLS          bool
}

// Config is what a Door needs. Set the parts; Defaults gives the rest.
type Config struct {
	Router *router.Router
	Etcd   Upstream
	Guard  Guard // nil: no authentication
	// Access decides beside etcd what clients may do; nil: everything. Audit is
	// told of refusals; nil: not called.
	Access *access.Access
	Audit  *access.Audit
	// Openings lets in the watches of both APIs that are being opened; nil: a gate
	// of its own does.
	Openings *fair.Gate
	// Budget bounds what clients can make the node hold; nil: there is no bound.
	Budget *budget.Budget
	// Learn, if set, is called with the token that etcd gave a user, before the user
	// has it.
	Learn func(ctx context.Context, user, token string)
	Self  shard.NodeID
	// Members returns the nodes, ordered by name.
	Members func() []Member
	Logger  *slog.Logger

	// MaxWatchesPerStream bounds the watches of one stream.
	MaxWatchesPerStream int
	// MaxMessageBytes is the size at which a watch that asked for fragments gets
	// them, and about that of a chunk of RangeStream.
	MaxMessageBytes int
	// ProgressNotifyInterval is how often a watch created with progress_notify
	// gets a progress notification when it is quiet.
	ProgressNotifyInterval time.Duration
	// MaxStaleness is the age from which on our data counts as an etcd member
	// without a leader: serializable reads, and streams that require a leader,
	// are refused. 0: any age.
	MaxStaleness time.Duration
}

// Defaults returns the Config of a production node, without its parts.
func Defaults() Config {
	return Config{
		MaxWatchesPerStream: 100_000,
		// etcd's --max-request-bytes and what it adds for overhead.
		MaxMessageBytes:        3<<19 + 512<<10,
		ProgressNotifyInterval: 10 * time.Minute, // etcd's --watch-progress-notify-interval
		MaxStaleness:           5 * time.Second,
	}
}

// minProgressNotify is the shortest interval etcd takes (v3rpc/watch.go).
const minProgressNotify = 100 * time.Millisecond

// Validate names every mistake.
func (c *Config) Validate() error {
	var errs []error
	if c.MaxWatchesPerStream < 1 {
		errs = append(errs, fmt.Errorf("--max-watches-per-stream: %d is below 1", c.MaxWatchesPerStream))
	}
	if c.MaxMessageBytes < 1<<10 {
		errs = append(errs, fmt.Errorf("message bytes: %d is below 1024", c.MaxMessageBytes))
	}
	if c.ProgressNotifyInterval < minProgressNotify {
		errs = append(errs, fmt.Errorf("--watch-progress-notify-interval: %v is below %v", c.ProgressNotifyInterval, minProgressNotify))
	}
	if c.MaxStaleness < 0 {
		errs = append(errs, fmt.Errorf("--max-staleness: %v is negative", c.MaxStaleness))
	}
	return errors.Join(errs...)
}

// Door serves etcd's API. Create it with New and add it to a gRPC server with
// Register.
type Door struct {
	cfg   Config
	reads reads
	// member is this node's ID as a member of the cluster.
	member uint64
	seen   atomic.Int64 // the newest revision of etcd's that was seen
	// seenIn is the lineage in which newest looked at that last.
	seenIn atomic.Uint64

	past *past

	homeFor time.Duration // see homeTimeout

	mu       sync.Mutex
	streams  map[*stream]struct{} // guarded by mu
	draining bool                 // guarded by mu
}

// Bounds of the watches of a node that are being opened with the help of etcd or other
// nodes, and that wait for that.
const (
	maxOpens        = 1000
	MaxOpensWaiting = 100_000
)

// NewOpenings returns the gate for the watches of a node, of both APIs.
func NewOpenings() *fair.Gate { return fair.NewGate(maxOpens, MaxOpensWaiting) }

// New returns a Door. It fails when the Config is wrong.
func New(cfg Config) (*Door, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("etcd API: %w", err)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Openings == nil {
		cfg.Openings = NewOpenings()
	}
	d := &Door{
		cfg: cfg, reads: newReads(cfg.Budget), member: memberID(cfg.Self),
		homeFor: homeTimeout, streams: make(map[*stream]struct{}),
	}
	d.past = newPast(d)
	return d, nil
}

// wireHeader is header for messages that are encoded by hand.
func (d *Door) wireHeader(revision kv.Revision) wire.Header {
	cluster, term := d.cfg.Etcd.Identity()
	return wire.Header{Cluster: cluster, Member: d.member, Term: term, Revision: revision}
}

// header returns the header of an answer at a revision. The member is this
// node.
func (d *Door) header(revision kv.Revision) *etcdserverpb.ResponseHeader {
	h := d.wireHeader(revision)
	return &etcdserverpb.ResponseHeader{
		ClusterId: h.Cluster, MemberId: h.Member, Revision: int64(h.Revision), RaftTerm: h.Term,
	}
}
