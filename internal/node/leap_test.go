package node_test

import (
	"errors"
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/internal/etcd"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
)

// stats adds up the requests to etcd of all nodes that ever ran.
func (c *cluster) stats() (sum etcd.Stats) {
	for _, s := range c.stores {
		one := s.Stats()
		sum.Lists += one.Lists
		sum.Leaps += one.Leaps
		sum.LeapKeys += one.LeapKeys
	}
	return sum
}

// While all nodes are cut off from etcd, it compacts the revisions that they have
// missed. They fetch the differences, and the watch receives them as units: it does
// not end, and no node lists.
func TestLeapOverCompaction(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes long")
	}
	c := newCluster(t, 3, 3, shards(2, 3))
	c.etcd = etcdtest.Start(t)
	c.through = etcdtest.NewProxy(t, c.etcd.Endpoint())
	all := keys(400)
	from := c.put(all...) + 1
	for _, m := range c.nodes {
		m.start()
	}
	c.ready()
	c.settled(2, 3)
	before := c.stats()

	w := c.client().Watch(within(t), client.Range{}, client.FromRevision(from))
	defer w.Close()
	at := c.put("/a/last")
	next := func() client.Update {
		t.Helper()
		u, err := w.Next(within(t))
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	for u := next(); u.Revision != at; u = next() {
		if u.Kind != client.KindBatch {
			t.Fatalf("%v at %d", u.Kind, u.Revision)
		}
	}

	c.through.Cut()
	want := map[string]int64{}
	for _, key := range []string{all[0], all[7], all[0], "/b/new", "/b/gone"} {
		want[key] = c.put(key)
	}
	ctx := within(t)
	for _, key := range []string{all[8], "/b/gone"} {
		if _, err := c.etcd.Client().Delete(ctx, key); err != nil {
			t.Fatal(err)
		}
		want[key] = 0
	}
	r, err := c.etcd.Client().Get(ctx, all[0])
	if err != nil {
		t.Fatal(err)
	}
	head := r.Header.GetRevision()
	if _, err := c.etcd.Client().Compact(ctx, head, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	c.through.Heal()

	// Each shard detects this in its own time: one unit or more.
	got := map[string]int64{}
	for reached := int64(0); reached < head; {
		u := next()
		reached = u.Revision
		if u.Kind != client.KindDelta {
			t.Fatalf("%v at %d", u.Kind, u.Revision)
		}
		for _, item := range u.KVs {
			got[string(item.Key)] = item.ModRevision
		}
		for _, key := range u.Deleted {
			got[string(key)] = 0
		}
	}
	delete(want, "/b/gone") // the watch has never received it
	delete(got, "/b/gone")
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the watch received %v, want %v", got, want)
	}
	at = c.put("/a/last")
	if u := next(); u.Kind != client.KindBatch || u.Revision != at {
		t.Errorf("then %v at %d, want %d", u.Kind, u.Revision, at)
	}

	c.reached(head)
	after := c.stats()
	if after.Lists != before.Lists {
		t.Errorf("%d lists", after.Lists-before.Lists)
	}
	if n := after.LeapKeys - before.LeapKeys; after.Leaps == before.Leaps || n > 9 {
		t.Error(errors.New("fetched unchanged values, or none at all"), n, after.Leaps-before.Leaps)
	}
}
