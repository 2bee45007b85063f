package mirror_test

import (
	"context"
	"maps"
	"testing"
	"time"

	"go.uber.org/goleak"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/clienttest"
	"github.com/shardwatch/shardwatch/client/mirror"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds the wait of a test; it says nothing about speed.
const patience = 60 * time.Second

var demo = client.Prefix("/demo/")

func start(t testing.TB, cfg clienttest.Config) *clienttest.Cluster {
	t.Helper()
	c, err := clienttest.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func connect(t testing.TB, cluster *clienttest.Cluster) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{Endpoints: cluster.Endpoints(), RetryFor: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func deadline(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it did not happen in %v: %s", patience, what)
		}
	}
}

// checkView compares a view with the history at its revision.
func checkView(t testing.TB, cluster *clienttest.Cluster, v mirror.View, r client.Range) {
	t.Helper()
	want, got := map[string]string{}, map[string]string{}
	for _, b := range cluster.History() {
		for _, e := range b.Events {
			key := string(e.GetKv().GetKey())
			switch {
			case b.Revision > v.Revision() || !r.Contains(key):
			case e.GetType() == pb.EventType_DELETE:
				delete(want, key)
			default:
				want[key] = string(e.GetKv().GetValue())
			}
		}
	}
	for kv := range v.All() {
		got[string(kv.Key)] = string(kv.Value)
	}
	if !maps.Equal(got, want) {
		t.Errorf("the view at revision %d has %v, want %v", v.Revision(), got, want)
	}
}
