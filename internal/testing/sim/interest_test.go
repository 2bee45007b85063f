package sim_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/internal/testing/sim"
)

// A client of a map of many shards knows few of them. Each of its watches begins at the
// node that has the shard all the same, within the time of some messages.
func TestWatchesOfNewRangesBeginAtTheNodesThatHaveThem(t *testing.T) {
	run(t, sim.Config{Nodes: 4, Shards: 1, Replicas: 1}, func(t *testing.T, c *sim.Cluster) {
		cut(t, c, 200)
		cl := c.Client("client")
		if _, err := admin.New(cl).Members(context.Background()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // it knows the members
		at := map[string]int{}
		for i := range 60 {
			key := fmt.Sprintf("/%03d/%d", 3*(i%40), i) // from the fortieth on in shards that it knows
			began := time.Now()
			w := cl.Watch(t.Context(), client.Key(key))
			<-w.Started()
			took := time.Since(began)
			if node := w.Stats().Node; node != c.Owner(key) || took > 100*time.Millisecond {
				t.Errorf("the watch of %s began at %s after %v, and the shard is at %s", key, node, took, c.Owner(key))
			}
			at[w.Stats().Node]++
		}
		if len(at) < 3 {
			t.Errorf("all shards are at few nodes: %v", at)
		}
	})
}
