package node_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/mirror"
	"github.com/shardwatch/shardwatch/internal/freeport"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/nodetest"
)

// Nodes and etcd are rebuilt with fresh data behind the same addresses, under
// running clients. etcd's cluster ID is the same again if its flags are the same:
// positions must not rely on it.
func TestRebuiltTierAndEtcd(t *testing.T) {
	if testing.Short() {
		t.Skip("runs processes")
	}
	bin, err := nodetest.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"etcd with the same flags": nil,
		"etcd with another ID":     {"--initial-cluster-token=another"},
	} {
		t.Run(name, func(t *testing.T) { rebuildTierAndEtcd(t, bin, args) })
	}
}

// rebuilding is a tier of processes and its etcd.
type rebuilding struct {
	t    *testing.T
	ctx  context.Context //nolint:containedctx // of the test
	tier *nodetest.Cluster
	etcd *etcdtest.Process
	cli  *clientv3.Client // of etcd
	addr [2]string        // etcd's, for clients and for members
}

// newEtcd starts an etcd without data at etcd's address, with n keys.
func (r *rebuilding) newEtcd(n int, args ...string) {
	r.t.Helper()
	p, err := etcdtest.NewProcess(r.ctx, etcdtest.ProcessConfig{Dir: r.t.TempDir(), ClientAddr: r.addr[0], PeerAddr: r.addr[1], Args: args})
	if err == nil {
		err = p.Start(r.ctx)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = p.Kill() })
	r.etcd, r.cli = p, etcdClient(r.t, p.Endpoint())
	r.put("/k/first", n)
}

func (r *rebuilding) put(prefix string, n int) {
	r.t.Helper()
	for i := range n {
		if _, err := r.cli.Put(r.ctx, fmt.Sprintf("%s-%d", prefix, i), "x"); err != nil {
			r.t.Fatal(err)
		}
	}
}

// contents returns the keys in etcd, and etcd's cluster ID.
func (r *rebuilding) contents() (map[string]int64, uint64) {
	r.t.Helper()
	got, err := r.cli.Get(r.ctx, "/k/", clientv3.WithPrefix())
	if err != nil {
		r.t.Fatal(err)
	}
	keys := map[string]int64{}
	for _, kv := range got.Kvs {
		keys[string(kv.Key)] = kv.ModRevision
	}
	return keys, got.Header.ClusterId
}

// rebuild ends all processes and starts them without data: etcd has n keys before
// the first node starts.
func (r *rebuilding) rebuild(n int, args ...string) {
	r.t.Helper()
	r.tier.Stop()
	if err := r.etcd.Kill(); err != nil {
		r.t.Fatal(err)
	}
	r.newEtcd(n, args...)
	for _, node := range r.tier.Nodes {
		if err := errors.Join(node.Wipe(), node.Start()); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := r.tier.WaitReady(r.ctx); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rebuilding) connect() *client.Client {
	r.t.Helper()
	c, err := client.New(client.Config{Endpoints: r.tier.Endpoints(), RetryFor: patience})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

func rebuildTierAndEtcd(t *testing.T, bin string, args []string) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // two starts of six processes
	defer cancel()
	ports, err := freeport.Take(2)
	if err != nil {
		t.Fatal(err)
	}
	r := &rebuilding{t: t, ctx: ctx, addr: [2]string{ports[0], ports[1]}}
	r.newEtcd(20)
	if r.tier, err = nodetest.Start(ctx, nodetest.Config{Binary: bin, Dir: t.TempDir(), Etcd: "http://" + r.addr[0], Nodes: 5, Args: []string{"--shards", "4"}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.tier.Stop()
		if t.Failed() {
			t.Log(r.tier.Logs(5_000))
		}
	})
	keys := client.Prefix("/k/")
	var mirrors []*mirror.Mirror
	for range 10 {
		mirrors = append(mirrors, mirror.New(ctx, r.connect(), keys))
	}
	c := r.connect()
	watch := func(opts ...client.WatchOption) *client.Watcher {
		w := c.Watch(ctx, keys, opts...)
		t.Cleanup(w.Close)
		return w
	}
	running, strict := watch(client.WithProgress()), watch(client.WithoutResync())
	<-strict.Started()
	before, err := c.Put(ctx, "/k/old", []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mirrors {
		if err := m.WaitFor(ctx, before); err != nil {
			t.Fatal(err)
		}
	}
	for running.Position() != before {
		if _, err := running.Next(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := strict.Next(ctx); err != nil {
		t.Fatal(err)
	}
	token := running.Token()
	through := etcdClient(t, r.tier.Nodes[0].Client).Watch(ctx, "/k/", clientv3.WithPrefix(), clientv3.WithRev(before.Revision))
	if m := <-through; m.Err() != nil || len(m.Events) != 1 {
		t.Fatalf("a watch of etcd's API: %+v", m)
	}
	_, oldID := r.contents()

	r.rebuild(5, args...)
	after, err := c.Put(ctx, "/k/new", []byte("x")) // below the old position
	if err != nil || after.Cluster == before.Cluster || after.Lineage != before.Lineage || after.Revision >= before.Revision {
		t.Fatalf("a put: %v, %v; the last put before the rebuild: %v", after, err, before)
	}
	r.put("/k/second", 30) // beyond it
	want, newID := r.contents()
	if same := oldID == newID; same != (args == nil) {
		t.Errorf("etcd's cluster ID is %x, before the rebuild %x", newID, oldID)
	}
	end, err := c.Put(ctx, "/other", []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mirrors {
		if err := m.WaitFor(ctx, end); err != nil {
			t.Fatal(err)
		}
		got := map[string]int64{}
		for kv := range m.All() {
			got[string(kv.Key)] = kv.ModRevision
		}
		if !maps.Equal(got, want) {
			t.Errorf("a mirror at %v has %d keys, etcd has %d", m.View().Position(), len(got), len(want))
		}
		if err := m.WaitFor(ctx, before); !errors.Is(err, client.ErrCluster) {
			t.Errorf("a position of the old cluster: %v", err)
		}
	}
	for name, w := range map[string]*client.Watcher{"a running watch": running, "one by token": watch(client.FromToken(token)), "one by position": watch(client.FromPosition(before))} {
		if u, err := w.Next(ctx); err != nil || u.Kind != client.KindResync || u.Cluster != after.Cluster {
			t.Errorf("%s: %v at %v, %v", name, u.Kind, u.Position(), err)
		}
	}
	for name, w := range map[string]*client.Watcher{"a running watch": strict, "one by token": watch(client.FromToken(token), client.WithoutResync())} {
		if u, err := w.Next(ctx); !errors.Is(err, client.ErrCluster) {
			t.Errorf("%s without units: %v at %v, %v", name, u.Kind, u.Position(), err)
		}
	}
	// etcd's protocol has no history: a client resumes as it would at the new etcd.
	direct := r.cli.Watch(ctx, "/k/", clientv3.WithPrefix(), clientv3.WithRev(before.Revision+1))
	mustSee(t, through, eventsOf(t, direct, int(end.Revision-1-before.Revision)))
}

// eventsOf reads n events.
func eventsOf(t *testing.T, w clientv3.WatchChan, n int) (out []string) {
	t.Helper()
	for len(out) < n {
		m, ok := <-w
		if !ok || m.Err() != nil {
			t.Fatalf("the watch at etcd ended: %v", m.Err())
		}
		for _, e := range m.Events {
			out = append(out, fmt.Sprintf("%d %s %s=%s", e.Kv.ModRevision, e.Type, e.Kv.Key, e.Kv.Value))
		}
	}
	return out
}
