package client_test

import (
	"testing"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/clienttest"
)

// A watch goes to the node of its zone, and to another node when that one is killed.
func TestWatchesPreferTheirZone(t *testing.T) {
	cluster := start(t, clienttest.Config{Zones: []string{"z1", "z2", "z3"}})
	for i, n := range cluster.Nodes() {
		c := connect(t, cluster, func(cfg *client.Config) { cfg.Zone = []string{"z1", "z2", "z3"}[i] })
		waitStarted(t, c.Watch(t.Context(), demo)) // the map may be unknown until then
		w := c.Watch(t.Context(), demo)
		waitStarted(t, w)
		if got := w.Stats().Node; got != n.Name {
			t.Errorf("a watch of %s's zone is at %s", n.Name, got)
		}
		n.Kill()
		rev := cluster.Put("/demo/a", "x")
		follow(t, cluster, w, &seen{rng: demo}, rev, rev-1)
		if got := w.Stats().Node; got == n.Name {
			t.Errorf("%s was killed but serves the watch", n.Name)
		}
		if err := n.Restart(); err != nil {
			t.Fatal(err)
		}
	}
}
