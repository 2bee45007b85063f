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

// A client that knows few shards of a large map still starts each watch at a node that has
// the shard, within a few round trips.
func TestWatchesOfNewRangesBeginAtTheNodesThatHaveThem(t *testing.T) {
	run(t, sim.Config{Nodes: 4, Shards: 1, Replicas: 1}, func(t *testing.T, c *sim.Cluster) {
		cut(t, c, 200)
		cl := c.Client("client")
		if _, err := admin.New(cl).Members(context.Background()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // until the client has the members
		at := map[string]int{}
		for i := range 60 {
			key := fmt.Sprintf("/%03d/%d", 3*(i%40), i) // from the fortieth on, in shards that the client knows
			began := time.Now()
			w := cl.Watch(t.Context(), client.Key(key))
			<-w.Started()
			took := time.Since(began)
			if node := w.Stats().Node; node != c.Owner(key) || took > 100*time.Millisecond {
				t.Errorf("the watch of %s started at %s after %v, but the shard is on %s", key, node, took, c.Owner(key))
			}
			at[w.Stats().Node]++
		}
		if len(at) < 3 {
			t.Errorf("the shards are on too few nodes: %v", at)
		}
	})
}
