package etcdapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/shardwatch/shardwatch/internal/auth/authz"
	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/edge/etcdview"
	"github.com/shardwatch/shardwatch/internal/edge/etcdwatch"
	"github.com/shardwatch/shardwatch/internal/fair"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// Upstream is the etcd that the cache reads. All methods may be called from any
// goroutine.
type Upstream interface {
	etcdview.Upstream
	etcdwatch.Log
	// ProxyConn returns a connection for forwarded calls. Each call carries the token of
	// the incoming call and its request for a leader.
	ProxyConn() grpc.ClientConnInterface
	// Status returns the status of one of etcd's members, under the node's own account.
	Status(ctx context.Context) (*etcdserverpb.StatusResponse, error)
}

// EtcdAuth checks the read rights of callers while etcd's authentication is on. All methods may
// be called from any goroutine. Errors are etcd's own.
type EtcdAuth interface {
	etcdview.EtcdAuth
}

// Member is a node in the member list for etcd's clients.
type Member struct {
	Name shard.NodeID
	// Client and Peer are host:port. TLS: Client requires TLS.
	Client, Peer string
	TLS          bool
}

// Config configures an API. Defaults returns the values of the settings; set the components.
type Config struct {
	Router *router.Router
	Etcd   Upstream
	Guard  EtcdAuth // nil: no authentication
	// Access is the policy, which applies in addition to etcd's rights; nil: it allows everything.
	// Audit records refusals, and the actions of administrators; nil: no audit.
	Access *authz.Authorizer
	Audit  *authz.Audit
	// OpenQueue limits the watches of both APIs that are being opened at a time; nil: a
	// new gate.
	OpenQueue *fair.Gate
	// Turns shares the CPU time of expensive work among clients; nil: new Turns.
	Turns *fair.Turns
	// Budget bounds the memory that the node uses for clients; nil: no bound.
	Budget *budget.Budget
	// Learn, if set, is called with each token that etcd issues to a user, before the
	// user gets it.
	Learn func(ctx context.Context, user, token string)
	Self  shard.NodeID
	// Members returns the nodes, ordered by name.
	Members func() []Member
	Logger  *slog.Logger

	// MaxWatchesPerStream bounds the watches of one stream.
	MaxWatchesPerStream int
	// MaxMessageBytes is the size above which a watch that requested fragments gets
	// them, and the approximate size of a chunk of RangeStream.
	MaxMessageBytes int
	// ProgressNotifyInterval is the interval between progress notifications of a quiet
	// watch created with progress_notify.
	ProgressNotifyInterval time.Duration
	// MaxStaleness is the age above which this node behaves like an etcd member
	// without a leader: it refuses serializable reads, and streams that require a
	// leader. 0: any age.
	MaxStaleness time.Duration
	// HomeTimeout bounds the search for the shards' sources of a new watch. After it, the
	// stream ends, and its client resumes on another node.
	HomeTimeout time.Duration
}

// Defaults returns the Config of a production node, without its components.
func Defaults() Config {
	return Config{
		MaxWatchesPerStream: 100_000,
		// etcd's --max-request-bytes plus etcd's allowance for overhead.
		MaxMessageBytes:        3<<19 + 512<<10,
		ProgressNotifyInterval: 10 * time.Minute, // etcd's --watch-progress-notify-interval
		MaxStaleness:           5 * time.Second,
		HomeTimeout:            5 * time.Second,
	}
}

// minProgressNotify is the shortest interval that etcd accepts (v3rpc/watch.go).
const minProgressNotify = 100 * time.Millisecond

// Validate returns all mistakes at once.
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

// API serves etcd's API. Create it with New and add it to a gRPC server with
// Register.
type API struct {
	cfg                Config
	reads              reads
	view               *etcdview.View
	*etcdwatch.Streams // the Watch service
}

// New returns an API. It fails if the Config is invalid.
func New(cfg Config) (*API, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("etcd API: %w", err)
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	cfg.Turns = cmp.Or(cfg.Turns, fair.NewTurns())
	cfg.OpenQueue = cmp.Or(cfg.OpenQueue, etcdwatch.NewOpenQueue())
	d := &API{
		cfg: cfg, reads: newReads(cfg.Budget),
		view: etcdview.New(etcdview.Config{Router: cfg.Router, Etcd: cfg.Etcd, Guard: cfg.Guard, Access: cfg.Access, Audit: cfg.Audit, Self: cfg.Self}),
	}
	d.Streams = etcdwatch.New(etcdwatch.Config{
		View: d.view, Router: cfg.Router, Log: cfg.Etcd, Guard: cfg.Guard, Access: cfg.Access, OpenQueue: cfg.OpenQueue, Budget: cfg.Budget, Logger: cfg.Logger,
		MaxWatchesPerStream: cfg.MaxWatchesPerStream, MaxMessageBytes: cfg.MaxMessageBytes, ProgressNotifyInterval: cfg.ProgressNotifyInterval,
		MaxStaleness: cfg.MaxStaleness, HomeTimeout: cfg.HomeTimeout,
	})
	return d, nil
}
