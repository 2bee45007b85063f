package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/client/clienttest"
)

func keysOf(t testing.TB, l *client.Listing) []string {
	t.Helper()
	var keys []string
	for kv, err := range l.All() {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, string(kv.Key))
	}
	return keys
}

func TestGet(t *testing.T) {
	cluster := start(t, clienttest.Config{})
	c := connect(t, cluster)
	at, err := c.Put(t.Context(), "/demo/a", []byte("1"))
	if err != nil || at != cluster.At(2) {
		t.Fatalf("put: %v, %v", at, err)
	}
	cluster.Put("/demo/a", "2")
	for _, o := range []struct {
		opts []client.ReadOption
		want string
		rev  int64
	}{
		{nil, "2", 3},
		{[]client.ReadOption{client.AtRevision(2)}, "1", 2},
		{[]client.ReadOption{client.Serializable(time.Second)}, "2", 3},
	} {
		got, err := c.Get(deadline(t), "/demo/a", o.opts...)
		if err != nil || got.KV == nil || string(got.KV.Value) != o.want || got.Revision != o.rev || got.Lineage != 1 {
			t.Errorf("got %+v, %v; want %v", got, err, o)
		}
	}
	if got, err := c.Get(deadline(t), "/none"); err != nil || got.KV != nil || got.Revision != 3 {
		t.Errorf("a missing key: %+v, %v", got, err)
	}
	if _, err := c.Get(deadline(t), ""); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("empty key: %v", err)
	}
	var future *client.FutureRevisionError
	if _, err := c.Get(deadline(t), "/demo/a", client.AtRevision(99)); !errors.As(err, &future) || future.Requested != 99 || future.Current != 3 {
		t.Errorf("future: %v", err)
	}
	cluster.Compact(3)
	var compacted *client.CompactedError
	if _, err := c.Get(deadline(t), "/demo/a", client.AtRevision(2)); !errors.As(err, &compacted) || compacted.Floor != 3 {
		t.Errorf("compacted: %v", err)
	}
	_, deleted, err := c.Delete(t.Context(), client.Prefix("/demo/"))
	if err != nil || deleted != 1 {
		t.Errorf("delete: %d, %v", deleted, err)
	}
}

func TestReadsFailOverToAnotherNode(t *testing.T) {
	for name, fault := range map[string]func(*clienttest.Cluster, *clienttest.Node){
		"killed":   func(_ *clienttest.Cluster, n *clienttest.Node) { n.Kill() },
		"stopped":  func(_ *clienttest.Cluster, n *clienttest.Node) { n.Stall() },
		"not here": func(c *clienttest.Cluster, n *clienttest.Node) { n.NotHere(c.Nodes()[2].Addr()) },
	} {
		t.Run(name, func(t *testing.T) {
			cluster := start(t, clienttest.Config{})
			c := connect(t, cluster, func(c *client.Config) { c.AttemptTimeout = 300 * time.Millisecond })
			cluster.Put("/demo/a", "1")
			waitStarted(t, c.Watch(t.Context(), demo))
			for _, n := range cluster.Nodes()[:2] {
				fault(cluster, n)
			}
			for range 5 {
				if got, err := c.Get(deadline(t), "/demo/a"); err != nil || got.KV == nil {
					t.Fatalf("get: %+v, %v", got, err)
				}
			}
			if keys := keysOf(t, c.List(deadline(t), demo)); len(keys) != 1 {
				t.Errorf("list: %q", keys)
			}
			if _, err := c.Put(deadline(t), "/demo/b", nil); name != "stopped" && err != nil {
				t.Errorf("put: %v", err)
			}
			if _, err := admin.New(c).Members(deadline(t)); err != nil {
				t.Errorf("members: %v", err)
			}
		})
	}
}

// A list that is interrupted after any chunk resumes at its revision.
func TestListCutInTheMiddle(t *testing.T) {
	for after := int64(1); after <= 4; after++ {
		cluster := start(t, clienttest.Config{ChunkKeys: 3})
		var want []string
		for i := range 10 {
			want = append(want, fmt.Sprintf("/demo/%d", i))
			cluster.Put(want[i], "x")
		}
		c := connect(t, cluster)
		for name, opts := range map[string][]client.ListOption{"all": nil, "limited": {client.Limit(7)}} {
			for _, n := range cluster.Nodes()[:2] {
				n.CutAfter(after)
			}
			l := c.List(deadline(t), demo, opts...)
			var got []string
			for kv, err := range l.All() {
				if err != nil {
					t.Fatalf("cut after %d: %v", after, err)
				}
				if len(got) == 0 { // later writes are not in the list
					cluster.Put("/demo/5a", "x")
					cluster.Delete("/demo/5a")
				}
				got = append(got, string(kv.Key))
			}
			if name == "limited" {
				got = append(got, keysOf(t, c.List(deadline(t), demo, client.Limit(7), client.Page(l.NextPage())))...)
			}
			if strings.Join(got, " ") != strings.Join(want, " ") {
				t.Errorf("%s, cut after %d: %q", name, after, got)
			}
		}
	}
}

func TestListAtANodeThatLags(t *testing.T) {
	cluster := start(t, clienttest.Config{ChunkKeys: 1})
	for i := range 4 {
		cluster.Put(fmt.Sprintf("/demo/%d", i), "x")
	}
	c := connect(t, cluster)
	for _, n := range cluster.Nodes() {
		n.CutAfter(3)
	}
	l := c.List(deadline(t), demo)
	n := 0
	for _, err := range l.All() {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == 1 {
			for _, n := range cluster.Nodes() {
				n.Hold(3)
			}
			time.AfterFunc(50*time.Millisecond, func() {
				for _, n := range cluster.Nodes() {
					n.Hold(0)
				}
			})
		}
	}
	if n != 4 || l.Revision() != 5 || l.Position() != cluster.At(5) {
		t.Errorf("%d keys at %d", n, l.Revision())
	}
}

func TestListOptions(t *testing.T) {
	cluster := start(t, clienttest.Config{})
	for i := range 5 {
		cluster.Put(fmt.Sprintf("/demo/%d", i), "x")
	}
	c := connect(t, cluster)
	for kv, err := range c.List(deadline(t), demo, client.KeysOnly()).All() {
		if err != nil || len(kv.Value) != 0 || kv.ModRevision == 0 {
			t.Errorf("keys only: %+v, %v", kv, err)
		}
	}
	if n := len(keysOf(t, c.List(deadline(t), demo, client.AtRevision(3)))); n != 2 {
		t.Errorf("at revision 3: %d keys", n)
	}
	if n := len(keysOf(t, c.List(deadline(t), demo, client.Serializable(0)))); n != 5 {
		t.Errorf("serializable: %d keys", n)
	}
	if n := len(keysOf(t, c.List(deadline(t), client.Key("/demo/3")))); n != 1 {
		t.Errorf("one key: %d keys", n)
	}
	var pages int
	for token := []byte(nil); ; pages++ {
		l := c.List(deadline(t), demo, client.Limit(2), client.Page(token))
		keysOf(t, l)
		if token = l.NextPage(); token == nil {
			break
		}
	}
	if pages != 2 {
		t.Errorf("%d pages before the last", pages)
	}
	for _, l := range []*client.Listing{
		c.List(deadline(t), client.Between("b", "a")), c.List(deadline(t), demo, client.Limit(-1)),
		c.List(deadline(t), demo, client.Page([]byte("nonsense"))),
	} {
		for _, err := range l.All() {
			if !errors.Is(err, client.ErrInvalid) {
				t.Errorf("got %v", err)
			}
		}
	}
}

func TestCallsFailWhenNoNodeIsReachable(t *testing.T) {
	cluster := start(t, clienttest.Config{Nodes: 1})
	cluster.Nodes()[0].Kill()
	c := connect(t, cluster, func(c *client.Config) { c.RetryFor = 200 * time.Millisecond })
	for name, err := range map[string]error{
		"get":    func() error { _, err := c.Get(deadline(t), "a"); return err }(),
		"put":    func() error { _, err := c.Put(deadline(t), "a", nil); return err }(),
		"status": func() error { _, err := admin.New(c).Status(deadline(t), ""); return err }(),
	} {
		if !errors.Is(err, client.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := c.Get(ctx, "a"); !errors.Is(err, client.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("get: %v", err)
	}
}
