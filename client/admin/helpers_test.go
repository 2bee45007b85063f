package admin_test

import (
	"slices"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/client/clienttest"
	"github.com/shardwatch/shardwatch/client/internal/scripted"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	start    = scripted.Start
	deadline = scripted.Deadline
)

func connect(t testing.TB, cluster *clienttest.Cluster) *admin.Client {
	t.Helper()
	return admin.New(scripted.Connect(t, cluster))
}

// connectApart is connect for a client that follows the shard map at n1, and sends requests to the node of
// zone b, whose connection nothing else watches over. last returns the node of the last answer.
func connectApart(t testing.TB, cluster *clienttest.Cluster) (c *admin.Client, last func() *clienttest.Node) {
	t.Helper()
	var answered atomic.Value
	c = admin.New(scripted.Connect(t, cluster, func(cfg *client.Config) {
		cfg.Endpoints, cfg.Zone = cluster.Endpoints()[:1], "b"
		cfg.Observer.Attempt = func(a client.Attempt) {
			if a.Err == nil {
				answered.Store(a.Node)
			}
		}
	}))
	return c, func() *clienttest.Node {
		nodes := cluster.Nodes()
		return nodes[slices.IndexFunc(nodes, func(n *clienttest.Node) bool { return n.Addr() == answered.Load() })]
	}
}
