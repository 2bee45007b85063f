package chaos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/check"
)

// truth is the reference history, from a watch of all keys at etcd itself, with the arrival time of
// each revision.
type truth struct {
	now       atomic.Pointer[era]
	appending sync.Mutex
	// compacted is the upper bound of etcd's compact revision.
	compacted atomic.Int64
}

// era is one history of etcd, without a restore.
type era struct {
	number  int
	base    kv.Revision // the history begins after it; etcd may have older revisions
	history *check.History
	ended   context.Context // ends when etcd is restored
	end     context.CancelFunc

	mu sync.RWMutex
	at []time.Time // guarded by mu; index: revision
}

func newTruth() *truth {
	t := &truth{}
	t.begin(0, 1, nil)
	return t
}

func (t *truth) begin(number int, base kv.Revision, state []check.Item) {
	e := &era{number: number, base: base, history: check.NewHistory(base, state)}
	e.ended, e.end = context.WithCancel(context.Background())
	t.now.Store(e)
}

// restart begins a new history: etcd was restored to its state at revision was, which is now
// revision is.
func (t *truth) restart(was, is kv.Revision) {
	t.appending.Lock()
	defer t.appending.Unlock()
	old := t.now.Load()
	t.begin(old.number+1, is, old.history.State(kv.Range{}, was))
	old.end()
}

// beginAnew begins the history of a fresh etcd.
func (t *truth) beginAnew() {
	t.appending.Lock()
	defer t.appending.Unlock()
	old := t.now.Load()
	t.begin(old.number+1, 1, nil)
	t.compacted.Store(0)
	old.end()
}

// history returns etcd's current history.
func (t *truth) history() *check.History { return t.now.Load().history }

// run follows etcd from its first revision at every member at once, until ctx ends: the events of
// each member are true, even if the others fail.
func (t *truth) run(ctx context.Context, members ...*clientv3.Client) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, c := range members {
		g.Go(func() error {
			for {
				err := t.follow(ctx, c, t.now.Load())
				if ctx.Err() != nil {
					return ctx.Err()
				}
				var lost *lostError
				if errors.As(err, &lost) {
					return err
				}
				if err := pause(ctx, 50*time.Millisecond); err != nil {
					return err
				}
			}
		})
	}
	return g.Wait()
}

// lostError reports that the truth can no longer be known.
type lostError struct{ why error }

func (l *lostError) Error() string { return "watch etcd: " + l.why.Error() }

func (l *lostError) Unwrap() error { return l.why }

// follow watches at one member until the watch or the era ends.
func (t *truth) follow(ctx context.Context, c *clientv3.Client, e *era) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	defer context.AfterFunc(e.ended, cancel)()
	for r := range c.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(int64(e.history.Head())+1)) {
		if r.CompactRevision > int64(e.history.Head())+1 && e.ended.Err() == nil {
			return &lostError{r.Err()}
		}
		if err := r.Err(); err != nil {
			return fmt.Errorf("watch etcd: %w", err)
		}
		if err := t.append(e, r.Events, time.Now()); err != nil {
			return &lostError{err}
		}
	}
	return ctx.Err()
}

// append adds the events of one response: whole revisions, in order. It skips events that another
// member has already sent.
func (t *truth) append(e *era, events []*clientv3.Event, now time.Time) error {
	t.appending.Lock()
	defer t.appending.Unlock()
	if e.ended.Err() != nil {
		return nil // it was in flight when etcd was restored
	}
	for len(events) > 0 {
		rev := events[0].Kv.ModRevision
		b := check.Batch{Revision: kv.Revision(rev)}
		for len(events) > 0 && events[0].Kv.ModRevision == rev {
			b.Events = append(b.Events, eventFromEtcd(events[0]))
			events = events[1:]
		}
		if b.Revision <= e.history.Head() {
			continue
		}
		e.heard(rev, now) // first: watchers that have the revision read its time
		if err := e.history.Append(b); err != nil {
			return fmt.Errorf("watch etcd: %w", err)
		}
	}
	return nil
}

func (e *era) heard(rev int64, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for int64(len(e.at)) <= rev {
		e.at = append(e.at, now)
	}
}

// when returns the arrival time of rev, and whether it has arrived.
func (e *era) when(rev kv.Revision) (time.Time, bool) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if rev < 0 || int64(rev) >= int64(len(e.at)) {
		return time.Time{}, false
	}
	return e.at[rev], true
}

// reach waits until the history has rev.
func (t *truth) reach(ctx context.Context, rev int64, within time.Duration) error {
	return poll(ctx, within, "etcd's own watch", func() error {
		if head := t.history().Head(); int64(head) < rev {
			return fmt.Errorf("it is at revision %d of %d", head, rev)
		}
		return nil
	})
}
