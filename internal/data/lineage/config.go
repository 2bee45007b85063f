package lineage

import (
	"context"
	"log/slog"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/etcd/etcdclock"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// Etcd gives a Keeper access to etcd.
type Etcd interface {
	// Look reads etcd's clock and checks its history: if that has changed, it returns a
	// *kv.HistoryError with etcd's state.
	Look(ctx context.Context) (etcdclock.Clock, error)
	// Adopt begins to follow the history of a lineage that has reached mark.
	Adopt(lineage uint64, mark kv.Mark)
	// Known returns the adopted lineage and the mark that it has reached.
	Known() (lineage uint64, mark kv.Mark)
	// Suspect ends the history of a lineage because of data read from it. Retract
	// undoes this: etcd is at is, and the known mark was wrong.
	Suspect(lineage uint64, err error)
	Retract(lineage uint64, is kv.Mark)
	// Ended returns the adopted lineage, why etcd no longer has its history, and a
	// channel that is closed when that changes.
	Ended() (lineage uint64, why *kv.HistoryError, changed <-chan struct{})
	// Endpoints returns --etcd, for logs.
	Endpoints() string
}

// Placement has the agreed shard map.
type Placement interface {
	// Watch returns the map, nil: none yet, and a channel that is closed at the next map.
	Watch() (*shard.Map, <-chan struct{})
	// Propose fails with shard.ErrRefused when the voters refuse the change.
	Propose(ctx context.Context, c shard.Command) (version uint64, err error)
}

// Config configures a Keeper. Its functions may be called from any goroutine.
type Config struct {
	Self shard.NodeID
	// File stores the mark of the lineage; "": it is not stored.
	File      string
	Etcd      Etcd
	Placement Placement
	// Members returns the nodes that gossip sees, StatusOf the status of one.
	Members  func() []shard.Member
	StatusOf func(ctx context.Context, node shard.NodeID) (*shardwatchv1.StatusResponse, error)
	// Forget is called when a lineage begins: reads of etcd in another lineage are void.
	Forget func()
	// Testify compares data of the ended history with etcd, which is at revision now. It
	// returns the number of keys that differ in etcd, and whether all could be compared.
	Testify func(ctx context.Context, now kv.Revision) (wrong int, sure bool)
	Logger  *slog.Logger
}
