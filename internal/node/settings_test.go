package node_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/node"
)

// live is the key that steady writes to, with the values 0, 1, and so on.
const live = "/b/live"

// steady writes until stop is called, which returns the number of values.
func (c *cluster) steady() (stop func() int) {
	ctx, cancel := context.WithCancel(context.Background())
	written := 0
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			if _, err := c.etcd.Client().Put(context.WithoutCancel(ctx), live, fmt.Sprint(written)); err != nil {
				c.t.Error(err)
				return
			}
			written++
		}
	})
	stop = sync.OnceValue(func() int {
		cancel()
		running.Wait()
		return written
	})
	c.t.Cleanup(func() { stop() })
	return stop
}

// readsLive expects each value once on the native watch, and no unit.
func readsLive(t *testing.T, what string, w *client.Watcher, values int) {
	t.Helper()
	for next := 0; next < values; {
		u, err := w.Next(within(t))
		if err != nil || u.Kind != client.KindBatch {
			t.Fatalf("%s: after %d of %d values: %v, %v", what, next, values, u.Kind, err)
		}
		for _, e := range u.Events {
			if string(e.KV.Key) != live {
				continue
			}
			if got := string(e.KV.Value); got != fmt.Sprint(next) {
				t.Fatalf("%s: value %s after %d", what, got, next-1)
			}
			next++
		}
	}
}

// readsLiveEtcd is readsLive for a watch of etcd's own client.
func readsLiveEtcd(t *testing.T, what string, w clientv3.WatchChan, values int) {
	t.Helper()
	for next := 0; next < values; {
		select {
		case r, ok := <-w:
			if !ok || r.Err() != nil {
				t.Fatalf("%s: after %d of %d values: %v", what, next, values, r.Err())
			}
			for _, e := range r.Events {
				if string(e.Kv.Key) != live {
					continue
				}
				if got := string(e.Kv.Value); got != fmt.Sprint(next) {
					t.Fatalf("%s: value %s after %d", what, got, next-1)
				}
				next++
			}
		case <-within(t).Done():
			t.Fatalf("%s: %d of %d values", what, next, values)
		}
	}
}

func listed(t *testing.T, c *client.Client, r client.Range) (n int, err error) {
	t.Helper()
	for _, err = range c.List(within(t), r).All() {
		if err == nil {
			n++
		}
	}
	return n, err
}

// The plan of fewer served keys counts the watches that end, at all nodes and of both
// APIs, without the watches that continue.
func TestThePlanOfFewerKeysCountsTheWatchesThatEnd(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 3, shards(2, 2))
	c.put(keys(8)...)
	c.ready()
	c.settled(2, 2)
	o := operator{t, c.patient(c.nodes[0])}
	o.does(admin.ChangeSettings{Served: []client.Range{client.Prefix("/a"), client.Prefix("/b"), client.Prefix("/c")}})
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	for i, prefixes := range [][]string{{"/a", "/a/x"}, {"/c", "/b"}, {"/b/y"}} {
		native := c.patient(c.nodes[i])
		for _, p := range prefixes {
			w := native.Watch(ctx, client.Prefix(p))
			defer w.Close()
			<-w.Started()
		}
	}
	throughNode := etcdClient(t, c.nodes[2].clients)
	for _, p := range []string{"/c/1", "/b"} {
		if r := <-throughNode.Watch(ctx, p, clientv3.WithPrefix(), clientv3.WithCreatedNotify()); !r.Created {
			t.Fatalf("watch of %s: %+v", p, r)
		}
	}
	for _, want := range []struct {
		served       []client.Range
		native, etcd int
	}{
		{[]client.Range{client.Prefix("/b")}, 3, 1},
		{[]client.Range{client.Prefix("/c"), client.Prefix("/a/x"), client.Prefix("/b")}, 1, 0},
	} {
		plan, err := o.wants(admin.ChangeSettings{Served: want.served}, admin.ChangeOptions{DryRun: true})
		if text := fmt.Sprintf("watches that end: %d of the native API, %d of etcd's API", want.native, want.etcd); err != nil || !slices.Contains(plan.Warnings, text) {
			t.Errorf("%v, %q; want %q", err, plan.Warnings, text)
		}
	}
}

// An operator changes the replicas and the served keys of a running cluster, up and
// down. Watches of keys that stay served miss no event and never receive the state
// again, in both APIs.
func TestSettingsChangeUnderWatches(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 5, 3, shards(4, 2))
	c.put(keys(32)...)
	c.ready()
	c.settled(4, 2)
	native, throughNode := c.patient(c.nodes[0]), etcdClient(t, c.nodes[1].clients)
	watch := native.Watch(within(t), client.Prefix("/b/"))
	defer watch.Close()
	<-watch.Started()
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	of := throughNode.Watch(ctx, "/b/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	if r := <-of; !r.Created {
		t.Fatalf("watch: %+v", r)
	}
	stop := c.steady()
	o := operator{t, c.patient(c.nodes[4])}

	for _, replicas := range []int{4, 3, 1, 2} {
		plan := o.does(admin.ChangeSettings{Replicas: replicas})
		if len(plan.Steps) == 0 {
			t.Errorf("%d replicas: %+v", replicas, plan)
		}
		c.settled(4, replicas)
		if got := o.status().Settings; got.Replicas != replicas || len(got.Served) != 1 || got.Served[0] != (client.Range{}) {
			t.Errorf("%d replicas: settings %+v", replicas, got)
		}
	}
	for _, served := range [][]client.Range{
		{client.Prefix("/b/"), client.Prefix("/d")},
		{client.Prefix("/b")},
		{client.Prefix("/a"), client.Prefix("/b"), client.Prefix("/h/")},
		{{}},
	} {
		o.does(admin.ChangeSettings{Served: served})
		m := c.settled(len(served), 2)
		if len(m.Spec.Ranges) != len(served) || m.Spec.Ranges[0] != (kv.Range{Start: served[0].Start, End: served[0].End}) {
			t.Errorf("served %v: %+v", served, m.Spec)
		}
	}
	for _, m := range c.nodes { // all keys are served again
		if n, err := listed(t, c.patient(m), client.Prefix("/c/")); err != nil || n != 4 {
			t.Errorf("%s: %v, %d keys", m.name, err, n)
		}
	}
	values := stop()
	readsLive(t, "native", watch, values)
	readsLiveEtcd(t, "etcd", of, values)
}

// A watch of keys that are no longer served ends with the reason, in both APIs, and so
// does a new watch. etcd's API reads these keys from etcd.
func TestSettingsEndWatchesOutside(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 3, shards(4, 2))
	c.put(keys(32)...)
	c.ready()
	c.settled(4, 2)
	native, throughNode := c.patient(c.nodes[0]), etcdClient(t, c.nodes[1].clients)
	all := native.Watch(within(t), client.Range{})
	defer all.Close()
	<-all.Started()
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	outside := throughNode.Watch(ctx, "/c/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	if r := <-outside; !r.Created {
		t.Fatalf("watch: %+v", r)
	}
	o := operator{t, c.patient(c.nodes[2])}
	plan := o.does(admin.ChangeSettings{Served: []client.Range{client.Prefix("/b/")}})
	if len(plan.Warnings) != 2 || !strings.Contains(plan.Warnings[0], `only "/b/" is served then`) ||
		plan.Warnings[1] != "watches that end: 1 of the native API, 1 of etcd's API" {
		t.Errorf("warnings %q", plan.Warnings)
	}
	const says = `is not served: this cluster serves ["/b/", "/b0") (cachectl settings changes that)`
	if _, err := all.Next(within(t)); !errors.Is(err, client.ErrInvalid) || !strings.Contains(err.Error(), says) {
		t.Errorf("the native watch: %v", err)
	}
	if r, ok := <-outside; ok { // etcd's own client drops the reason
		t.Errorf("the watch of etcd's API: %+v", r)
	}
	if _, err := listed(t, native, client.Prefix("/c/")); err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("a native list: %v", err)
	}
	if got, err := throughNode.Get(within(t), "/c/", clientv3.WithPrefix()); err != nil || got.Count != 4 {
		t.Errorf("a range of etcd's API: %v, %+v", err, got)
	}
}

// A node with other flags than the cluster's settings starts, serves, and logs the difference.
func TestFlagsThatAreNotInForce(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 3, func(cfg *node.Config) {
		shards(4, 2)(cfg)
		if cfg.Self.Name == "node-2" {
			cfg.Asked.Replicas, cfg.Asked.Ranges = 5, []kv.Range{kv.Prefix("/b/")}
		}
	})
	c.put(keys(32)...)
	c.ready()
	c.settled(4, 2)
	o := operator{t, c.patient(c.nodes[0])}
	for _, m := range o.status().Members {
		want := ""
		if m.Member.Name == "node-2" {
			want = `--replicas 5 --prefix "/b/"`
		}
		if got := strings.Join(m.Status.OverruledFlags, " "); got != want {
			t.Errorf("%s: %q", m.Member.Name, got)
		}
	}
	const line = "flags differ from the settings of the cluster"
	if n := c.log.count(line, "node=node-2", "replicas=2"); n != 1 || c.log.count(line) != 1 {
		t.Errorf("the difference is logged %d times, want %d", n, c.log.count(line))
	}
	o.does(admin.ChangeSettings{Replicas: 5, Served: []client.Range{client.Prefix("/b/")}})
	for _, m := range o.status().Members {
		if m.Status != nil && len(m.Status.OverruledFlags) > 0 {
			t.Errorf("%s: %q", m.Member.Name, m.Status.OverruledFlags)
		}
	}
}
