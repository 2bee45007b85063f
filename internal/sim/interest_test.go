package sim_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/sim"
)

// A client of a map of many shards knows few of them. Each of its watches begins at the
// node that has the shard all the same, within the time of some messages.
func TestWatchesOfNewRangesBeginAtTheNodesThatHaveThem(t *testing.T) {
	run(t, sim.Config{Nodes: 4, Shards: 1, Replicas: 1}, func(t *testing.T, c *sim.Cluster) {
		const many = 200
		split := shard.Split{Shard: c.Map().Shards[0].ID}
		for i := 1; i < many; i++ {
			split.At = append(split.At, fmt.Sprintf("/%03d", i))
		}
		b, err := shard.EncodeCommand(shard.Command{RequestID: uuid.NewString(), IfVersion: c.Map().Version, Change: split})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Node(c.Leader()).Propose(context.Background(), b); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Minute) // the shards have spread over the nodes
		c.AwaitReady()
		cl := c.Client("client")
		if _, err := cl.Members(context.Background()); err != nil {
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
