package copies

import (
	"log/slog"
	"time"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/ops/revtrace"
	"github.com/shardwatch/shardwatch/internal/replica"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// Placement has the shard map. Watch also returns a channel that is closed at the next map.
type Placement interface {
	Map() *shard.Map
	Watch() (*shard.Map, <-chan struct{})
}

// Lineage is the history of etcd that the node serves; internal/data/lineage implements it.
type Lineage interface {
	Changed() <-chan struct{}
	Enter(m *shard.Map)
	Serves(lineage uint64) bool
	Refusal() *kv.HistoryError
}

// Clock has etcd's last known revision.
type Clock interface {
	// Last returns etcd's revision, the time of its read, and etcd's cluster.
	Last() (kv.Revision, time.Time, uint64)
	// LookNow starts a read of etcd's revision at once.
	LookNow()
	// Checked reports whether etcd may be read, Trouble why it does not answer.
	Checked() bool
	Trouble() error
}

// PastLoader keeps the history of the caches on disk.
type PastLoader interface {
	// Load returns the saved history of shards at its first call, and for some time after a restart.
	Load(m *shard.Map, shards map[shard.ID]*shard.Shard) map[shard.ID]*cache.Past
	// Drop removes the saved history of a shard.
	Drop(id shard.ID)
}

// Config configures a Set. Its functions may be called from any goroutine.
type Config struct {
	Self shard.NodeID
	// Cache has the bounds of each shard.
	Cache cache.Config
	// RelayIdle is how long a relay stays without watchers.
	RelayIdle time.Duration
	// HandOver bounds the wait for a cache that inherits, until it has a source and has
	// caught up with its predecessors.
	HandOver time.Duration
	// Join: wait for other nodes that may have this node's shards.
	Join      bool
	Etcd      cache.Source
	Placement Placement
	Lineage   Lineage
	Clock     Clock
	History   PastLoader
	// Known reports whether gossip has shown a node, Accompanied whether it shows another
	// node that can take over. Changed returns a channel that is closed when these change.
	Known       func(shard.NodeID) bool
	Accompanied func() bool
	Changed     func() <-chan struct{}
	// Link returns the link to a node that is not gone according to gossip.
	Link func(shard.NodeID) (*replica.Link, error)
	// Trace records when revisions are applied. Noticed returns the observer of a
	// shard's sources. Contradicted is called with contradictions of a copy.
	Trace        *revtrace.Trace
	Noticed      func(shard.ID) func(replica.Notice)
	Contradicted func(*Copy, *kv.ContradictionError)
	// Kick makes watches search for new sources.
	Kick   func()
	Logger *slog.Logger
}
