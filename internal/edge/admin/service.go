package admin

import (
	"context"
	"iter"
	"log/slog"
	"sync/atomic"

	"google.golang.org/grpc"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/control/mapchange"
	"github.com/shardwatch/shardwatch/internal/edge/callers"
	"github.com/shardwatch/shardwatch/internal/ops/revtrace"
	"github.com/shardwatch/shardwatch/internal/ops/watchstats"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// Node is the service's view of the node. All methods may be called from any goroutine.
type Node interface {
	// Map returns the shard map; nil if unknown.
	Map() *shard.Map
	// MapSince returns the shard map, and the delta from a version of that cluster's map; nil: the delta is too
	// large, or unknown to this node.
	MapSince(cluster string, version uint64) (*shard.Map, *shard.Delta)
	// Changes returns a channel that is closed at the next change of the map or the members.
	Changes() <-chan struct{}
	// Members returns gossip's view of the members, ordered by name.
	Members() []*shardwatchv1.Member
	// StatusOf asks a member for its status.
	StatusOf(ctx context.Context, node shard.NodeID) (*shardwatchv1.StatusResponse, error)
}

// Lineage begins new lineages.
type Lineage interface {
	// BumpLineage begins a new lineage on an operator's request, and returns it. It fails with a
	// *kv.LineageError if ended is not the current lineage, and with a *kv.InvalidError if etcd's cluster ID
	// has changed and is not accept (0: none).
	BumpLineage(ctx context.Context, ended uint64, reason string, accept uint64) (lineage uint64, err error)
}

// Verifier compares the copies of shards.
type Verifier interface {
	// Verify compares all copies of the given shards (none: of all shards) and calls tell with each result. It
	// fails with a *kv.InvalidError for an unknown shard ID.
	Verify(ctx context.Context, ids []shard.ID, etcd bool, tell func(*shardwatchv1.VerifyResponse) error) error
}

// Operator changes the shard map for operators.
type Operator interface {
	// ChangeMap carries out a shard map change. It calls planned when the voters have
	// accepted the change, in a dry run at once, and then progress repeatedly until the
	// change is complete. It fails with a *mapchange.RefusedError, a *kv.InvalidError or a
	// *kv.UnavailableError, with the error of planned or progress, and when ctx ends. An
	// accepted change continues after such an error.
	ChangeMap(ctx context.Context, o mapchange.Order, planned func(*mapchange.Plan) error, progress func(*mapchange.Progress) error) error
	// RecoverVoters plans a recovery of the voters and, except in a dry run, carries it out: version is the
	// first map version of the single voter. It fails with a *mapchange.RefusedError or a *kv.UnavailableError.
	RecoverVoters(ctx context.Context, o mapchange.RecoverOrder) (plan *mapchange.Recovery, version uint64, err error)
}

// Config has the dependencies of a Service.
type Config struct {
	Node Node
	// Status returns the node's own state.
	Status func() *shardwatchv1.StatusResponse
	// Callers checks the calls of clients.
	Callers *callers.Checker
	// Verifier compares copies; nil: Verify is not available.
	Verifier Verifier
	// Lineage begins new lineages; nil: not available.
	Lineage Lineage
	// Operator changes the shard map; nil: not available.
	Operator Operator
	// Trace returns the trace of a revision; nil: not recorded.
	Trace *revtrace.Trace
	// Watchers returns the open watches of clients, and Figures the current statistics of one.
	Watchers func() iter.Seq2[shardwatchv1.WatcherAPI, watchstats.Watcher]
	Figures  func() func(*watchstats.Watch) watchstats.Figures
	// Stopping is closed when the node drains, Left when it has moved all watches to other nodes. GoOn returns
	// a channel that is closed once an operator has had all current watches moved to other nodes.
	Stopping, Left <-chan struct{}
	GoOn           func() <-chan struct{}
	Self           shard.NodeID
	Logger         *slog.Logger
}

// Service serves operators and followers of the shard map. Create it with New.
type Service struct {
	cfg        Config
	mapParts   mapParts   // for clients that follow
	memberFeed memberFeed // for clients that follow

	orders   atomic.Int64 // shard map changes followed for operators
	verifies atomic.Int64 // running Verify calls
}

// New returns a service.
func New(cfg Config) *Service { return &Service{cfg: cfg} }

// Register registers the services on the ports for clients and peers.
func (s *Service) Register(clients, peers grpc.ServiceRegistrar) {
	shardwatchv1.RegisterAdminServiceServer(clients, &adminService{srv: s})
	shardwatchv1.RegisterClusterServiceServer(clients, &clusterService{srv: s, callers: s.cfg.Callers})
	shardwatchv1.RegisterClusterServiceServer(peers, &clusterService{srv: s, callers: &callers.Checker{}})
}
