package node_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// One of three nodes dies under 10,000 watches. All watches resume and receive only
// their events, and no client or node lists.
func TestNodeDiesUnderManyWatches(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes long")
	}
	const clients, each = 10, 1000
	c := startCluster(t, 3, 3, shards(4, 3))
	all := keys(100)
	from := c.put(all...) + 1
	c.ready()
	c.settled(4, 3)
	var reading sync.WaitGroup
	var seen atomic.Int64
	var users []*client.Client
	ctx := within(t)
	for n := range clients {
		cl := c.client(c.nodes[n%3], c.nodes[(n+1)%3], c.nodes[(n+2)%3])
		users = append(users, cl)
		for i := range each {
			w := cl.Watch(ctx, client.Key(all[i%len(all)]), client.FromRevision(from))
			reading.Go(func() {
				defer w.Close()
				for range 2 { // one event before, one after
					u, err := w.Next(ctx)
					if err != nil || u.Kind != client.KindBatch || len(u.Events) != 1 {
						t.Errorf("%+v, %v", u, err)
						return
					}
					seen.Add(1)
				}
			})
		}
	}
	had := func(n int64) {
		t.Helper()
		testkit.Succeeds(t, fmt.Sprintf("%d events", n), func() error {
			if got := seen.Load(); got < n {
				return fmt.Errorf("%d", got)
			}
			return nil
		})
	}
	c.put(all...)
	had(clients * each)
	lists := c.lists()
	dies := c.busiest()
	dies.crash()
	c.put(all...)
	had(2 * clients * each)
	reading.Wait()
	moved := int64(0)
	for _, cl := range users {
		s := cl.Stats()
		moved += s.Resumes
		if s.Lists > 0 || s.Units != (client.Units{}) {
			t.Errorf("a client listed: %+v", s)
		}
	}
	t.Logf("%d watches resumed at other nodes", moved)
	if moved == 0 {
		t.Error("the test needs watches at the node that died")
	}
	if n := c.lists() - lists; n > 0 {
		t.Errorf("%d lists at etcd", n)
	}
	if n := c.resets(); n > 0 {
		t.Errorf("history was lost %d times", n)
	}
}
