package mirror_test

import (
	"maps"
	"testing"

	"go.uber.org/goleak"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/clienttest"
	"github.com/shardwatch/shardwatch/client/internal/scripted"
	"github.com/shardwatch/shardwatch/client/mirror"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	start      = scripted.Start
	connect    = scripted.Connect
	deadline   = scripted.Deadline
	eventually = scripted.Eventually

	demo = client.Prefix("/demo/")
)

// checkView compares a view with the history at the view's revision.
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
