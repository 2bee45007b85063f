package admin_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/client/clienttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds what a test waits for; it says nothing about speed.
const patience = 60 * time.Second

func start(t testing.TB, cfg clienttest.Config) *clienttest.Cluster {
	t.Helper()
	c, err := clienttest.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func connect(t testing.TB, cluster *clienttest.Cluster) *admin.Client {
	t.Helper()
	c, err := client.New(client.Config{Endpoints: cluster.Endpoints(), RetryFor: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return admin.New(c)
}

func deadline(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}
