package mirror_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/clienttest"
	"github.com/shardwatch/shardwatch/client/mirror"
)

func mirrored(t testing.TB, c *client.Client, r client.Range) *mirror.Mirror {
	t.Helper()
	m := mirror.New(t.Context(), c, r)
	t.Cleanup(func() { _ = m.Close() })
	<-m.Ready()
	return m
}

func TestMirrorFollows(t *testing.T) {
	cluster := start(t, clienttest.Config{ChunkKeys: 2})
	cluster.Put("/demo/a", "1")
	cluster.Put("/other", "1")
	c := connect(t, cluster)
	m := mirrored(t, c, demo)
	if m.Len() != 1 || m.Revision() < 3 {
		t.Errorf("%d keys at %d", m.Len(), m.Revision())
	}
	rev, err := c.Put(t.Context(), "/demo/b", []byte("2"))
	if err != nil {
		t.Fatal(err)
	}
	before := m.View()
	if err := m.WaitFor(deadline(t), rev); err != nil {
		t.Fatal(err)
	}
	if kv, ok := m.Get("/demo/b"); !ok || string(kv.Value) != "2" {
		t.Errorf("own write: %+v, %v", kv, ok)
	}
	rev = cluster.At(cluster.Put("/elsewhere", "x")) // only progress
	if err := m.WaitFor(deadline(t), rev); err != nil {
		t.Fatal(err)
	}
	rev = cluster.At(cluster.Delete("/demo/a"))
	if err := m.WaitFor(deadline(t), rev); err != nil {
		t.Fatal(err)
	}
	if _, ok := m.Get("/demo/a"); ok || m.Len() != 1 {
		t.Error("the mirror has a deleted key")
	}
	if _, ok := before.Get("/demo/a"); !ok {
		t.Error("a view has changed")
	}
	n := 0
	for range m.Range(client.Prefix("/demo/b")) {
		n++
	}
	for range m.All() {
		n++
	}
	if n != 2 {
		t.Errorf("ranged over %d keys", n)
	}
}

// A reader never sees part of a revision.
func TestMirrorIsAtomic(t *testing.T) {
	cluster := start(t, clienttest.Config{FragmentEvents: 2, ChunkKeys: 2})
	write := func(v string) int64 {
		var ops []clienttest.Op
		for i := range 7 {
			ops = append(ops, clienttest.Op{Key: fmt.Sprintf("/demo/%d", i), Value: v})
		}
		return cluster.Txn(ops...)
	}
	write("0")
	c := connect(t, cluster)
	m := mirrored(t, c, demo)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 3 {
		wg.Go(func() {
			for {
				values := map[string]bool{}
				for kv := range m.All() {
					values[string(kv.Value)] = true
				}
				if len(values) != 1 {
					t.Errorf("part of a revision: %v", values)
					return
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	var rev int64
	for i := range 300 {
		rev = write(fmt.Sprint(i))
		if i%50 == 10 {
			cluster.Nodes()[i/50%3].CutAfter(2)
		}
	}
	if err := m.WaitFor(deadline(t), cluster.At(rev)); err != nil {
		t.Error(err)
	}
	close(stop)
	wg.Wait()
}

// A compaction or a restore costs a unit, and the mirror continues. It keeps its content
// until the unit has arrived, and Changes reports the difference.
func TestMirrorContinuesWithAUnit(t *testing.T) {
	for name, c := range map[string]struct {
		lose            func(*clienttest.Cluster)
		deltas, resyncs int64
		old             bool // nodes without support for units
	}{
		"compaction":                    {func(c *clienttest.Cluster) { c.Compact(c.Revision()) }, 1, 0, false},
		"deletes forgotten":             {func(c *clienttest.Cluster) { c.Compact(c.Revision()); c.ForgetDeletes(c.Revision()) }, 0, 1, false},
		"restore":                       {func(c *clienttest.Cluster) { c.Restore(5) }, 0, 1, false},
		"compaction, nodes of the past": {func(c *clienttest.Cluster) { c.Compact(c.Revision()) }, 0, 1, true},
		"restore, nodes of the past":    {func(c *clienttest.Cluster) { c.Restore(5) }, 0, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			lose, want := c.lose, c
			cluster := start(t, clienttest.Config{Nodes: 1, ChunkKeys: 2, NoUnits: c.old})
			for i := range 10 {
				cluster.Put(fmt.Sprintf("/demo/%d", i), "x")
			}
			c := connect(t, cluster)
			m := mirrored(t, c, demo)
			changes := make(chan mirror.Change, 100)
			go func() {
				defer close(changes)
				for ch, err := range m.Changes(t.Context()) {
					if err != nil {
						return
					}
					changes <- ch
				}
			}()
			if ch := <-changes; len(ch.Events) != 10 {
				t.Fatalf("first change: %d events", len(ch.Events))
			}
			cluster.Nodes()[0].Kill()
			cluster.Delete("/demo/0")
			cluster.Put("/demo/1", "y")
			cluster.Put("/demo/new", "z")
			lose(cluster)
			if m.Len() != 10 {
				t.Errorf("the mirror has %d keys while no node answers", m.Len())
			}
			if err := cluster.Nodes()[0].Restart(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the mirror has reached the last revision", func() bool {
				return m.View().Position().Lineage == cluster.Lineage() && m.Revision() == cluster.Revision()
			})
			rev := cluster.Put("/demo/last", "x")
			eventually(t, "goes on", func() bool { return m.Revision() == rev })
			if s := m.Stats(); s.Deltas != want.deltas || s.Resyncs != want.resyncs || m.Resyncs() != int(want.resyncs) || s.States != 1 {
				t.Errorf("units: %+v", s.Units)
			}
			if s := c.Stats(); s.Lists != 0 || s.Deltas != want.deltas || s.Resyncs != want.resyncs {
				t.Errorf("client: %+v", s)
			}
			checkView(t, cluster, m.View(), demo)
			// The sum of the changes equals the content of the mirror.
			have := map[string]string{}
			for i := range 10 {
				have[fmt.Sprintf("/demo/%d", i)] = "x"
			}
			for have["/demo/last"] == "" {
				ch := <-changes
				for _, e := range ch.Events {
					if e.Type == client.EventDelete {
						delete(have, string(e.KV.Key))
					} else {
						have[string(e.KV.Key)] = string(e.KV.Value)
					}
				}
			}
			if len(have) != m.Len() {
				t.Errorf("changes add up to %d keys, the mirror has %d", len(have), m.Len())
			}
			_ = m.Close()
			for range changes { // ends with the mirror
			}
		})
	}
}
