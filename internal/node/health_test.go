package node_test

import (
	"errors"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// gRPC's health protocol reports that a node serves at the same moment as /readyz, and
// serializable reads succeed from then on.
func TestHealthAndReadinessAgree(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1, 1, shards(1, 1))
	m := c.nodes[0]
	conn, err := grpc.NewClient(m.clients, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for range 3 {
		testkit.Succeeds(t, "the node is ready", func() error {
			if why := m.node.NotReady(); len(why) > 0 {
				return errors.New(strings.Join(why, "; "))
			}
			return nil
		})
		r, err := healthgrpc.NewHealthClient(conn).Check(within(t), &healthgrpc.HealthCheckRequest{}, grpc.WaitForReady(true))
		if err != nil || r.GetStatus() != healthgrpc.HealthCheckResponse_SERVING {
			t.Errorf("ready, and gRPC's health protocol says %v, %v", r.GetStatus(), err)
		}
		read := &etcdserverpb.RangeRequest{Key: []byte("k"), Serializable: true}
		if _, err := etcdserverpb.NewKVClient(conn).Range(within(t), read); err != nil {
			t.Errorf("ready, and a read at any member fails: %v", err)
		}
		m.crash()
		m.start()
	}
}
