package verify

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/etcd/etcdclock"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// Etcd gives a Verifier access to etcd.
type Etcd interface {
	// At calls fn with the key/values of r at revision, in order, page by page.
	At(ctx context.Context, r kv.Range, revision kv.Revision, fn func([]*kv.KeyValue) error) error
	// Look fails with a *kv.HistoryError when etcd has another history.
	Look(ctx context.Context) (etcdclock.Clock, error)
}

// Config configures a Verifier. Its functions may be called from any goroutine.
type Config struct {
	Self shard.NodeID
	Etcd Etcd
	// Interval is the time between comparisons of each shard's copies with each other,
	// EtcdInterval the time between comparisons with etcd; 0: never.
	Interval, EtcdInterval time.Duration
	// Map returns the newest shard map; nil: none yet.
	Map func() *shard.Map
	// Members returns the nodes that gossip sees.
	Members func() []shard.Member
	// Serving reports whether etcd has the served history.
	Serving func() bool
	// Replica returns this node's copy of a shard, once it is loaded and while it is
	// served; nil otherwise.
	Replica func(shard.ID) *cache.Cache
	// Renew reloads a wrong copy, but not from the nodes in avoid. It reports whether
	// that has begun: it has not if the copy is gone. It fails when ctx ends.
	Renew func(ctx context.Context, id shard.ID, wrong *cache.Cache, avoid []string) (begun bool, err error)
	// Renewing returns the number of copies that are being reloaded.
	Renewing func() int64
	// Conn returns the connection to another node.
	Conn   func(shard.NodeID) (grpc.ClientConnInterface, error)
	Logger *slog.Logger
}
