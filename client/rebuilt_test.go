package client_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/clienttest"
	"github.com/shardwatch/shardwatch/client/mirror"
)

// The tier and etcd are rebuilt with fresh data at the same addresses. Both histories are
// lineage 1, and the new one soon passes the position of the mirrors.
func TestMirrorsShowTheRebuiltCluster(t *testing.T) {
	for range 10 {
		cluster := start(t, clienttest.Config{})
		for i := range 3 {
			cluster.Put(fmt.Sprintf("/demo/old-%d", i), "x")
		}
		var mirrors []*mirror.Mirror
		for range 20 {
			mirrors = append(mirrors, mirrored(t, connect(t, cluster), demo))
		}
		cluster = rebuild(t, cluster, 10)
		for _, m := range mirrors {
			eventually(t, "the mirror shows the new cluster's keys", func() bool {
				_, ok := m.Get("/demo/new-0")
				return ok && m.Revision() >= cluster.Revision()
			})
			for kv := range m.All() {
				if got := string(kv.Key); got < "/demo/new" || got >= "/demo/nex" {
					t.Errorf("the mirror has key %s of the former cluster", got)
				}
			}
			if m.Len() != 10 {
				t.Errorf("the mirror has %d keys, the cluster has 10", m.Len())
			}
			_ = m.Close()
		}
	}
}

// resynced reads the next update, which must be a resync with the whole state of the cluster.
func resynced(t testing.TB, what string, w *client.Watcher, cluster *clienttest.Cluster) {
	t.Helper()
	u, err := w.Next(deadline(t))
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if want := cluster.State(1, u.Revision); u.Kind != client.KindResync || u.Position() != cluster.At(u.Revision) || len(u.KVs) != len(want) {
		t.Errorf("%s: got %v at %v with %d keys, want a resync of cluster %s with %d", what, u.Kind, u.Position(), len(u.KVs), cluster.ID(), len(want))
	}
	if at := w.Position(); at.Cluster != cluster.ID() {
		t.Errorf("%s: the position is %v", what, at)
	}
}

// A position of the former cluster is never used in the new one, even if lineage and
// revision exist there.
func TestWatchesMoveToTheRebuiltCluster(t *testing.T) {
	old := start(t, clienttest.Config{Nodes: 1})
	old.Put("/demo/old", "x")
	c := connect(t, old)
	w := c.Watch(t.Context(), demo, client.WithState())
	strict := c.Watch(t.Context(), demo, client.WithoutResync())
	quiet := c.Watch(t.Context(), demo)
	waitStarted(t, strict)
	waitStarted(t, quiet)
	if u, err := w.Next(deadline(t)); err != nil || u.Position() != old.At(2) {
		t.Fatalf("got %+v, %v", u, err)
	}
	token, position := w.Token(), w.Position()

	cluster := rebuild(t, old, 10)
	resynced(t, "a running watch", w, cluster)
	resynced(t, "one that was told nothing", quiet, cluster)
	resynced(t, "one by token", c.Watch(t.Context(), demo, client.FromToken(token)), cluster)
	resynced(t, "one by position", c.Watch(t.Context(), demo, client.FromPosition(position)), cluster)
	for name, x := range map[string]*client.Watcher{
		"a running watch": strict,
		"one by token":    c.Watch(t.Context(), demo, client.FromToken(token), client.WithoutResync()),
		"one by position": c.Watch(t.Context(), demo, client.FromPosition(position), client.WithoutResync()),
	} {
		if u, err := x.Next(deadline(t)); !errors.Is(err, client.ErrLineage) || !errors.Is(err, client.ErrCluster) {
			t.Errorf("%s, without units: %+v, %v", name, u, err)
		}
	}
	if u, err := c.Watch(t.Context(), client.Prefix("/other/"), client.FromToken(token)).Next(deadline(t)); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("a token of another range: %+v, %v", u, err)
	}
	end := cluster.Put("/demo/last", "x")
	for {
		if u, err := w.Next(deadline(t)); err != nil {
			t.Fatal(err)
		} else if u.Revision == end {
			break
		}
	}
}

// A node of the former cluster still runs, with data that grows old. Once the client
// follows the map of the new cluster, watches leave that node although it serves them.
func TestAttachedWatchesFollowTheMap(t *testing.T) {
	old := start(t, clienttest.Config{Nodes: 2})
	old.SetReplicas(1, "n2")
	old.Put("/demo/old", "x")
	c := connect(t, old)
	demanding := c.Watch(t.Context(), demo, client.WithMaxStaleness(time.Second))
	content := c.Watch(t.Context(), demo)
	waitStarted(t, demanding)
	waitStarted(t, content)
	eventually(t, "both watches are at the second node", func() bool {
		return demanding.Stats().Node == "n2" && content.Stats().Node == "n2"
	})
	n1 := old.Node("n1").Addr()
	old.Node("n1").Kill()
	cluster := start(t, clienttest.Config{Addresses: []string{n1}})
	cluster.Put("/demo/new", "x")
	old.Node("n2").SetAge(time.Minute)
	old.Put("/demo/old", "y") // nodes check the age with the events that they send
	for content.Position().Cluster == old.ID() {
		u, err := content.Next(deadline(t))
		if err != nil {
			t.Fatal(err)
		}
		if u.Cluster != old.ID() && u.Kind != client.KindResync {
			t.Errorf("the watch changes clusters by %v", u.Kind)
		}
	}
	for demanding.Position().Cluster == old.ID() {
		if _, err := demanding.Next(deadline(t)); err != nil {
			t.Fatal(err)
		}
	}
}

// A resync that breaks off at any point leaves the old position in place until its end, and
// the new position from then on.
func TestAnInterruptedMoveToTheRebuiltClusterKeepsThePosition(t *testing.T) {
	const keys = 5
	for cut := int64(1); cut <= keys+1; cut++ {
		old := start(t, clienttest.Config{Nodes: 1})
		old.Put("/demo/old", "x")
		m := mirrored(t, connect(t, old), demo)
		addresses := old.Endpoints()
		_ = old.Close()
		cluster := start(t, clienttest.Config{Addresses: addresses, ChunkKeys: 1, Stopped: true})
		for i := range keys {
			cluster.Put(fmt.Sprintf("/demo/new-%d", i), "x")
		}
		if err := cluster.Nodes()[0].Restart(); err != nil {
			t.Fatal(err)
		}
		cluster.Nodes()[0].CutAfter(cut)
		for n := range 2 {
			if err := m.WaitFor(deadline(t), cluster.At(cluster.Put("/demo/more", fmt.Sprint(n)))); err != nil {
				t.Fatalf("cut %d: %v", cut, err)
			}
		}
		if m.Len() != keys+1 || m.Resyncs() != 1 {
			t.Errorf("cut %d: %d keys after %d resyncs", cut, m.Len(), m.Resyncs())
		}
		_ = m.Close()
		_ = cluster.Close()
	}
}

// WaitFor compares histories: a position of an ended history is not reached by revisions of
// the next one. For a position of the new cluster it waits.
func TestWaitForComparesHistories(t *testing.T) {
	cluster := start(t, clienttest.Config{})
	c := connect(t, cluster)
	m := mirrored(t, c, demo)
	write := func(key string) client.Position {
		t.Helper()
		at, err := c.Put(deadline(t), key, []byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	ended := func(what string, at client.Position) {
		t.Helper()
		if err := m.WaitFor(deadline(t), at); !errors.Is(err, client.ErrLineage) || errors.Is(err, client.ErrCluster) != (at.Cluster != cluster.ID()) {
			t.Errorf("a position %s: %v", what, err)
		}
	}
	first := write("/demo/a")
	if err := m.WaitFor(deadline(t), first); err != nil {
		t.Fatal(err)
	}
	cluster.Restore(1)
	second := cluster.At(cluster.Put("/demo/b", "x"))
	if err := m.WaitFor(deadline(t), second); err != nil { // also waits for the lineage
		t.Fatal(err)
	}
	ended("before a restore", first)

	cluster = rebuild(t, cluster, 10)
	if err := m.WaitFor(deadline(t), cluster.At(5)); err != nil { // also waits for the cluster
		t.Fatal(err)
	}
	if _, ok := m.Get("/demo/new-3"); !ok {
		t.Error("the mirror lacks the key that it waited for")
	}
	ended("of the cluster that is gone", first)
	ended("of its second lineage", second)
	own := write("/demo/c")
	if err := m.WaitFor(deadline(t), own); err != nil || own.Cluster != cluster.ID() {
		t.Errorf("own write at %v: %v", own, err)
	}
	if _, ok := m.Get("/demo/c"); !ok {
		t.Error("the mirror does not show the client's own write")
	}
	if err := m.WaitFor(deadline(t), client.Position{Revision: 3}); err != nil {
		t.Errorf("a revision without a history: %v", err)
	}
}

// A list does not resume in another cluster, and a revision is not read there.
func TestReadsDoNotMixClusters(t *testing.T) {
	old := start(t, clienttest.Config{Nodes: 1, ChunkKeys: 1})
	big := strings.Repeat("v", 64<<10)
	for i := range 20 {
		old.Put(fmt.Sprintf("/demo/old-%02d", i), big)
	}
	at := old.At(old.Revision())
	c := connect(t, old)
	var cluster *clienttest.Cluster
	var failed error
	for _, err := range c.List(deadline(t), demo).All() {
		if failed = err; cluster == nil && err == nil {
			cluster = rebuild(t, old, 30)
		}
	}
	if !errors.Is(failed, client.ErrCluster) {
		t.Errorf("a list that broke off: %v", failed)
	}
	if _, err := c.Get(deadline(t), "/demo/new-0", client.AtPosition(at)); !errors.Is(err, client.ErrCluster) {
		t.Errorf("a key at a position: %v", err)
	}
	for name, o := range map[string]client.ListOption{"at": client.AtPosition(at), "changed since": client.ChangedSince(at)} {
		for _, err := range c.List(deadline(t), demo, o).All() {
			if failed = err; err == nil {
				t.Errorf("%s a position of another cluster: got keys", name)
			}
		}
		if !errors.Is(failed, client.ErrCluster) {
			t.Errorf("%s a position: %v", name, failed)
		}
	}
	now := cluster.At(cluster.Revision())
	if r, err := c.Get(deadline(t), "/demo/new-0", client.AtPosition(now)); err != nil || r.KV == nil || r.Position() != now {
		t.Errorf("at the current position: %+v, %v", r, err)
	}
}

func mirrored(t testing.TB, c *client.Client, r client.Range) *mirror.Mirror {
	t.Helper()
	m := mirror.New(t.Context(), c, r)
	t.Cleanup(func() { _ = m.Close() })
	<-m.Ready()
	return m
}
