package chaos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/shardwatch/shardwatch/internal/check"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// truth is what happened, as one watch of everything at etcd itself tells it,
// and when we heard of it.
type truth struct {
	history *check.History

	mu sync.RWMutex
	at []time.Time // guarded by mu; index: revision
}

func newTruth() *truth { return &truth{history: check.NewHistory(1, nil)} }

// run follows etcd from its first revision until ctx ends.
func (t *truth) run(ctx context.Context, c *clientv3.Client) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for r := range c.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(2)) {
		if err := r.Err(); err != nil {
			return fmt.Errorf("watch etcd: %w", err)
		}
		if err := t.append(r.Events, time.Now()); err != nil {
			return err
		}
	}
	if ctx.Err() == nil {
		return errors.New("watch etcd: it ended without a reason")
	}
	return ctx.Err()
}

// append takes the events of one response: whole revisions, in order.
func (t *truth) append(events []*clientv3.Event, now time.Time) error {
	for len(events) > 0 {
		rev := events[0].Kv.ModRevision
		b := check.Batch{Revision: kv.Revision(rev)}
		for len(events) > 0 && events[0].Kv.ModRevision == rev {
			b.Events = append(b.Events, eventFromEtcd(events[0]))
			events = events[1:]
		}
		t.heard(rev, now) // first: who knows of the revision asks when
		if err := t.history.Append(b); err != nil {
			return fmt.Errorf("watch etcd: %w", err)
		}
	}
	return nil
}

func (t *truth) heard(rev int64, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for int64(len(t.at)) <= rev {
		t.at = append(t.at, now)
	}
}

// when returns when we heard of rev, and false when we did not yet.
func (t *truth) when(rev kv.Revision) (time.Time, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if rev < 0 || int64(rev) >= int64(len(t.at)) {
		return time.Time{}, false
	}
	return t.at[rev], true
}

// reach waits until the history has rev.
func (t *truth) reach(ctx context.Context, rev int64, within time.Duration) error {
	return poll(ctx, within, "etcd's own watch", func() error {
		if head := t.history.Head(); int64(head) < rev {
			return fmt.Errorf("it is at revision %d of %d", head, rev)
		}
		return nil
	})
}
