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

// Placement has the shard map. Watch returns also a channel that is closed at the next.
type Placement interface {
	Map() *shard.Map
	Watch() (*shard.Map, <-chan struct{})
}

// Lineage is the history of etcd that the node serves; internal/data/lineage has it.
type Lineage interface {
	Changed() <-chan struct{}
	Enter(m *shard.Map)
	Serves(lineage uint64) bool
	Refusal() *kv.HistoryError
}

// Clock knows how far etcd is.
type Clock interface {
	// Last returns etcd's revision, when it was read, and etcd's cluster.
	Last() (kv.Revision, time.Time, uint64)
	// LookNow has etcd's revision read at once.
	LookNow()
	// Checked reports whether etcd may be read from, Trouble why it does not answer.
	Checked() bool
	Trouble() error
}

// PastLoader keeps on disk what the caches know of the past.
type PastLoader interface {
	// Load returns the saved past of shards at its first call.
	Load(m *shard.Map, shards map[shard.ID]*shard.Shard) map[shard.ID]*cache.Past
	// Drop has the saved history of a shard removed.
	Drop(id shard.ID)
}

// Config configures a Set. Its functions may be called from any goroutine.
type Config struct {
	Self shard.NodeID
	// Cache has the bounds of each shard.
	Cache cache.Config
	// RelayIdle is how long a relay stays without watchers.
	RelayIdle time.Duration
	// HandOver is how long a cache that inherits is waited for: until it has a source and is
	// as far as those that it inherits from.
	HandOver time.Duration
	// Join: other nodes may have the shards of this one, and are waited for.
	Join      bool
	Etcd      cache.Source
	Placement Placement
	Lineage   Lineage
	Clock     Clock
	History   PastLoader
	// Known reports whether gossip has shown a node, Accompanied whether it shows another
	// one that can take over. Changed returns a channel that is closed when that changes.
	Known       func(shard.NodeID) bool
	Accompanied func() bool
	Changed     func() <-chan struct{}
	// Link returns the link to a node that gossip does not call gone.
	Link func(shard.NodeID) (*replica.Link, error)
	// Trace records when revisions are applied, Noticed returns the observer of
	// the sources of a shard, Contradicted is called with contradictions of a copy.
	Trace        *revtrace.Trace
	Noticed      func(shard.ID) func(replica.Notice)
	Contradicted func(*Copy, *kv.ContradictionError)
	// Kick has the watches look for new homes.
	Kick   func()
	Logger *slog.Logger
}
