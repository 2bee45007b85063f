package node_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/nodetest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// Clients receive every event although all three processes are killed at once, with
// unwritten data.
func TestKilledTier(t *testing.T) {
	if testing.Short() {
		t.Skip("runs processes")
	}
	t.Parallel()
	bin, err := nodetest.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	e, dir := etcdtest.Start(t), t.TempDir()
	tier, err := nodetest.Start(within(t), nodetest.Config{Binary: bin, Dir: dir, Etcd: "http://" + e.Endpoint(), Args: []string{"--shards", "2"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		tier.Stop()
		if t.Failed() {
			t.Log(tier.Logs(10_000))
		}
	})
	var want []string
	put := func(n int) {
		for i := range n {
			key := fmt.Sprintf("/k/%02d", i%30)
			r, err := e.Client().Put(within(t), key, fmt.Sprint(i))
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, fmt.Sprintf("%d PUT %s=%d", r.Header.Revision, key, i))
		}
	}
	cl, err := client.New(client.Config{Endpoints: tier.Endpoints(), RetryFor: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cl.Close() })
	w := cl.Watch(within(t), client.Prefix("/k/"), client.FromRevision(2), client.WithoutResync())
	t.Cleanup(w.Close)
	cli := etcdClient(t, tier.Nodes[0].Client)
	through := cli.Watch(clientv3.WithRequireLeader(within(t)), "/k/", clientv3.WithPrefix(), clientv3.WithRev(2))
	put(100)
	events(t, w, want)
	mustSee(t, through, want)
	testkit.Succeeds(t, "history is on disk", func() error {
		files, _ := filepath.Glob(filepath.Join(dir, "*", "history", "*.db"))
		n := 0
		for _, name := range files {
			if b, err := os.ReadFile(name); err == nil && bytes.Contains(b, []byte("/k/29")) {
				n++
			}
		}
		if n < 3 {
			return fmt.Errorf("watches are at %d nodes", n)
		}
		return nil
	})
	put(100) // most likely not yet on disk
	tier.Stop()
	put(100)
	for _, n := range tier.Nodes {
		if err := n.Start(); err != nil {
			t.Fatal(err)
		}
	}
	if err := tier.WaitReady(within(t)); err != nil {
		t.Fatal(err)
	}
	put(100)
	events(t, w, want[100:])
	mustSee(t, through, want[100:])
	again := cl.Watch(within(t), client.Prefix("/k/"), client.FromRevision(2), client.WithoutResync())
	t.Cleanup(again.Close)
	events(t, again, want)
	if n := cl.Stats(); n.Lists+n.Resyncs+n.Deltas != 0 {
		t.Errorf("%d lists, %d resyncs, %d deltas", n.Lists, n.Resyncs, n.Deltas)
	}
}
