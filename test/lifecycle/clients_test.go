package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/check"
)

// clients write to etcd at a low rate, watch through the Service, and have the expected events.
type clients struct {
	t        *testing.T
	etcd     *clientv3.Client
	history  *check.History
	watchers []*watcher
	g        *errgroup.Group
	stop     context.CancelFunc
}

// watcher is one watch, judged while it runs.
type watcher struct {
	name  string
	watch check.Watch

	mu      sync.Mutex
	checker *check.Checker // guarded by mu
	begun   bool           // guarded by mu
	told    int            // guarded by mu; reported violations
	err     error          // guarded by mu; why it ended
	worst   time.Duration  // guarded by mu; the longest delay of a revision after etcd's own watch
	last    time.Time      // guarded by mu
}

// startClients writes and watches until the test ends.
func startClients(t *testing.T, etcdEndpoint, service string) *clients {
	t.Helper()
	dial := func(endpoint string) *clientv3.Client {
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + endpoint}, Logger: zap.NewNop(), DialTimeout: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	direct, through := dial(etcdEndpoint), dial(service)
	native, err := client.New(client.Config{Endpoints: []string{service}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	g, ctx := errgroup.WithContext(ctx)
	c := &clients{t: t, etcd: direct, history: check.NewHistory(1, nil), g: g, stop: stop}
	for i, w := range []check.Watch{
		{Range: kv.Prefix("/"), Prev: true, Merged: true},
		{Range: kv.Prefix("/a/")},
		{Range: kv.Prefix("/b/"), Start: 2},
		{Range: kv.Range{Start: "/a/3", End: "/a/3\x00"}},
		{Range: kv.Prefix("/"), Start: 2, Merged: true},
	} {
		for _, api := range []string{"native", "etcd"} {
			w.Name = fmt.Sprintf("%s watch %d of %v", api, i, w.Range)
			one := &watcher{name: w.Name, watch: w, checker: check.NewChecker(w)}
			c.watchers = append(c.watchers, one)
			if api == "native" {
				g.Go(func() error { one.native(ctx, native); return nil })
			} else {
				g.Go(func() error { one.etcd(ctx, through); return nil })
			}
		}
	}
	g.Go(func() error { return c.follow(ctx) })
	g.Go(func() error { return c.write(ctx) })
	t.Cleanup(func() {
		stop()
		err := g.Wait()
		err = errors.Join(err, native.Close(), through.Close(), direct.Close())
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return c
}

// follow records the truth: one watch at etcd itself.
func (c *clients) follow(ctx context.Context) error {
	for r := range c.etcd.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(2)) {
		if err := r.Err(); err != nil {
			return fmt.Errorf("watch etcd: %w", err)
		}
		for _, b := range batches(r.Events) {
			if err := c.history.Append(b); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// write writes 50 times a second: puts, deletes, and both kinds of keys at once.
func (c *clients) write(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		a, b := "/a/"+strconv.Itoa(rand.IntN(10)), "/b/"+strconv.Itoa(rand.IntN(10))
		op := clientv3.OpPut(a, strconv.Itoa(i))
		switch i % 5 {
		case 1:
			op = clientv3.OpPut(b, strconv.Itoa(i))
		case 2:
			op = clientv3.OpDelete(b)
		case 3:
			op = clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpPut(a, "two"), clientv3.OpPut(b, "two")}, nil)
		}
		if _, err := c.etcd.Do(ctx, op); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// settle waits until every watch has etcd's current revision, and judges all their updates.
func (c *clients) settle(after string) {
	c.t.Helper()
	r, err := c.etcd.Get(c.t.Context(), "x")
	if err != nil {
		c.t.Fatal(err)
	}
	rev := kv.Revision(r.Header.Revision)
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for c.history.Head() < rev {
		c.wait(tick, deadline, "etcd's own watch")
	}
	for _, w := range c.watchers {
		for !w.complete(c.history, rev) {
			c.wait(tick, deadline, fmt.Sprintf("%s after %s, which is at %d of %d", w.name, after, w.reached(), rev))
		}
	}
	var worst time.Duration
	for _, w := range c.watchers {
		worst = max(worst, w.judge(c.t, c.history, after))
	}
	c.t.Logf("%s: revision %d, longest pause of a watch of everything %v", after, rev, worst.Round(time.Millisecond))
}

func (c *clients) wait(tick *time.Ticker, deadline time.Time, what string) {
	c.t.Helper()
	if time.Now().After(deadline) {
		c.t.Fatalf("gave up waiting for %s", what)
	}
	<-tick.C
}

func (w *watcher) complete(h *check.History, rev kv.Revision) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err != nil || w.begun && w.checker.Complete(h, rev)
}

func (w *watcher) reached() kv.Revision {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.checker.Reached()
}

// judge reports the violations since the last call, and the longest pause.
func (w *watcher) judge(t *testing.T, h *check.History, after string) (worst time.Duration) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checker.Judge(h)
	if w.err != nil {
		t.Errorf("after %s: %s ended: %v", after, w.name, w.err)
	}
	broken, all := w.checker.Violations()
	for _, v := range broken[min(w.told, len(broken)):] {
		t.Errorf("after %s: %v", after, v)
	}
	if all > max(w.told, len(broken)) {
		t.Errorf("after %s: %s: %d violations more", after, w.name, all-max(w.told, len(broken)))
	}
	w.told = all
	worst, w.worst = w.worst, 0
	return worst
}

func (w *watcher) saw(op check.Op) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checker.Feed(op)
	w.begun = true
	if op.Kind == check.OpBatch && w.watch.Merged { // written to 50 times a second
		now := time.Now()
		if !w.last.IsZero() {
			w.worst = max(w.worst, now.Sub(w.last))
		}
		w.last = now
	}
}

func (w *watcher) ended(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}

// native watches with the Go client, which resumes on its own.
func (w *watcher) native(ctx context.Context, c *client.Client) {
	opts := []client.WatchOption{client.WithProgress()}
	if w.watch.Start > 0 {
		opts = append(opts, client.FromRevision(int64(w.watch.Start)))
	}
	if w.watch.Prev {
		opts = append(opts, client.WithPrevKV())
	}
	cw := c.Watch(ctx, client.Between(w.watch.Range.Start, w.watch.Range.End), opts...)
	defer cw.Close()
	for first := true; ; first = false {
		u, err := cw.Next(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			w.ended(err)
			return
		}
		switch op := (check.Op{Revision: kv.Revision(u.Revision)}); u.Kind {
		case client.KindBatch:
			op.Kind = check.OpBatch
			for i := range u.Events {
				op.Events = append(op.Events, nativeEvent(&u.Events[i]))
			}
			w.saw(op)
		case client.KindProgress:
			op.Kind = check.OpProgress
			if first && w.watch.Start == 0 {
				op.Kind = check.OpCreated // the client reports the start of the watch this way
			}
			w.saw(op)
		default:
			w.ended(fmt.Errorf("it was sent %v at revision %d in place of events", u.Kind, u.Revision))
			return
		}
	}
}

// etcd watches with etcd's client, which also resumes on its own.
func (w *watcher) etcd(ctx context.Context, c *clientv3.Client) {
	opts := []clientv3.OpOption{clientv3.WithCreatedNotify()}
	if end := w.watch.Range.End; end != "" {
		opts = append(opts, clientv3.WithRange(end))
	}
	if w.watch.Start > 0 {
		opts = append(opts, clientv3.WithRev(int64(w.watch.Start)))
	}
	if w.watch.Prev {
		opts = append(opts, clientv3.WithPrevKV())
	}
	for r := range c.Watch(ctx, w.watch.Range.Start, opts...) {
		if err := r.Err(); err != nil && ctx.Err() == nil {
			w.ended(err)
			return
		}
		if r.Created && w.watch.Start == 0 {
			w.saw(check.Op{Kind: check.OpCreated, Revision: kv.Revision(r.Header.Revision)})
		}
		for _, b := range batches(r.Events) {
			w.saw(check.Op{Kind: check.OpBatch, Revision: b.Revision, Events: b.Events})
		}
	}
	if ctx.Err() == nil {
		w.ended(errors.New("its channel was closed"))
	}
}

// batches cuts events into revisions.
func batches(events []*clientv3.Event) (out []check.Batch) {
	for _, e := range events {
		rev := kv.Revision(e.Kv.ModRevision)
		if n := len(out); n == 0 || out[n-1].Revision != rev {
			out = append(out, check.Batch{Revision: rev})
		}
		out[len(out)-1].Events = append(out[len(out)-1].Events, etcdEvent(e))
	}
	return out
}

func etcdEvent(e *clientv3.Event) check.Event {
	item := func(k *mvccpb.KeyValue) check.Item {
		return check.Item{
			Key: string(k.Key), Value: check.HashValue(k.Value), Create: kv.Revision(k.CreateRevision), Mod: kv.Revision(k.ModRevision),
			Version: k.Version, Lease: k.Lease,
		}
	}
	out := check.Put(item(e.Kv))
	if e.Type == clientv3.EventTypeDelete {
		out = check.Delete(string(e.Kv.Key), kv.Revision(e.Kv.ModRevision))
	}
	if e.PrevKv != nil {
		p := item(e.PrevKv)
		out.Prev = &p
	}
	return out
}

func nativeEvent(e *client.Event) check.Event {
	item := func(k *client.KeyValue) check.Item {
		return check.Item{
			Key: string(k.Key), Value: check.HashValue(k.Value), Create: kv.Revision(k.CreateRevision), Mod: kv.Revision(k.ModRevision),
			Version: k.Version, Lease: k.Lease,
		}
	}
	out := check.Put(item(&e.KV))
	if e.Type == client.EventDelete {
		out = check.Delete(string(e.KV.Key), kv.Revision(e.KV.ModRevision))
	}
	if e.Prev != nil {
		p := item(e.Prev)
		out.Prev = &p
	}
	return out
}
