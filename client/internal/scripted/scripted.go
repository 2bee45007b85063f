// Package scripted starts scripted clusters ([clienttest.Cluster]) and clients of them, for tests
// of client and the packages below it. They end with their test.
package scripted

import (
	"context"
	"fmt"
	"log"
	"strings"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/clienttest"
)

// Patience bounds each wait of a test; it is no measure of speed.
const Patience = 60 * time.Second

// Start starts a cluster.
func Start(t testing.TB, cfg clienttest.Config) *clienttest.Cluster {
	t.Helper()
	c, err := clienttest.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Rebuild ends all nodes of a cluster and starts another cluster at the same
// addresses, whose history has n keys in as many revisions.
func Rebuild(t testing.TB, old *clienttest.Cluster, n int) *clienttest.Cluster {
	t.Helper()
	addresses := old.Endpoints()
	_ = old.Close()
	cluster := Start(t, clienttest.Config{Addresses: addresses})
	for i := range n {
		cluster.Put(fmt.Sprintf("/demo/new-%d", i), "x")
	}
	return cluster
}

// Connect returns a client of all nodes of a cluster, after the changes to its Config.
func Connect(t testing.TB, cluster *clienttest.Cluster, change ...func(*client.Config)) *client.Client {
	t.Helper()
	cfg := client.Config{Endpoints: cluster.Endpoints(), RetryFor: Patience}
	for _, f := range change {
		f(&cfg)
	}
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Example returns a client of a cluster with some keys, each KEY=VALUE, and a function that
// ends both.
func Example(keys ...string) (c *client.Client, end func()) {
	cluster, err := clienttest.Start(clienttest.Config{})
	if err != nil {
		log.Fatal(err)
	}
	for _, pair := range keys {
		key, value, _ := strings.Cut(pair, "=")
		cluster.Put(key, value)
	}
	if c, err = client.New(client.Config{Endpoints: cluster.Endpoints()}); err != nil {
		log.Fatal(err)
	}
	return c, func() { _, _ = c.Close(), cluster.Close() }
}

// Deadline returns a context that ends after Patience.
func Deadline(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	t.Cleanup(cancel)
	return ctx
}

// Eventually waits until ok returns true, and fails the test after Patience.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(Patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it did not happen in %v: %s", Patience, what)
		}
	}
}
