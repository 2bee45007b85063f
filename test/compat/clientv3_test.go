package compat_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/client/v3/mirror"
	"go.etcd.io/etcd/client/v3/namespace"
)

// A client that reads its endpoints from one node stays with the tier.
func TestSyncStaysInTheTier(t *testing.T) {
	if testing.Short() {
		t.Skip("starts etcds and nodes")
	}
	g := start(t, "tier", false)
	cli := connect(t, g.endpoints()[0])
	sync := func() []string {
		t.Helper()
		if err := eventually(t.Context(), cli.Sync); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range cli.Endpoints() {
			got = append(got, strings.TrimPrefix(e, "http://"))
		}
		return slices.Sorted(slices.Values(got))
	}
	want := slices.Sorted(slices.Values(g.endpoints()))
	if got := sync(); !slices.Equal(got, want) {
		t.Fatalf("endpoints %v, want %v", got, want)
	}
	for _, e := range want {
		if s, err := cli.Status(t.Context(), e); err != nil || !strings.HasPrefix(s.Version, "3.") {
			t.Errorf("status of %s: %+v, %v", e, s, err)
		}
	}
	// The initial endpoint is no longer needed.
	g.tier.Nodes[0].Kill()
	if err := eventually(t.Context(), func(ctx context.Context) error { _, err := cli.Put(ctx, "k", "v"); return err }); err != nil {
		t.Fatal(err)
	}
	for _, e := range sync() {
		if !slices.Contains(want, e) {
			t.Errorf("%s is not one of the tier's %v", e, want)
		}
	}
}

// Programs on clientv3 continue while their server is killed and restarted.
func TestClientv3(t *testing.T) {
	if testing.Short() {
		t.Skip("starts etcds and nodes")
	}
	for _, name := range targets() {
		t.Run(name, func(t *testing.T) {
			if name == "etcd" && !everything() {
				t.Skip("make compat runs it")
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			newWorks(t, start(t, name, false)).run(ctx)
		})
	}
}

// works are the concurrent programs. Each counts its actions.
type works struct {
	t *testing.T
	g *target

	written, locked, led, observed, kept, mirrored, watched, named atomic.Int64

	mu   sync.Mutex
	copy map[string]string // the mirror's state; guarded by mu
	seen []int64           // revisions of the watch; guarded by mu
}

func newWorks(t *testing.T, g *target) *works { return &works{t: t, g: g, copy: map[string]string{}} }

func (w *works) all() map[string]*atomic.Int64 {
	return map[string]*atomic.Int64{
		"writes": &w.written, "locks": &w.locked, "terms": &w.led, "leaders observed": &w.observed,
		"keep-alives": &w.kept, "mirrored": &w.mirrored, "events": &w.watched, "in the namespace": &w.named,
	}
}

func (w *works) run(ctx context.Context) {
	t := w.t
	working, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	var inside, leading atomic.Int64
	begin := func(work func(context.Context, *clientv3.Client) error) {
		cli := connect(t, w.g.endpoints()...)
		running.Go(func() {
			if err := work(working, cli); err != nil && working.Err() == nil {
				t.Error(err)
				stop()
			}
		})
	}
	begin(w.write)
	for i := range 3 {
		begin(func(ctx context.Context, cli *clientv3.Client) error { return w.lock(ctx, cli, &inside) })
		begin(func(ctx context.Context, cli *clientv3.Client) error {
			return w.lead(ctx, cli, fmt.Sprintf("candidate-%d", i), &leading)
		})
	}
	begin(w.observe)
	begin(w.keep)
	begin(w.mirror)
	begin(w.watch)
	begin(w.name)
	err := w.goOn(working)
	if err == nil {
		err = w.g.restart(working, func() error { return w.goOn(working) })
	}
	if err == nil {
		err = w.goOn(working)
	}
	stop()
	running.Wait()
	if err != nil {
		t.Fatal(err)
	}
	w.compare(ctx)
}

// goOn waits until every program has made progress.
func (w *works) goOn(ctx context.Context) error {
	before := map[string]int64{}
	for name, n := range w.all() {
		before[name] = n.Load()
	}
	return eventually(ctx, func(context.Context) error {
		for name, n := range w.all() {
			if n.Load() < before[name]+3 {
				return fmt.Errorf("%s: %d, and %d before", name, n.Load(), before[name])
			}
		}
		return nil
	})
}

// compare compares with etcd's own history.
func (w *works) compare(ctx context.Context) {
	t := w.t
	direct := connect(t, w.g.etcd.Endpoint())
	r, err := direct.Get(ctx, "m/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, kv := range r.Kvs {
		want[string(kv.Key)] = string(kv.Value)
	}
	// A mirror or a watch that starts later gets the same events.
	w.mu.Lock()
	defer w.mu.Unlock()
	behind := 0
	for k, v := range want {
		if w.copy[k] != v {
			behind++
		}
	}
	if behind > 3 || len(w.copy) == 0 { // writes at the end
		t.Errorf("the mirror is wrong: %d of %d keys", behind, len(want))
	}
	for k := range maps.Keys(w.copy) {
		if _, there := want[k]; !there {
			t.Errorf("the mirror has %s", k)
		}
	}
	if len(w.seen) == 0 {
		t.Fatal("the watch saw nothing")
	}
	truth := direct.Watch(ctx, "m/", clientv3.WithPrefix(), clientv3.WithRev(1))
	at := 0
	for resp := range truth {
		for _, e := range resp.Events {
			if e.Kv.ModRevision != w.seen[at] {
				t.Errorf("the watch saw revision %d where etcd has %d", w.seen[at], e.Kv.ModRevision)
				return
			}
			if at++; at == len(w.seen) {
				return
			}
		}
	}
	t.Errorf("the watch saw %d events, etcd has %d", len(w.seen), at)
}

func (w *works) write(ctx context.Context, cli *clientv3.Client) error {
	for i := 0; ctx.Err() == nil; i++ {
		if _, err := cli.Put(ctx, fmt.Sprintf("m/%02d", i%50), fmt.Sprint(i)); err != nil {
			if !wait(ctx) {
				return nil
			}
			continue // the write may have succeeded
		}
		w.written.Add(1)
		if !wait(ctx) {
			return nil
		}
	}
	return nil
}

// inSession runs f with a session until ctx ends, and with a new one after a failure.
func inSession(ctx context.Context, cli *clientv3.Client, f func(*concurrency.Session) error) error {
	for ctx.Err() == nil {
		s, err := concurrency.NewSession(cli, concurrency.WithTTL(10), concurrency.WithContext(ctx))
		if err != nil {
			if !wait(ctx) {
				return nil
			}
			continue
		}
		for err == nil && ctx.Err() == nil {
			err = f(s)
		}
		s.Orphan()
		var wrong *wrongError
		if errors.As(err, &wrong) {
			return err
		}
		_ = eventually(ctx, func(ctx context.Context) error { // otherwise others wait until it expires
			_, err := cli.Revoke(ctx, s.Lease())
			if errors.Is(err, rpctypes.ErrLeaseNotFound) {
				return nil
			}
			return err
		})
	}
	return nil
}

// wrongError says that a promise is broken; other errors are of those who die.
type wrongError struct{ what string }

func (e *wrongError) Error() string { return e.what }

func (w *works) lock(ctx context.Context, cli *clientv3.Client, inside *atomic.Int64) error {
	return inSession(ctx, cli, func(s *concurrency.Session) error {
		m := concurrency.NewMutex(s, "lock")
		if err := m.Lock(ctx); err != nil {
			return err
		}
		others := inside.Add(1) - 1
		time.Sleep(2 * time.Millisecond) // time for others to violate the lock
		inside.Add(-1)
		if others > 0 {
			return &wrongError{"two hold a lock"}
		}
		w.locked.Add(1)
		return m.Unlock(ctx)
	})
}

func (w *works) lead(ctx context.Context, cli *clientv3.Client, name string, leading *atomic.Int64) error {
	return inSession(ctx, cli, func(s *concurrency.Session) error {
		e := concurrency.NewElection(s, "leader")
		if err := e.Campaign(ctx, name); err != nil {
			return err
		}
		others := leading.Add(1) - 1
		l, err := e.Leader(ctx)
		leading.Add(-1)
		if err != nil {
			return err
		}
		if others > 0 || string(l.Kvs[0].Value) != name {
			return &wrongError{fmt.Sprintf("%s leads, and so do %d others; the leader is %s", name, others, l.Kvs[0].Value)}
		}
		w.led.Add(1)
		return e.Resign(ctx)
	})
}

func (w *works) observe(ctx context.Context, cli *clientv3.Client) error {
	return inSession(ctx, cli, func(s *concurrency.Session) error {
		for range concurrency.NewElection(s, "leader").Observe(ctx) {
			w.observed.Add(1)
		}
		return nil // it ends with an error that it does not report
	})
}

// keep keeps one lease alive throughout.
func (w *works) keep(ctx context.Context, cli *clientv3.Client) error {
	var lease clientv3.LeaseID
	if err := eventually(ctx, func(ctx context.Context) error {
		r, err := cli.Grant(ctx, 6)
		if err == nil {
			lease = r.ID
		}
		return err
	}); err != nil {
		return err
	}
	alive, err := cli.KeepAlive(ctx, lease)
	if err != nil {
		return err
	}
	for range alive {
		w.kept.Add(1)
	}
	if ctx.Err() == nil {
		return errors.New("a lease was lost")
	}
	return nil
}

func (w *works) mirror(ctx context.Context, cli *clientv3.Client) error {
	syncer := mirror.NewSyncer(cli, "m/", 0)
	base, errs := syncer.SyncBase(ctx)
	for r := range base {
		w.mu.Lock()
		for _, kv := range r.Kvs {
			w.copy[string(kv.Key)] = string(kv.Value)
		}
		w.mu.Unlock()
	}
	if err := <-errs; err != nil {
		return fmt.Errorf("mirror: %w", err)
	}
	for r := range syncer.SyncUpdates(ctx) {
		if err := r.Err(); err != nil && ctx.Err() == nil {
			return fmt.Errorf("mirror: %w", err)
		}
		w.mu.Lock()
		for _, e := range r.Events {
			w.copy[string(e.Kv.Key)] = string(e.Kv.Value)
			w.mirrored.Add(1)
		}
		w.mu.Unlock()
	}
	return nil
}

func (w *works) watch(ctx context.Context, cli *clientv3.Client) error {
	for r := range cli.Watch(clientv3.WithRequireLeader(ctx), "m/", clientv3.WithPrefix(), clientv3.WithRev(1), clientv3.WithPrevKV()) {
		if err := r.Err(); err != nil && ctx.Err() == nil {
			return fmt.Errorf("watch: %w", err)
		}
		w.mu.Lock()
		for _, e := range r.Events {
			w.seen = append(w.seen, e.Kv.ModRevision)
			w.watched.Add(1)
			if e.IsModify() && e.PrevKv == nil {
				w.t.Errorf("revision %d has no previous value", e.Kv.ModRevision)
			}
		}
		w.mu.Unlock()
	}
	return nil
}

// name writes to a namespace and reads the key back.
func (w *works) name(ctx context.Context, cli *clientv3.Client) error {
	in := namespace.NewKV(cli.KV, "ns/")
	events := namespace.NewWatcher(cli.Watcher, "ns/").Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(1))
	for i := 0; ctx.Err() == nil; i++ {
		key := fmt.Sprint("k", i)
		if _, err := in.Put(ctx, key, key); err != nil {
			if !wait(ctx) {
				return nil
			}
			continue // the write may have succeeded
		}
		for found := false; !found; {
			r, ok := <-events
			if !ok || r.Err() != nil {
				return fmt.Errorf("namespace: %w", r.Err())
			}
			for _, e := range r.Events {
				if strings.HasPrefix(string(e.Kv.Key), "ns/") {
					return fmt.Errorf("%s in the namespace", e.Kv.Key)
				}
				found = found || string(e.Kv.Key) == key
			}
		}
		r, err := in.Get(ctx, "", clientv3.WithFromKey(), clientv3.WithLimit(1), clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortDescend))
		if err == nil && (len(r.Kvs) != 1 || string(r.Kvs[0].Key) != key) {
			return fmt.Errorf("read %v after writing %s", r.Kvs, key)
		}
		w.named.Add(1)
		if !wait(ctx) {
			return nil
		}
	}
	return nil
}

// wait yields to others. It returns false if ctx has ended.
func wait(ctx context.Context) bool {
	select {
	case <-time.After(5 * time.Millisecond):
		return true
	case <-ctx.Done():
		return false
	}
}

// eventually calls f until it succeeds. Each call has a timeout of some seconds.
func eventually(ctx context.Context, f func(context.Context) error) error {
	for {
		once, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := f(once)
		cancel()
		if err == nil {
			return nil
		}
		if !wait(ctx) {
			return errors.Join(ctx.Err(), err)
		}
	}
}
