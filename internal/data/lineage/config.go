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
	// Look reads etcd's clock and judges its history: when that is another one, it
	// returns a *kv.HistoryError with etcd's state.
	Look(ctx context.Context) (etcdclock.Clock, error)
	// Adopt has the history of a lineage followed, known to have come as far as
	// mark.
	Adopt(lineage uint64, mark kv.Mark)
	// Known returns the lineage that was adopted and how far it has come.
	Known() (lineage uint64, mark kv.Mark)
	// Suspect ends the history of a lineage because of data read from it, and Retract
	// undoes this: etcd shows is, and the knowledge of it was wrong.
	Suspect(lineage uint64, err error)
	Retract(lineage uint64, is kv.Mark)
	// Ended returns the lineage that was adopted, why its history is not etcd's
	// any more, and a channel that is closed when that changes.
	Ended() (lineage uint64, why *kv.HistoryError, changed <-chan struct{})
	// Endpoints returns --etcd, for people.
	Endpoints() string
}

// Placement has the shard map agreed.
type Placement interface {
	// Watch returns the map, nil: none yet, and a channel that is closed at the next.
	Watch() (*shard.Map, <-chan struct{})
	// Propose fails with shard.ErrRefused when the voters refuse the change.
	Propose(ctx context.Context, c shard.Command) (version uint64, err error)
}

// Config configures a Keeper. Its functions may be called from any goroutine.
type Config struct {
	Self shard.NodeID
	// File keeps the position of the lineage; "": it is not kept.
	File      string
	Etcd      Etcd
	Placement Placement
	// Members returns the nodes that gossip sees, StatusOf asks one for its status.
	Members  func() []shard.Member
	StatusOf func(ctx context.Context, node shard.NodeID) (*shardwatchv1.StatusResponse, error)
	// Forget is called when a lineage begins: reads of etcd in another one are void.
	Forget func()
	// Testify compares data of the ended history with etcd, which is at revision now. It
	// returns how many keys etcd has otherwise, and whether that is known of all.
	Testify func(ctx context.Context, now kv.Revision) (wrong int, sure bool)
	Logger  *slog.Logger
}
