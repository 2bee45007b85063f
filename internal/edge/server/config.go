package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/auth/authz"
	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/data/peerapi"
	"github.com/shardwatch/shardwatch/internal/edge/admin"
	"github.com/shardwatch/shardwatch/internal/edge/callers"
	"github.com/shardwatch/shardwatch/internal/edge/etcdapi"
	"github.com/shardwatch/shardwatch/internal/edge/native"
	"github.com/shardwatch/shardwatch/internal/edge/syncbatch"
	"github.com/shardwatch/shardwatch/internal/fair"
	"github.com/shardwatch/shardwatch/internal/ops/revtrace"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// Node is the server's interface to the node. All methods may be called from any
// goroutine.
type Node interface {
	peerapi.Node
	admin.Node
	// Status returns the node's own state, without the server's part.
	Status() *shardwatchv1.StatusResponse
}

// EtcdAuth checks the read rights of callers if etcd's authentication is on, and shares them
// with other nodes.
type EtcdAuth interface {
	callers.EtcdAuth
	peerapi.EtcdAuth
}

// Config configures a Server. Defaults returns the settings; the caller adds the parts.
type Config struct {
	Node   Node
	Router *router.Router
	// Etcd serves etcd's API to clients; nil: not served.
	Etcd *etcdapi.API
	// Guard decides clients' read rights; nil: clients may read everything, like nodes.
	Guard EtcdAuth
	// Access decides clients' rights; nil: clients may do everything. Audit records
	// refusals, and the actions of administrators; nil: no audit.
	Access *authz.Authorizer
	Audit  *authz.Audit
	// OpenQueue bounds the watches of both APIs that are opening at a time; nil: the server
	// creates one.
	OpenQueue *fair.Gate
	// Turns share the CPU time of large work among clients; nil: the server creates them.
	Turns *fair.Turns
	// Budget bounds the memory that the node holds for clients; nil: no bound.
	Budget *budget.Budget
	// Permits grants permits to other nodes; nil: none.
	Permits peerapi.Permits
	// Verifier compares copies of shards; nil: not available.
	Verifier interface {
		admin.Verifier
		peerapi.Verifier
	}
	// Lineage begins new lineages for operators; nil: not available.
	Lineage admin.Lineage
	// Operator changes the shard map for operators; nil: not available.
	Operator interface {
		admin.Operator
		peerapi.Voting
	}
	// Trace records sent revisions, and returns them; nil: not recorded.
	Trace *revtrace.Trace
	// Happened is called with the watch events that operators see. It must not
	// block; nil: not called.
	Happened func(native.Happening)
	Self     shard.NodeID
	Logger   *slog.Logger

	// ClientTLS and PeerTLS are for the two ports; nil: no TLS.
	ClientTLS, PeerTLS *tls.Config
	// PeerSpeaks fails unless the certificate of a connection to the peer port may
	// act as the named node; nil: every connection may.
	PeerSpeaks func(state *tls.ConnectionState, node string) error
	// ClientFailed and PeerFailed are called after failed handshakes; nil: not called.
	ClientFailed, PeerFailed func(from net.Addr, err error)

	// JSONHosts are the names under which clients of the JSON API without TLS reach the
	// node; see gateway.Config.
	JSONHosts []string
	// MaxWatchesPerStream and MaxStreamsPerConnection bound a client's watches and
	// streams.
	MaxWatchesPerStream     int
	MaxStreamsPerConnection int
	// MaxConnectionAge is the lifetime of a client's connection, give or take a tenth.
	// 0: no bound.
	MaxConnectionAge time.Duration
	// GRPCGo serves clients with grpc-go's server, instead of internal/edge/grpcserver.
	GRPCGo bool
	// MaxMessageBytes bounds a request. etcd accepts 1.5 MiB by default.
	MaxMessageBytes int
	// MaxResyncs bounds the units of each kind, deltas and states, that begin at a
	// time. Others wait.
	MaxResyncs int
	// ResyncRate bounds the bytes per second of the chunks of units that are built;
	// shared chunks count once. 0: no bound.
	ResyncRate int64
	// Patience is how long units wait for watches that come later or do not read.
	Patience syncbatch.Patience
	// FragmentBytes is the approximate size from which a revision or a list is split
	// into several messages.
	FragmentBytes int
	// ProgressInterval is the interval of progress messages on streams that do not
	// request another one.
	ProgressInterval time.Duration
}

// Defaults returns the Config of a production node, without its parts.
func Defaults() Config {
	return Config{
		MaxWatchesPerStream:     100_000,
		MaxStreamsPerConnection: 10_000,
		MaxMessageBytes:         2 << 20,
		MaxResyncs:              16,
		ResyncRate:              256 << 20,
		Patience:                syncbatch.UsualPatience(),
		FragmentBytes:           512 << 10,
		ProgressInterval:        5 * time.Second,
	}
}

// Validate returns an error that names every mistake.
func (c *Config) Validate() error {
	var errs []error
	atLeast := func(name string, got, least int) {
		if got < least {
			errs = append(errs, fmt.Errorf("%s: %d is below %d", name, got, least))
		}
	}
	atLeast("--max-watches-per-stream", c.MaxWatchesPerStream, 1)
	atLeast("--max-streams-per-connection", c.MaxStreamsPerConnection, 1)
	atLeast("--max-message-bytes", c.MaxMessageBytes, 64<<10)
	atLeast("--max-resyncs", c.MaxResyncs, 1)
	if c.MaxConnectionAge < 0 {
		errs = append(errs, fmt.Errorf("--max-connection-age: %v is below 0", c.MaxConnectionAge))
	}
	if c.ResyncRate < 0 {
		errs = append(errs, fmt.Errorf("--resync-rate: %d is below 0", c.ResyncRate))
	}
	atLeast("fragment bytes", c.FragmentBytes, 1<<10)
	if c.ProgressInterval < native.MinProgressInterval || c.ProgressInterval > native.MaxProgressInterval {
		errs = append(errs, fmt.Errorf("progress interval: %v is not within %v and %v", c.ProgressInterval, native.MinProgressInterval, native.MaxProgressInterval))
	}
	return errors.Join(errs...)
}
