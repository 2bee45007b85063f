package client_test

import (
	"fmt"
	"testing"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/clienttest"
)

// Updates that several watches of a stream have in common arrive and are decoded once. If a
// program appends to one of them, the others do not change.
func TestWatchesShareDecodedUpdates(t *testing.T) {
	cluster := start(t, clienttest.Config{Nodes: 1})
	cluster.Put("/demo/a", "0")
	c := connect(t, cluster)
	var plain, prev []client.Update
	var watchers []*client.Watcher
	for i := range 6 {
		var opts []client.WatchOption
		if i%2 == 1 {
			opts = append(opts, client.WithPrevKV())
		}
		w := c.Watch(t.Context(), []client.Range{demo, client.Prefix("/d"), {}}[i/2], opts...)
		waitStarted(t, w)
		watchers = append(watchers, w)
	}
	gone := c.Watch(t.Context(), demo)
	waitStarted(t, gone)
	gone.Close() // the node still names it for a while
	cluster.Txn(clienttest.Op{Key: "/demo/a", Value: "1"}, clienttest.Op{Key: "/demo/b", Value: "1"})
	for i, w := range watchers {
		u, err := w.Next(deadline(t))
		if err != nil || len(u.Events) != 2 {
			t.Fatalf("got %+v, %v", u, err)
		}
		if i%2 == 1 {
			prev = append(prev, u)
		} else {
			plain = append(plain, u)
		}
	}
	for _, same := range [][]client.Update{plain, prev} {
		var longer [][]client.Event
		for i, u := range same {
			if &u.Events[0] != &same[0].Events[0] {
				t.Errorf("update %d was decoded separately", i)
			}
			longer = append(longer, append(u.Events, client.Event{KV: client.KeyValue{Version: int64(i)}}))
		}
		for i := range longer {
			if longer[i][2].KV.Version != int64(i) {
				t.Error("an append to one update changed another one")
			}
		}
	}
	if plain[0].Events[0].Prev != nil || prev[0].Events[0].Prev == nil {
		t.Errorf("previous values: %+v, %+v", plain[0].Events[0], prev[0].Events[0])
	}
}

// Watches of overlapping ranges, some of which start late or end early, each get their own
// events, whole and in order, even if a node is killed.
func TestWatchesTogether(t *testing.T) {
	for _, fragment := range []int{0, 2} {
		t.Run(fmt.Sprintf("fragment=%d", fragment), func(t *testing.T) {
			cluster := start(t, clienttest.Config{Nodes: 2, FragmentEvents: fragment})
			c := connect(t, cluster)
			type one struct {
				w    *client.Watcher
				seen seen
				from int64
				prev bool
			}
			var watches []*one
			watch := func(i int) {
				o := &one{seen: seen{rng: []client.Range{demo, {}, client.Key("/demo/a"), client.Between("/demo/a", "/demo/c")}[i%4]}, prev: i%3 == 0}
				o.from = cluster.Revision() - int64(i%5)*int64(min(1, i/40))
				opts := []client.WatchOption{client.FromRevision(o.from + 1)}
				if o.prev {
					opts = append(opts, client.WithPrevKV())
				}
				o.w = c.Watch(t.Context(), o.seen.rng, opts...)
				watches = append(watches, o)
			}
			for i := range 40 {
				watch(i)
			}
			write := func() int64 {
				return cluster.Txn(clienttest.Op{Key: "/demo/a", Value: "1"}, clienttest.Op{Key: "/demo/b", Value: "1"}, clienttest.Op{Key: "/demo/c", Value: "1"}, clienttest.Op{Key: "/other", Value: "1"})
			}
			for i := range 40 {
				write()
				if i%4 == 1 {
					watch(40 + i)
					watches[i].w.Close()
				}
				if i == 20 {
					serving(t, cluster, watches[0].w).Kill()
				}
			}
			last := write()
			for i, o := range watches {
				if i%4 == 1 && i < 40 {
					continue // closed
				}
				if err := o.seen.read(deadline(t), o.w, last); err != nil {
					t.Fatal(err)
				}
				if err := o.seen.check(cluster.History(), o.from, o.prev); err != nil {
					t.Errorf("watch %d: %v", i, err)
				}
			}
		})
	}
}
