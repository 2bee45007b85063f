package chaos

import (
	"time"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/check"
)

// opFrom converts an update to an operation of the checker.
func opFrom(u *client.Update) check.Op {
	op := check.Op{Revision: kv.Revision(u.Revision)}
	switch u.Kind {
	case client.KindBatch:
		op.Kind, op.Events = check.OpBatch, eventsFrom(u.Events)
	case client.KindState, client.KindResync:
		op.Kind, op.Items = check.OpState, itemsFrom(u.KVs)
	case client.KindProgress:
		op.Kind = check.OpProgress
	case client.KindDelta, client.KindConflated:
		op.Kind, op.From, op.Items = check.OpDelta, kv.Revision(u.From), itemsFrom(u.KVs)
		for _, key := range u.Deleted {
			op.Deleted = append(op.Deleted, string(key))
		}
	}
	return op
}

// conflated returns the option for the latest values at intervals of d; 0: every event.
func conflated(d time.Duration) []client.WatchOption {
	if d == 0 {
		return nil
	}
	return []client.WatchOption{client.WithConflation(d)}
}
