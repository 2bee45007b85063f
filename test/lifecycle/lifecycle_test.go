package lifecycle

import (
	"context"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/nodetest"
)

// whole makes the tests run completely at the pace of deploy/k8s, in some minutes.
var whole = flag.Bool("lifecycle.whole", false, "every step, at the pace of deploy/k8s")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newStatefulSet bootstraps three pods of an image in front of an etcd, with clients.
func newStatefulSet(t *testing.T, image string) (*statefulSet, *clients) {
	t.Helper()
	n := newNetwork(t)
	e, err := etcdtest.NewProcess(t.Context(), etcdtest.ProcessConfig{Dir: t.TempDir(), ClientAddr: n.self + ":2379"})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Kill() })
	s := &statefulSet{
		t: t, network: n, service: newService(t, n.self+":7400"), etcd: e.Endpoint(), dir: t.TempDir(), image: image, pods: map[int]*pod{},
		pace: pace{preStop: 500 * time.Millisecond, minReady: 2 * time.Second},
	}
	if *whole {
		s.pace = pace{preStop: 5 * time.Second, minReady: 15 * time.Second}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.logs())
		}
	})
	t.Cleanup(s.stop)
	must(t, s.scale(t.Context(), 3))
	c := startClients(t, e.Endpoint(), n.self+":7400")
	c.settle("the founding")
	return s, c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// this builds cachenode from the work tree.
func this(t *testing.T) string {
	t.Helper()
	bin, err := nodetest.Build(t.Context(), t.TempDir())
	must(t, err)
	return bin
}

// An evicted pod returns at another address, with its name and its data; so does a pod of a lost
// machine; and two more pods join and leave.
func TestStatefulSet(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs three nodes and more")
	}
	s, c := newStatefulSet(t, this(t))
	was := s.identities()
	step := func(name string, do func(ctx context.Context) error) {
		t.Helper()
		began := time.Now()
		must(t, do(t.Context()))
		c.settle(name)
		t.Logf("%s took %v", name, time.Since(began).Round(100*time.Millisecond))
	}
	if *whole {
		step("a rolling restart", func(ctx context.Context) error { return s.roll(ctx, s.image, 0) })
		step("scaling from 3 to 5", func(ctx context.Context) error { return s.scale(ctx, 5) })
		step("scaling from 5 to 3", func(ctx context.Context) error { return s.scale(ctx, 3) })
		for _, kept := range []int{3, 4} {
			if _, err := os.Stat(filepath.Join(s.volume(kept), "raft", "identity")); err != nil {
				t.Errorf("the volume of a pod that was scaled away: %v", err)
			}
		}
		step("scaling to 5 again, on the old volumes", func(ctx context.Context) error { return s.scale(ctx, 5) })
		step("scaling to 3 again", func(ctx context.Context) error { return s.scale(ctx, 3) })
	} else {
		step("scaling from 3 to 4", func(ctx context.Context) error { return s.scale(ctx, 4) })
		step("scaling from 4 to 3", func(ctx context.Context) error { return s.scale(ctx, 3) })
	}
	step("an eviction", func(ctx context.Context) error { return s.evict(ctx, 1) })
	step("the loss of a machine", func(ctx context.Context) error { return s.lose(ctx, 0) })
	if is := s.identities(); !maps.Equal(was, is) {
		t.Errorf("nodes were %v, and are %v", was, is)
	}
}
