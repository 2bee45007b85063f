package placement_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/control/placement"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// recoverVoters recovers the voters at n, and announces it to all nodes.
func (n *node) recoverVoters() {
	n.c.t.Helper()
	before := n.p.Map()
	version, err := n.p.Recover(before.Version)
	if err != nil {
		n.c.t.Fatal(err)
	}
	if version <= before.Version {
		n.c.t.Errorf("recovered with version %d, from version %d", version, before.Version)
	}
}

// votes waits until these nodes vote, one of them leads, and the map changes.
func votes(t *testing.T, nodes ...*node) *node {
	t.Helper()
	var want []shard.NodeID
	for _, n := range nodes {
		want = append(want, n.name)
	}
	testkit.Eventually(t, "the nodes vote", func() bool {
		return !slices.ContainsFunc(nodes, func(n *node) bool { return !slices.Equal(n.p.Voters(), want) })
	})
	l := leader(t, nodes...)
	version := touch(t, nodes[0])
	for _, n := range nodes {
		testkit.Eventually(t, "the change arrives", func() bool { return n.p.Map().Version >= version })
	}
	return l
}

// Two of three voters are lost with their disks. A node of the two that did not vote
// becomes the first voter, and the cluster changes its map again. Then the lost voters
// return with their old disks, as a majority of the old voters, and follow.
func TestReturningVotersFollowAfterARecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, nodes := fiveNodes(t)
		for _, n := range nodes[:3] {
			n.stop()
		}
		time.Sleep(time.Minute)
		was := nodes[3].p.Map()
		nodes[3].recoverVoters()
		c.spread()
		time.Sleep(time.Minute)
		votes(t, nodes[3], nodes[4])
		m := nodes[4].p.Map()
		if m.ClusterID != was.ClusterID || m.Lineage != was.Lineage || m.Generation <= was.Version {
			t.Errorf("the map is %+v, before the recovery %+v", m, was)
		}

		for _, n := range nodes[:3] {
			n.start()
		}
		leader(t, nodes[:3]...) // they are a majority of the old voters
		touch(t, nodes[0])
		for _, n := range nodes[3:] {
			if l, _ := n.p.Leader(); l != "n3" && l != "n4" {
				t.Errorf("%s follows %q of the old voters", n.name, l)
			}
		}
		c.spread()
		time.Sleep(2 * time.Minute)
		votes(t, nodes[:3]...)
		for _, n := range nodes {
			if got := n.p.Map(); got.Generation != m.Generation {
				t.Errorf("%s is in generation %d, the others in %d", n.name, got.Generation, m.Generation)
			}
		}
		for _, n := range nodes {
			n.stop()
		}
	})
}

// Two nodes in two parts of a network recover the voters at once. When the parts meet,
// one group survives.
func TestVotersRecoveredTwiceBecomeOneGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, nodes := fiveNodes(t)
		for _, n := range nodes[:3] {
			n.stop()
		}
		time.Sleep(time.Minute)
		nodes[3].recoverVoters()
		nodes[4].recoverVoters()
		older, newer := nodes[3], nodes[4]
		if older.p.Map().Generation == newer.p.Map().Generation {
			t.Fatal("both groups have the same generation")
		}
		if older.p.Map().Generation > newer.p.Map().Generation {
			older, newer = newer, older
		}
		time.Sleep(10 * time.Second)
		touch(t, newer)
		generation := newer.p.Map().Generation
		c.spread()
		time.Sleep(time.Minute)
		votes(t, nodes[3], nodes[4])
		if got := older.p.Map().Generation; got != generation {
			t.Errorf("generation %d continues, want %d", got, generation)
		}
		for _, n := range nodes {
			n.stop()
		}
	})
}

// A recovery survives if its node is killed before another node has learned of it, and
// restarts with its previous map file.
func TestRecoverySurvivesACrash(t *testing.T) {
	c := newCluster(t, false)
	nodes := []*node{c.add("n1", 3), c.add("n2", 3), c.add("n3", 3)}
	c.founded(nodes...)
	leader(t, nodes...)
	last := nodes[2]
	testkit.Eventually(t, "all nodes have the same map", func() bool { return last.p.Map().Version == nodes[0].p.Map().Version })
	nodes[0].stop()
	nodes[1].stop()
	testkit.Eventually(t, "no leader", func() bool { _, led := last.p.Leader(); return !led })
	last.stop()
	last.recoverVoters() // it does not run, so that it writes no map file
	last.start()
	if last.p.Map().Generation != 0 {
		t.Fatal("the test needs the previous map file")
	}
	leader(t, last)
	touch(t, last)
	generation := last.p.Map().Generation
	if generation == 0 {
		t.Error("the map is the old voters' map")
	}
	// The others start with their old disks, and receive the map as from gossip.
	nodes[0].start()
	nodes[1].start()
	for _, n := range nodes[:2] {
		if err := n.p.Observe(last.p.Map()); err != nil {
			t.Fatal(err)
		}
	}
	votes(t, nodes...)

	// All are killed, and start from their new logs.
	for _, n := range nodes {
		n.stop()
	}
	for _, n := range nodes {
		n.start()
	}
	votes(t, nodes...)
	if got := nodes[0].p.Map().Generation; got != generation {
		t.Errorf("generation %d, want %d", got, generation)
	}
}

func TestRecoverIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, nodes := fiveNodes(t)
		version := nodes[0].p.Map().Version
		if _, err := nodes[1].p.Recover(version); !errors.Is(err, placement.ErrLed) {
			t.Errorf("with a leader: %v", err)
		}
		never := c.add("n6", 0)
		if _, err := never.p.Recover(version); !errors.Is(err, placement.ErrNeverVotes) {
			t.Errorf("a node that never votes: %v", err)
		}
		empty := c.add("n7", 3)
		if _, err := empty.p.Recover(version); !errors.Is(err, shard.ErrNotFounded) {
			t.Errorf("without a map: %v", err)
		}
		var stale *shard.StaleError
		if _, err := nodes[3].p.Recover(version - 1); !errors.As(err, &stale) || stale.Current != version {
			t.Errorf("for another map: %v", err)
		}
		for _, n := range append(nodes, never, empty) {
			n.stop()
		}
	})
}
