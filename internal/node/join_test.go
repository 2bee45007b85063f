package node_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/membership"
	"github.com/shardwatch/shardwatch/internal/node"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// Nodes that do not vote receive the map, get shards, and serve.
func TestFiveNodesThreeVoters(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 5, 3, shards(8, 3))
	all := keys(32)
	c.put(all...)
	c.ready()
	c.settled(8, 3)
	w := newCrowd(c)
	for _, m := range c.nodes {
		w.shapes(c.client(m), 0)
	}
	w.reach(c.put(all...))
	for _, m := range c.nodes {
		if m.node.Status().GetMapVersion() == 0 || len(m.node.Members()) != 5 {
			t.Errorf("%s: %v", m.name, m.node.Status())
		}
	}
}

// A node that restarts loads its shards from the others.
func TestOneNodeThenTwoThenOne(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, 1, shards(2, 3))
	c.etcd = etcdtest.Start(t)
	all := keys(8)
	from := c.put(all...) + 1
	c.nodes[0].start()
	c.ready()
	w := newCrowd(c)
	w.shapes(c.client(c.nodes[0]), 0)
	w.reach(c.put(all[0]))
	c.nodes[1].start()
	c.ready()
	c.settled(2, 2)
	lists := c.lists()
	c.nodes[1].crash()
	w.reach(c.put(all[1]))
	c.nodes[1].start()
	c.ready()
	c.settled(2, 2)
	w.shapes(c.client(c.nodes[1]), from)
	w.reach(c.put(all[2]))
	if n := c.lists() - lists; n > 0 {
		t.Errorf("%d lists at etcd", n)
	}
}

func TestNameTaken(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1, 1, func(cfg *node.Config) {
		cfg.TuneMembership = func(c *membership.Config) {
			c.RetryInterval, c.ConflictTimeout, c.ReclaimTime = 100*time.Millisecond, time.Second, 500*time.Millisecond
		}
	})
	c.ready()
	twin := c.add("node-1")
	twin.start()
	var taken *membership.NameTakenError
	if err := twin.wait(); !errors.As(err, &taken) {
		t.Errorf("ended with %v", err)
	}
}

// A node does not join another cluster, or receive its data.
func TestDataOfAnotherClusterIsRefused(t *testing.T) {
	t.Parallel()
	here, there := startCluster(t, 1, 1, shards(1, 1)), startCluster(t, 1, 1, shards(1, 1))
	here.ready()
	there.ready()
	moved := there.nodes[0]
	moved.crash()
	moved.name, moved.c = "moved", here
	here.nodes = append(here.nodes, moved)
	moved.start()
	testkit.Succeeds(t, "an explanation", func() error {
		if here.log.count("level=WARN", "cluster", "moved") == 0 {
			return errors.New("the refusal is not logged")
		}
		return nil
	})
	for _, m := range here.nodes[0].node.Members() {
		if m.GetName() == "moved" {
			t.Error("the node of another cluster was admitted")
		}
	}
	if why := here.nodes[0].node.NotReady(); len(why) > 0 {
		t.Error(why)
	}
}

func TestGossipKeyMismatchIsExplained(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1, 1, func(cfg *node.Config) {
		fill := byte(1)
		if cfg.Self.Name != "node-1" {
			fill = 2
		}
		cfg.GossipKeys = [][]byte{bytes.Repeat([]byte{fill}, 32)}
	})
	c.ready()
	stranger := c.add("stranger")
	stranger.start()
	testkit.Succeeds(t, "an explanation", func() error {
		if why := strings.Join(stranger.node.NotReady(), "; "); !strings.Contains(why, "gossip: ") {
			return errors.New(why)
		}
		return nil
	})
	t.Log(stranger.node.NotReady())
}
