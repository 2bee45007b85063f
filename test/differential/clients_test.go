package differential_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/client/v3/mirror"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/check"
	"github.com/shardwatch/shardwatch/test/differential"
)

// leaseSeconds is the TTL of a lease: longer than a test machine is ever busy, so that a lease only
// expires if no client keeps it alive.
const leaseSeconds = 15

// rig is a tier whose nodes are killed and restarted, and a client of etcd's own with the addresses
// of all of them.
type rig struct {
	t    *testing.T
	tier *differential.Tier
	// stop is closed after enough kills.
	stop chan struct{}
	// deaths counts the kills and restarts of nodes.
	deaths atomic.Int32
}

func (r *rig) client() *clientv3.Client {
	r.t.Helper()
	return r.connect(r.tier.Nodes.Endpoints())
}

func (r *rig) connect(endpoints []string) *clientv3.Client {
	r.t.Helper()
	c, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints, DialTimeout: 20 * time.Second, Logger: zap.NewNop(),
		DialKeepAliveTime: 5 * time.Second, DialKeepAliveTimeout: 5 * time.Second,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

// stopped reports whether there were enough kills.
func (r *rig) stopped() bool {
	select {
	case <-r.stop:
		return true
	default:
		return false
	}
}

// retry repeats an action until it succeeds: a node may die meanwhile.
func (r *rig) retry(ctx context.Context, what string, do func(context.Context) error) error {
	var err error
	for ctx.Err() == nil {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		err = do(attempt)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond): // before the next attempt
		}
	}
	return fmt.Errorf("%s: %w", what, errors.Join(err, ctx.Err()))
}

// etcd's own client, with all its packages, works through three nodes while one after another is
// killed.
func TestClientsOutliveNodes(t *testing.T) {
	if testing.Short() {
		t.Skip("kills three nodes, one after another")
	}
	r := &rig{t: t, tier: startTier(t, differential.TierConfig{Dir: t.TempDir()}), stop: make(chan struct{})}
	defer r.tier.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	for name, use := range map[string]func(context.Context) error{
		"mutex": r.mutexes, "election": r.elections, "mirror": r.mirror, "namespace": r.namespace,
		"leases": r.leases, "watches": r.watches,
	} {
		g.Go(func() error {
			if err := use(ctx); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	}
	g.Go(func() error {
		defer close(r.stop)
		return r.kill(ctx)
	})
	if err := g.Wait(); err != nil {
		t.Errorf("after %d deaths: %v", r.deaths.Load(), err)
		t.Log(r.tier.Nodes.Logs(4000))
	}
}

// kill kills one node after another, and restarts each.
func (r *rig) kill(ctx context.Context) error {
	pause := func(d time.Duration) {
		select {
		case <-ctx.Done():
		case <-time.After(d): // the client works meanwhile
		}
	}
	for _, n := range r.tier.Nodes.Nodes {
		pause(2 * time.Second)
		n.Kill()
		pause(2 * time.Second)
		if err := n.Start(); err != nil {
			return err
		}
		if err := n.WaitReady(ctx); err != nil {
			return err
		}
		r.deaths.Add(1)
	}
	pause(time.Second)
	return ctx.Err()
}

// mutexes: at most one locker at a time holds the lock.
func (r *rig) mutexes(ctx context.Context) error {
	var holders, locked atomic.Int32
	g, ctx := errgroup.WithContext(ctx)
	for range 4 {
		g.Go(func() error {
			session, err := concurrency.NewSession(r.client(), concurrency.WithTTL(leaseSeconds))
			if err != nil {
				return err
			}
			defer session.Close()
			m := concurrency.NewMutex(session, "/a/mutex")
			for !r.stopped() {
				if err := r.retry(ctx, "lock", m.Lock); err != nil {
					return err
				}
				if n := holders.Add(1); n != 1 {
					return fmt.Errorf("%d hold the lock", n)
				}
				locked.Add(1)
				holders.Add(-1)
				if err := r.retry(ctx, "unlock", m.Unlock); err != nil {
					return err
				}
				select {
				case <-session.Done():
					return errors.New("the session ended")
				default:
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	r.t.Logf("locked %d times", locked.Load())
	return enough("locks", int(locked.Load()))
}

func enough(what string, n int) error {
	if n < 10 {
		return fmt.Errorf("only %d %s", n, what)
	}
	return nil
}

// elections: there is one leader at a time, and all observers see the leaders in order.
func (r *rig) elections(ctx context.Context) error {
	var mu sync.Mutex
	var led []int64 // the leaders' revisions, in order
	g, ctx := errgroup.WithContext(ctx)
	for i := range 3 {
		g.Go(func() error {
			session, err := concurrency.NewSession(r.client(), concurrency.WithTTL(leaseSeconds))
			if err != nil {
				return err
			}
			defer session.Close()
			e := concurrency.NewElection(session, "/d/election")
			for n := 0; !r.stopped(); n++ {
				if err := r.retry(ctx, "campaign", func(ctx context.Context) error { return e.Campaign(ctx, fmt.Sprintf("%d of %d", n, i)) }); err != nil {
					return err
				}
				mu.Lock()
				led = append(led, e.Rev())
				mu.Unlock()
				if err := r.retry(ctx, "resign", e.Resign); err != nil {
					return err
				}
			}
			return nil
		})
	}
	g.Go(func() error {
		session, err := concurrency.NewSession(r.client(), concurrency.WithTTL(leaseSeconds))
		if err != nil {
			return err
		}
		defer session.Close()
		observed, cancel := context.WithCancel(ctx)
		defer cancel()
		last, seen := int64(0), 0
		for leaders := concurrency.NewElection(session, "/d/election").Observe(observed); !r.stopped(); {
			select {
			case l, ok := <-leaders:
				if !ok { // it gives up when a node dies during a read
					leaders = concurrency.NewElection(session, "/d/election").Observe(observed)
					continue
				}
				if created := l.Kvs[0].CreateRevision; created < last {
					return fmt.Errorf("observed leader %d behind %d", created, last)
				} else if created > last {
					last, seen = created, seen+1
				}
			case <-r.stop:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return enough("observed leaders", seen)
	})
	if err := g.Wait(); err != nil {
		return err
	}
	for i := range led[1:] {
		// A candidate whose resignation got no answer may still lead.
		if led[i] > led[i+1] {
			return fmt.Errorf("leaders in the order %v", led)
		}
	}
	r.t.Logf("%d leaders", len(led))
	return enough("leaders", len(led))
}

// mirror: in the end, clientv3/mirror has etcd's state.
func (r *rig) mirror(ctx context.Context) error {
	c, writer := r.client(), r.connect([]string{r.tier.Etcd.Endpoint()})
	const prefix = "/b/mirrored/"
	for i := range 300 {
		if _, err := writer.Put(ctx, fmt.Sprintf("%s%d", prefix, i), "first"); err != nil {
			return err
		}
	}
	s := mirror.NewSyncer(c, prefix, 0)
	copied := map[string]string{}
	base, errs := s.SyncBase(ctx)
	for page := range base {
		for _, k := range page.Kvs {
			copied[string(k.Key)] = string(k.Value)
		}
	}
	if err := <-errs; err != nil {
		return err
	}
	if len(copied) != 300 {
		return fmt.Errorf("the base has %d keys", len(copied))
	}
	watched, cancel := context.WithCancel(ctx)
	defer cancel()
	updates := s.SyncUpdates(watched)
	n := 0
	for ; !r.stopped(); n++ {
		key := fmt.Sprintf("%s%d", prefix, n%300)
		var err error
		if n%5 == 4 {
			_, err = writer.Delete(ctx, key)
		} else {
			_, err = writer.Put(ctx, key, fmt.Sprint("later ", n))
		}
		if err != nil {
			return err
		}
		select {
		case <-time.After(3 * time.Millisecond): // a few hundred writes per second are enough
		case <-ctx.Done():
		}
	}
	end, err := writer.Put(ctx, prefix+"end", "end")
	if err != nil {
		return err
	}
	for u := range updates {
		if err := u.Err(); err != nil {
			return err
		}
		for _, e := range u.Events {
			if e.Type == mvccpb.Event_DELETE {
				delete(copied, string(e.Kv.Key))
			} else {
				copied[string(e.Kv.Key)] = string(e.Kv.Value)
			}
		}
		if u.Header.Revision >= end.Header.Revision {
			break
		}
	}
	want, err := writer.Get(ctx, prefix, clientv3.WithPrefix())
	if err != nil {
		return err
	}
	for _, k := range want.Kvs {
		if copied[string(k.Key)] != string(k.Value) {
			return fmt.Errorf("%s is %q, want %q", k.Key, copied[string(k.Key)], k.Value)
		}
	}
	if len(copied) != len(want.Kvs) {
		return fmt.Errorf("%d keys, want %d", len(copied), len(want.Kvs))
	}
	r.t.Logf("mirrored %d writes", n)
	return enough("writes", n)
}

// namespace: writes to a namespace are read and watched in it.
func (r *rig) namespace(ctx context.Context) error {
	c := r.client()
	kvs, watcher := namespace.NewKV(c, "/e/space/"), namespace.NewWatcher(c, "/e/space/")
	watched, cancel := context.WithCancel(ctx)
	defer cancel()
	now, err := kvs.Get(ctx, "n")
	if err != nil {
		return err
	}
	events := watcher.Watch(clientv3.WithRequireLeader(watched), "n", clientv3.WithPrefix(), clientv3.WithRev(now.Header.Revision+1), clientv3.WithCreatedNotify())
	if created, ok := <-events; !ok || !created.Created {
		return fmt.Errorf("not created: %w", created.Err())
	}
	n, got := 0, 0
	for ; !r.stopped(); n++ {
		key, value := fmt.Sprint("n", n%7), fmt.Sprint(n)
		err := r.retry(ctx, "put", func(ctx context.Context) error { _, err := kvs.Put(ctx, key, value); return err })
		if err != nil {
			return err
		}
		var read *clientv3.GetResponse
		if err := r.retry(ctx, "get", func(ctx context.Context) (err error) { read, err = kvs.Get(ctx, key); return err }); err != nil {
			return err
		}
		if len(read.Kvs) != 1 || string(read.Kvs[0].Key) != key || string(read.Kvs[0].Value) != value {
			return fmt.Errorf("put %s=%s, read %v", key, value, read.Kvs)
		}
		for done := false; !done; {
			select {
			case w, ok := <-events:
				if !ok || w.Err() != nil {
					return fmt.Errorf("the watch ended: %w", w.Err())
				}
				for _, e := range w.Events {
					// A put without an answer may have happened twice.
					if v := string(e.Kv.Value); string(e.Kv.Key) != fmt.Sprint("n", got%7) || v != fmt.Sprint(got) {
						if again := fmt.Sprint(got - 1); v != again {
							return fmt.Errorf("event %s=%s, want %d", e.Kv.Key, v, got)
						}
						continue
					}
					got++
				}
				done = got > n
			case <-ctx.Done():
				return fmt.Errorf("wait for the event of put %d: %w", n, ctx.Err())
			}
		}
	}
	r.t.Logf("%d puts in a namespace", n)
	return enough("puts", n)
}

// leases: a lease that is kept alive does not expire.
func (r *rig) leases(ctx context.Context) error {
	c := r.client()
	var ids []clientv3.LeaseID
	for i := range 10 {
		var l *clientv3.LeaseGrantResponse
		if err := r.retry(ctx, "grant", func(ctx context.Context) (err error) { l, err = c.Grant(ctx, leaseSeconds); return err }); err != nil {
			return err
		}
		ids = append(ids, l.ID)
		key := fmt.Sprint("/f/leased/", i)
		if err := r.retry(ctx, "put", func(ctx context.Context) error {
			_, err := c.Put(ctx, key, "v", clientv3.WithLease(l.ID))
			return err
		}); err != nil {
			return err
		}
	}
	kept := 0
	alive := make([]<-chan *clientv3.LeaseKeepAliveResponse, len(ids))
	for i, id := range ids {
		var err error
		if alive[i], err = c.KeepAlive(ctx, id); err != nil {
			return err
		}
	}
	for stopped := false; !stopped; {
		for i, ch := range alive {
			select {
			case a, ok := <-ch:
				if !ok {
					return fmt.Errorf("lease %x is no longer kept alive", ids[i])
				}
				if a.TTL != leaseSeconds {
					return fmt.Errorf("lease %x has %d s", ids[i], a.TTL)
				}
				kept++
			default:
			}
		}
		select {
		case <-r.stop:
			stopped = true
		case <-time.After(20 * time.Millisecond): // before the next check
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	read, err := c.Get(ctx, "/f/leased/", clientv3.WithPrefix())
	if err != nil {
		return err
	}
	if len(read.Kvs) != len(ids) {
		return fmt.Errorf("%d keys are left of %d", len(read.Kvs), len(ids))
	}
	for _, k := range read.Kvs {
		if k.Version != 1 {
			return fmt.Errorf("%v", k)
		}
	}
	r.t.Logf("kept alive %d times", kept)
	return enough("times kept alive", kept)
}

// watches: each gets every event once, in order, with previous values, whichever process dies.
func (r *rig) watches(ctx context.Context) error {
	writer := r.connect([]string{r.tier.Etcd.Endpoint()})
	now, err := writer.Get(ctx, "/", clientv3.WithPrefix())
	if err != nil {
		return err
	}
	base := now.Header.Revision
	var state []check.Item
	for _, k := range now.Kvs {
		state = append(state, itemOf(k))
	}
	history := check.NewHistory(kv.Revision(base), state)
	wish := check.Watch{Range: kv.Prefix("/"), Start: kv.Revision(base + 1), Prev: true, Merged: true}
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type watcher struct {
		name, prefix string
		told         clientv3.WatchChan
		*check.Checker
	}
	var watchers []*watcher
	for i := range 6 {
		prefix := []string{"/", "/g/", "/h/"}[i%3]
		w := &watcher{name: fmt.Sprintf("%d of %s", i, prefix), prefix: prefix}
		one := wish
		one.Name, one.Range = w.name, kv.Prefix(prefix)
		w.Checker = check.NewChecker(one)
		w.told = r.client().Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(base+1), clientv3.WithPrevKV())
		watchers = append(watchers, w)
	}
	truth := writer.Watch(ctx, "/", clientv3.WithPrefix(), clientv3.WithRev(base+1))
	n := 0
	for ; !r.stopped(); n++ {
		key := fmt.Sprintf("/%c/watched/%d", 'g'+n%2, n%11)
		var err error
		switch n % 5 {
		case 4:
			_, err = writer.Delete(ctx, key)
		case 3:
			_, err = writer.Txn(ctx).Then(clientv3.OpPut("/g/both", fmt.Sprint(n)), clientv3.OpPut("/h/both", fmt.Sprint(n))).Commit()
		default:
			_, err = writer.Put(ctx, key, fmt.Sprint(n))
		}
		if err != nil {
			return err
		}
		select {
		case <-time.After(2 * time.Millisecond): // a few hundred writes per second are enough
		case <-ctx.Done():
		}
	}
	ends := map[string]int64{}
	last := int64(0)
	for _, prefix := range []string{"/g/", "/h/"} {
		end, err := writer.Put(ctx, prefix+"end", "")
		if err != nil {
			return err
		}
		last = end.Header.Revision
		ends[prefix], ends["/"] = last, last
	}
	for history.Head() < kv.Revision(last) {
		w, ok := <-truth
		if !ok || w.Err() != nil {
			return fmt.Errorf("etcd's own watch ended: %w", w.Err())
		}
		for _, b := range batches(w.Events, false) {
			if err := history.Append(b); err != nil {
				return err
			}
		}
	}
	events := 0
	for _, w := range watchers {
		until := ends[w.prefix]
		for int64(w.Reached()) < until {
			select {
			case told, ok := <-w.told:
				if !ok || told.Err() != nil {
					return fmt.Errorf("watch %s ended: %w", w.name, told.Err())
				}
				for _, b := range batches(told.Events, true) {
					if int64(b.Revision) > until { // by other writers, and not in the history
						break
					}
					w.Feed(check.Op{Kind: check.OpBatch, Revision: b.Revision, Events: b.Events})
				}
				w.Judge(history)
			case <-ctx.Done():
				return fmt.Errorf("watch %s is at %d of %d: %w", w.name, w.Reached(), until, ctx.Err())
			}
		}
		w.Finish(history, kv.Revision(until))
		if broken, count := w.Violations(); count > 0 {
			return fmt.Errorf("watch %s: %d violations: %v", w.name, count, broken)
		}
		events += w.Events()
	}
	r.t.Logf("%d writes, %d events", n, events)
	return enough("writes", n)
}

// batches splits a response's events by revision.
func batches(events []*clientv3.Event, prev bool) (out []check.Batch) {
	for _, e := range events {
		rev := kv.Revision(e.Kv.ModRevision)
		if len(out) == 0 || out[len(out)-1].Revision != rev {
			out = append(out, check.Batch{Revision: rev})
		}
		one := check.Put(itemOf(e.Kv))
		if e.Type == mvccpb.Event_DELETE {
			one = check.Delete(string(e.Kv.Key), rev)
		}
		if prev && e.PrevKv != nil {
			before := itemOf(e.PrevKv)
			one.Prev = &before
		}
		b := &out[len(out)-1]
		b.Events = append(b.Events, one)
	}
	return out
}

func itemOf(k *mvccpb.KeyValue) check.Item {
	return check.Item{
		Key: string(k.Key), Value: check.HashValue(k.Value),
		Create: kv.Revision(k.CreateRevision), Mod: kv.Revision(k.ModRevision), Version: k.Version, Lease: k.Lease,
	}
}
