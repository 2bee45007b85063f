package nodetest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/nodetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNodesStartDieAndRestart(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts three nodes")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	e := etcdtest.Start(t)
	bin, err := nodetest.Build(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c, err := nodetest.Start(ctx, nodetest.Config{Binary: bin, Dir: t.TempDir(), Etcd: e.Endpoint(), Args: []string{"--shards", "2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Stop()
	if len(c.Endpoints()) != 3 {
		t.Errorf("%d endpoints", len(c.Endpoints()))
	}
	n := c.Nodes[1]
	pid := n.PID()
	if err := n.Start(); err == nil || pid == 0 {
		t.Errorf("process %d was started twice", pid)
	}
	n.Kill()
	n.Kill()
	if err := n.WaitReady(ctx); err == nil || n.PID() != 0 {
		t.Errorf("a killed node is ready: %v", err)
	}
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitReady(ctx); err != nil || n.PID() == pid {
		t.Errorf("restart: %v, PID %d", err, pid)
	}
	c.Stop()
	c.Stop()

	if _, err := nodetest.Start(ctx, nodetest.Config{Binary: bin, Dir: t.TempDir(), Etcd: e.Endpoint(), Args: []string{"--no-such-flag"}}); err == nil ||
		!strings.Contains(err.Error(), "no-such-flag") {
		t.Errorf("an unknown flag: %v", err)
	}
}
