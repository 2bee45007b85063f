package chaos

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/client/clienttest"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/check"
)

// learn adds the cluster's history, changed by lie, to the truth.
func learn(t *testing.T, to *truth, c *clienttest.Cluster, lie func(*check.Item)) {
	t.Helper()
	for _, b := range c.History() {
		if kv.Revision(b.Revision) <= to.history().Head() {
			continue
		}
		out := check.Batch{Revision: kv.Revision(b.Revision)}
		for _, e := range b.Events {
			if e.GetType() == pb.EventType_DELETE {
				out.Events = append(out.Events, check.Delete(string(e.GetKv().GetKey()), out.Revision))
				continue
			}
			i := itemFromProto(e.GetKv())
			lie(&i)
			out.Events = append(out.Events, check.Put(i))
		}
		to.now.Load().heard(b.Revision, time.Now())
		if err := to.history().Append(out); err != nil {
			t.Fatal(err)
		}
	}
}

// A crowd on killed nodes finds no violation in a correct history, and finds updates that the truth
// does not have.
func TestCrowdJudgesItsUpdates(t *testing.T) {
	honest := func(*check.Item) {}
	for _, c := range []struct {
		name string
		lie  func(*check.Item)
		want bool
	}{
		{"all is right", honest, false},
		{"a value differs", func(i *check.Item) {
			if i.Mod == 150 {
				i.Value++
			}
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			cluster, err := clienttest.Start(clienttest.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer cluster.Close()
			keys := keyspace{3, 10}
			rng := rand.New(rand.NewPCG(1, 1))
			write := func(n int) {
				for range n {
					a, b := keys.key(0, rng.IntN(keys.keys)), keys.key(1+rng.IntN(2), rng.IntN(keys.keys))
					cluster.Txn(clienttest.Op{Key: a, Value: value(rng)}, clienttest.Op{Key: b, Delete: rng.IntN(2) == 0})
				}
			}
			write(99)
			truth := newTruth()
			var nodes []target
			for _, e := range cluster.Endpoints() {
				nodes = append(nodes, target{e, e})
			}
			ws := wishes(nativeClient, 60, Mix{Prefixes: 30, Everything: 20}, keys, kv.Revision(cluster.Revision()), rng)
			crowd, err := newCrowd(nodes, 3, "", ws, truth, rng)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var g sync.WaitGroup
			g.Go(func() { _ = crowd.run(ctx) })
			defer func() {
				cancel()
				g.Wait()
				if err := crowd.close(); err != nil {
					t.Error(err)
				}
			}()
			learn(t, truth, cluster, c.lie)
			if err := crowd.reach(ctx, cluster.Revision(), time.Minute); err != nil {
				t.Fatal(err)
			}
			crowd.take()
			write(50)
			slices.MaxFunc(cluster.Nodes(), func(a, b *clienttest.Node) int { return int(a.Watches() - b.Watches()) }).Kill()
			write(50)
			learn(t, truth, cluster, c.lie)
			rev := cluster.Revision()
			if err := crowd.reach(ctx, rev, time.Minute); err != nil {
				t.Fatal(err)
			}
			crowd.finish(ctx, rev, time.Second)
			first, all := crowd.violations()
			if n := all[nativeClient]; (n > 0) != c.want {
				t.Errorf("%d violations: %v", n, first[:min(n, 1)])
			}
			if m := crowd.take()[nativeClient]; m.events == 0 || len(m.late.Moved) == 0 || len(m.moves) == 0 || m.worst == "" {
				t.Errorf("%+v", m)
			}
			for _, m := range newMirrors(ctx, crowd.mirrors, keys) {
				if vs := m.judge(ctx, truth, rev, time.Minute); len(vs) > 0 && !c.want {
					t.Error(vs[0])
				}
			}
		})
	}
}
