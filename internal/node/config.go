package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/shardwatch/shardwatch/internal/auth/etcdauth"
	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/control/placement"
	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/data/lineage"
	"github.com/shardwatch/shardwatch/internal/edge/etcdapi"
	"github.com/shardwatch/shardwatch/internal/edge/server"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/membership"
	"github.com/shardwatch/shardwatch/internal/ops/telemetry"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// Etcd is the node's access to etcd; internal/etcd implements it.
type Etcd interface {
	cache.Source
	etcdapi.Upstream
	etcdauth.Etcd
	lineage.Etcd
	// Check fails with an *etcdconn.VersionError when an endpoint runs an unsupported
	// version, with an *etcdconn.ClusterError when the endpoints belong to different
	// clusters, and with another error when etcd is temporarily unavailable.
	Check(ctx context.Context) error
	// ClusterID returns etcd's cluster ID.
	ClusterID(ctx context.Context) (uint64, error)
	// Revision returns etcd's current revision by a linearizable read that
	// begins after the call.
	Revision(ctx context.Context) (kv.Revision, error)
	// Keys calls fn with every key of r in order, all at one revision.
	Keys(ctx context.Context, r kv.Range, fn func(key []byte) error) error
	// At calls fn with the key/values of r at revision, in order, page by page.
	At(ctx context.Context, r kv.Range, revision kv.Revision, fn func([]*kv.KeyValue) error) error
}

// Listeners are the node's open ports. Run closes them.
type Listeners struct {
	Client, Peer, Raft net.Listener
	// HTTP may be nil.
	HTTP net.Listener
}

// Simulation replaces the parts that do not work on fake time; nil in production.
type Simulation struct {
	Gossip  membership.Transport
	Network *placement.MemNetwork
	Disk    *placement.MemDisk
	// Dial connects to a peer.
	Dial func(ctx context.Context, address string) (net.Conn, error)
}

// Config configures a Node. Start from Defaults.
type Config struct {
	// Self is the node as other nodes see it: name, addresses, zone, version.
	// New sets UUID.
	Self shard.Member
	// DataDir holds identity, raft log and shard map.
	DataDir string
	Etcd    Etcd
	// Spec describes the cluster to found when there is none yet. Asked is the part of
	// it that an operator has set for this node, without defaults. Once there is a
	// cluster, its settings are in force, and the node logs the differences.
	Spec, Asked shard.Spec
	// GossipBind is the listen address of gossip, Join the addresses of other nodes.
	GossipBind string
	Join       []string
	GossipKeys [][]byte

	Listeners Listeners
	// ClientTLS is for the client port, HTTPTLS for the HTTP port, PeerServerTLS
	// and PeerClientTLS for both sides of the peer and raft ports. PeerClientTLS
	// is called for each connection, see tlsconf.Peer. nil: no TLS.
	ClientTLS, HTTPTLS, PeerServerTLS *tls.Config
	PeerClientTLS                     func(raw net.Conn, node string) (net.Conn, *tls.Config)
	// PeerSpeaks fails unless the other side of a connection to the peer port may
	// act as the named node; nil: it may.
	PeerSpeaks func(state *tls.ConnectionState, node string) error

	// Policy is the policy's file; "": clients may do everything.
	Policy string
	// Audit records administrative actions and refusals; nil: Logger records them.
	Audit *slog.Logger

	// Cache has the bounds of each shard, Server those of clients, EtcdAPI
	// those of clients of etcd's API.
	Cache   cache.Config
	Server  server.Config
	EtcdAPI etcdapi.Config
	// MaxConnections bounds the connections of all clients together. Excess
	// connections are closed at once.
	MaxConnections int
	// MaxConnectionsPerAddress bounds the connections of one client address. 0: no bound.
	MaxConnectionsPerAddress int
	// AddressRate is how many bytes per second the clients of one address may send to the
	// client port, and to the HTTP port. 0: no bound.
	AddressRate int64
	// AddressHandshakes is how many TLS handshakes per second they may begin at each of these
	// ports. 0: no bound.
	AddressHandshakes int
	// MaxClientBytes bounds the memory that the node uses for all clients together.
	MaxClientBytes int64
	// MaxWatchBytes bounds the memory of their open watches, which is counted separately.
	MaxWatchBytes int64
	// MaxStaleness is the age above which serializable reads without their own
	// bound refuse data.
	MaxStaleness time.Duration
	// MaxEtcdLists is how many lists, leaps and long catch-ups read etcd at a
	// time, in the whole cluster. A node that cannot reach the granting node
	// uses the same number as its own limit.
	MaxEtcdLists int
	// PermitTimeout is how long the granting node may be silent. It
	// acknowledges a request at once, and sends the permit when one is free.
	PermitTimeout time.Duration
	// HistoryBytes bounds the history of all shards on disk; 0: no history is saved.
	// HistoryInterval is how often it is written.
	HistoryBytes    int64
	HistoryInterval time.Duration
	// VerifyInterval is the interval at which each shard's copies are compared with
	// each other, VerifyEtcdInterval that of comparisons with etcd; 0: never.
	VerifyInterval, VerifyEtcdInterval time.Duration
	// StatusPage is the content of the status page at the HTTP port; "": StatusPageOn.
	StatusPage StatusPage
	// RelayIdle is how long a relay stays without watchers.
	RelayIdle time.Duration
	// HandOver is how long old caches wait for the new ones after the ranges of shards
	// have changed. A new cache without its next events loads the difference from etcd.
	HandOver time.Duration
	// DrainTimeout bounds the time that Run takes to end.
	DrainTimeout time.Duration

	// Balance configures how the load of shards changes the map. MaxMoves is how
	// many replicas load at a time because of moves, in the cluster, and
	// MaxNodeMoves how many from or to one node; 0: no bound.
	Balance                planner.Balance
	MaxMoves, MaxNodeMoves int
	// ReplaceVoterAfter is how long a voter is gone before another node replaces
	// it; 0: forever.
	ReplaceVoterAfter time.Duration

	// SignOfLife is how long other nodes have to answer a health check. A node
	// asks while etcd does not answer it, or while it is drained.
	SignOfLife time.Duration

	// Timings for tests; nil: production values.
	TunePlacement  func(*placement.Config)
	TuneMembership func(*membership.Config)

	// Spans sends spans to a collector; nil: no spans are sent.
	Spans *telemetry.Spans
	// Meter creates the node's metrics; nil: no metrics.
	Meter      metric.Meter
	Simulation *Simulation
	Logger     *slog.Logger
}

// Defaults returns the Config of a production node, without identity and
// addresses.
func Defaults() Config {
	return Config{
		Spec:  shard.Spec{Ranges: []kv.Range{{}}, Shards: 3, Replicas: 3},
		Cache: cache.Defaults(), Server: server.Defaults(), EtcdAPI: etcdapi.Defaults(),
		MaxConnections: 50_000, MaxConnectionsPerAddress: 10_000, AddressRate: 64 << 20, AddressHandshakes: 100, MaxClientBytes: 512 << 20, MaxWatchBytes: 1 << 30, MaxStaleness: 5 * time.Second, MaxEtcdLists: 2, PermitTimeout: time.Second,
		HistoryBytes: 2 << 30, HistoryInterval: 10 * time.Second,
		VerifyInterval: 20 * time.Second, VerifyEtcdInterval: 24 * time.Hour,
		RelayIdle: time.Minute, HandOver: time.Second, DrainTimeout: 30 * time.Second,
		Balance: planner.DefaultBalance(), MaxMoves: placement.Defaults().MaxFills, MaxNodeMoves: placement.Defaults().MaxNodeFills,
		ReplaceVoterAfter: placement.Defaults().ReplaceVoterAfter,
		SignOfLife:        300 * time.Millisecond,
	}
}

// Validate names every mistake.
func (c *Config) Validate() error {
	var errs []error
	if c.Self.Name == "" {
		errs = append(errs, errors.New("--name: a node needs one"))
	}
	if c.Etcd == nil {
		errs = append(errs, errors.New("--etcd: no etcd to cache"))
	}
	if c.Listeners.Client == nil || c.Listeners.Peer == nil {
		errs = append(errs, errors.New("--listen, --peer-listen: ports are not open"))
	}
	if err := c.Spec.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("--prefix, --shards, --replicas: %w", err))
	}
	if c.MaxClientBytes < 1<<20 {
		errs = append(errs, fmt.Errorf("%s: %d is below 1 MiB", budget.Flag, c.MaxClientBytes))
	}
	if c.MaxWatchBytes < 1<<16 {
		errs = append(errs, fmt.Errorf("%s: %d is below 64 KiB", budget.WatchFlag, c.MaxWatchBytes))
	}
	if c.Cache.WindowBytes < 1<<20 {
		errs = append(errs, fmt.Errorf("--window-bytes: %d is below 1 MiB", c.Cache.WindowBytes))
	}
	if c.Cache.WindowTime < time.Second {
		errs = append(errs, fmt.Errorf("--window-time: %v is below 1s", c.Cache.WindowTime))
	}
	if c.HistoryBytes < 0 {
		errs = append(errs, fmt.Errorf("--history-bytes: %d is below 0", c.HistoryBytes))
	}
	if c.HistoryInterval <= 0 {
		errs = append(errs, fmt.Errorf("history interval: %v must be above 0", c.HistoryInterval))
	}
	if c.MaxConnections < 1 {
		errs = append(errs, fmt.Errorf("--max-connections: %d is below 1", c.MaxConnections))
	}
	if c.MaxEtcdLists < 1 {
		errs = append(errs, fmt.Errorf("--max-etcd-lists: %d is below 1", c.MaxEtcdLists))
	}
	if c.VerifyInterval < 0 || c.VerifyEtcdInterval < 0 {
		errs = append(errs, fmt.Errorf("--verify-interval, --verify-etcd-interval: %v, %v: at least 0", c.VerifyInterval, c.VerifyEtcdInterval))
	}
	if c.HandOver <= 0 {
		errs = append(errs, fmt.Errorf("time to hand over to new caches: %v must be above 0", c.HandOver))
	}
	if c.SignOfLife <= 0 {
		errs = append(errs, fmt.Errorf("time for a sign of life: %v must be above 0", c.SignOfLife))
	}
	if c.DrainTimeout <= 0 {
		errs = append(errs, fmt.Errorf("--drain-timeout: %v must be above 0", c.DrainTimeout))
	}
	return errors.Join(errs...)
}
