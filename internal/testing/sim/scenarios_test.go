package sim_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/node"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/check"
	"github.com/shardwatch/shardwatch/internal/testing/sim"
	"github.com/shardwatch/shardwatch/internal/testing/sim/memetcd"
)

// run runs a scenario on a new cluster, and then the final check.
func run(t *testing.T, cfg sim.Config, scenario func(t *testing.T, c *sim.Cluster)) {
	t.Helper()
	if raceDetector {
		t.Skip("Go's race detector crashes in bubbles with many timers: golang/go#78156")
	}
	synctest.Test(t, func(t *testing.T) {
		c := sim.Start(t, cfg)
		scenario(t, c)
		c.Check()
	})
}

// writeFor puts one key every 100 ms, in each directory in turn.
func writeFor(c *sim.Cluster, d time.Duration) {
	end := time.Now().Add(d)
	for n := 0; time.Now().Before(end); n++ {
		c.Put(fmt.Sprintf("/d%d/k%d", n%8, c.Rand().IntN(8)), fmt.Sprint(n))
		time.Sleep(100 * time.Millisecond)
	}
}

// several opens watches of the usual shapes, and waits until they have started.
func several(c *sim.Cluster) []*sim.Watcher {
	cl := c.Client("client")
	ws := []*sim.Watcher{
		c.WatchBy(cl, sim.WatchRequest{Range: kv.Single("/d1/k1")}),
		c.WatchBy(cl, sim.WatchRequest{Range: kv.Prefix("/d1/"), Prev: true}),
		c.WatchBy(cl, sim.WatchRequest{Range: kv.Prefix("/d2/"), State: true}),
		c.WatchBy(cl, sim.WatchRequest{Range: kv.Range{}}),
		c.WatchBy(cl, sim.WatchRequest{Range: kv.Range{}, State: true, Prev: true}),
	}
	for _, w := range ws {
		w.AwaitStart()
	}
	return ws
}

func TestAWatchSurvivesItsOwner(t *testing.T) {
	run(t, sim.Config{}, func(t *testing.T, c *sim.Cluster) {
		w := c.Watch("/d1/")
		c.Put("/d1/a", "1")
		owner := c.Owner("/d1/a")
		c.Kill(owner)
		c.Put("/d1/a", "2")
		c.Settle(5 * time.Second) // without waiting for gossip or raft
		c.Restart(owner)
		c.Put("/d1/a", "3")
		c.AwaitReady()
		time.Sleep(time.Minute)
		for _, v := range check.Watches(c.History(), w.Seen()) {
			t.Error(v)
		}
	})
}

func TestEveryNodeDiesOnceUnderLoad(t *testing.T) {
	run(t, sim.Config{}, func(_ *testing.T, c *sim.Cluster) {
		several(c)
		for _, n := range c.Names() {
			writeFor(c, 2*time.Second)
			c.Kill(n)
			writeFor(c, 3*time.Second)
			c.Restart(n)
			c.AwaitReady()
		}
		writeFor(c, time.Second)
	})
}

func TestADrainedNodeLosesNothing(t *testing.T) {
	run(t, sim.Config{}, func(t *testing.T, c *sim.Cluster) {
		several(c)
		owner := c.Owner("/d1/k1")
		time.AfterFunc(500*time.Millisecond, func() { _, _ = c.Etcd.Put("/d1/k1", "while it drains") })
		if took := c.Stop(owner); took > 30*time.Second {
			t.Errorf("the drain took %v", took)
		}
		writeFor(c, 2*time.Second)
		c.Settle(5 * time.Second)
		c.Restart(owner)
		c.AwaitReady()
		writeFor(c, 2*time.Second)
	})
}

// During a rolling restart, the operator waits for each node to be ready. A node is ready once it has again the
// shards that would otherwise have too few replicas; it gets a few at a time.
func TestANodeIsReadyWhenItsShardsAreBack(t *testing.T) {
	few := func(cfg *node.Config) { cfg.MaxNodeMoves = 2 }
	run(t, sim.Config{Tune: few}, func(t *testing.T, c *sim.Cluster) {
		c.Stop("n3")
		c.Await(time.Minute, "n3 has no shards", func() bool {
			return !slices.ContainsFunc(c.Map().Shards, func(s shard.Shard) bool { return slices.Contains(s.Replicas, "n3") })
		})
		ready := func(within time.Duration) {
			t.Helper()
			c.Restart("n3")
			c.Await(within, "n3 is ready", func() bool { return len(c.Node("n3").NotReady()) == 0 })
		}
		ready(20 * time.Second)
		for _, s := range c.Map().Shards {
			if c.Node("n3").Replica(s.ID) == nil {
				t.Errorf("ready without shard %d", s.ID)
			}
		}

		// If no other node runs, n3 becomes ready without shards after a while.
		c.Stop("n3")
		c.Kill("n1")
		c.Kill("n2")
		ready(40 * time.Second)
		c.Restart("n1")
		c.Restart("n2")
		c.AwaitReady()
	})
}

// forgotten is the time after which the leader no longer counts the last report of a stopped node.
const forgotten = 75 * time.Second

// A node that cannot reach etcd gets no shards. It is not ready, so that a rolling restart does not
// continue with the nodes that have the last copies.
func TestANodeThatIsOwedShardsIsNotReadyBeforeItReachesEtcd(t *testing.T) {
	run(t, sim.Config{}, func(t *testing.T, c *sim.Cluster) {
		c.Stop("n3")
		c.Cut("n3", sim.Etcd)
		time.Sleep(forgotten)
		c.Restart("n3")
		time.Sleep(2 * time.Minute)
		for _, s := range c.Map().Shards {
			if len(s.Replicas) != 2 {
				t.Fatalf("shard %d is on %v: the test needs n3 to lack a replica", s.ID, s.Replicas)
			}
		}
		if len(c.Node("n3").NotReady()) == 0 {
			t.Error("n3 is ready without a shard: the next node may stop")
		}
		c.Heal("n3", sim.Etcd)
		c.AwaitReady()
		for _, s := range c.Map().Shards {
			if c.Node("n3").Replica(s.ID) == nil {
				t.Errorf("ready without shard %d", s.ID)
			}
		}
	})
}

func TestARollingRestartWithoutEtcdStopsBeforeTheLastCopies(t *testing.T) {
	run(t, sim.Config{}, func(t *testing.T, c *sim.Cluster) {
		c.Etcd.Stop()
		names := c.Names()
		slices.Reverse(names) // in the order of a StatefulSet's pods
		for _, n := range names {
			c.Stop(n)
			time.Sleep(forgotten)
			c.Restart(n)
			ready := func() bool { return len(c.Node(n).NotReady()) == 0 }
			for end := time.Now().Add(2 * time.Minute); !ready() && time.Now().Before(end); {
				time.Sleep(time.Second)
			}
			if !ready() {
				break
			}
		}
		for _, s := range c.Map().Shards {
			if !slices.ContainsFunc(names, func(n string) bool {
				r := c.Node(n).Replica(s.ID)
				return r != nil && r.Status().Ready
			}) {
				t.Errorf("no node has shard %d", s.ID)
			}
		}
		if err := c.Etcd.Start(); err != nil {
			t.Fatal(err)
		}
		c.AwaitReady()
	})
}

func TestAPausedNodeResumes(t *testing.T) {
	run(t, sim.Config{}, func(t *testing.T, c *sim.Cluster) {
		several(c)
		owner := c.Owner("/d1/k1")
		c.Pause(owner)
		writeFor(c, 10*time.Second)
		c.Settle(5 * time.Second) // the other nodes continue
		c.Resume(owner)
		for range 20 {
			_ = c.CheckRead(owner, kv.Range{}, sim.Ask{MaxStaleness: 2 * time.Second})
			_ = c.CheckRead(owner, kv.Range{}, sim.Ask{Linearizable: true})
			c.Put("/d1/k1", "awake")
			time.Sleep(100 * time.Millisecond)
		}
		writeFor(c, 5*time.Second)
		c.AwaitReady()
	})
}

func TestAnOwnerCutFromEtcdOnly(t *testing.T) {
	run(t, sim.Config{}, func(t *testing.T, c *sim.Cluster) {
		several(c)
		owner := c.Owner("/d1/k1")
		c.Cut(owner, sim.Etcd)
		for range 20 {
			writeFor(c, time.Second)
			_ = c.CheckRead(owner, kv.Range{}, sim.Ask{MaxStaleness: 2 * time.Second})
			_ = c.CheckRead(owner, kv.Range{}, sim.Ask{MaxStaleness: 200 * time.Millisecond})
		}
		c.Settle(5 * time.Second)
		if r, err := c.List(context.Background(), owner, kv.Range{}, sim.Ask{MaxStaleness: 5 * time.Second}); err != nil {
			t.Errorf("20 s after the cut it still has no other source: %v", err)
		} else if r.Revision == 0 {
			t.Error("got an answer without a revision")
		}
		c.Heal(owner, sim.Etcd)
		writeFor(c, 2*time.Second)
	})
}

func TestAFollowerCutFromItsOwner(t *testing.T) {
	for name, cut := range map[string]func(c *sim.Cluster, owner, follower string){
		"both ways":            func(c *sim.Cluster, o, f string) { c.Cut(o, f) },
		"owner to follower":    func(c *sim.Cluster, o, f string) { c.CutOneWay(o, f) },
		"follower to owner":    func(c *sim.Cluster, o, f string) { c.CutOneWay(f, o) },
		"etcd to the owner":    func(c *sim.Cluster, o, _ string) { c.CutOneWay(sim.Etcd, o) },
		"the owner to etcd":    func(c *sim.Cluster, o, _ string) { c.CutOneWay(o, sim.Etcd) },
		"etcd to the follower": func(c *sim.Cluster, _, f string) { c.CutOneWay(sim.Etcd, f) },
		"owner to the client":  func(c *sim.Cluster, o, _ string) { c.CutOneWay(o, "client") },
		"the client to owner":  func(c *sim.Cluster, o, _ string) { c.CutOneWay("client", o) },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, sim.Config{}, func(t *testing.T, c *sim.Cluster) {
				several(c)
				owner, follower := c.Owner("/d1/k1"), c.Follower("/d1/k1")
				cut(c, owner, follower)
				for range 5 {
					writeFor(c, 3*time.Second)
					_ = c.CheckRead(follower, kv.Range{}, sim.Ask{MaxStaleness: 2 * time.Second})
					_ = c.CheckRead(owner, kv.Range{}, sim.Ask{MaxStaleness: 2 * time.Second})
				}
				c.Settle(20 * time.Second)
				c.HealAll()
				writeFor(c, 3*time.Second)
				c.AwaitReady()
			})
		})
	}
}

func TestGossipLoses30Percent(t *testing.T) {
	run(t, sim.Config{Seed: 7}, func(t *testing.T, c *sim.Cluster) {
		several(c)
		c.LoseGossip(0.3)
		version := c.Map().Version
		writeFor(c, 20*time.Second)
		time.Sleep(2 * time.Minute)
		if now := c.Map().Version; now != version {
			t.Errorf("packet loss moved shards: map version %d became %d", version, now)
		}
	})
}

func TestTheRaftLeaderDies(t *testing.T) {
	run(t, sim.Config{}, func(_ *testing.T, c *sim.Cluster) {
		several(c)
		leader := c.Leader()
		c.Kill(leader)
		c.Await(20*time.Second, "another leader", func() bool { l := c.Leader(); return l != "" && l != leader })
		writeFor(c, 20*time.Second)
		c.Restart(leader)
		c.AwaitReady()
		writeFor(c, 2*time.Second)
	})
}

func TestWatchesContinueWithoutAQuorum(t *testing.T) {
	run(t, sim.Config{}, func(t *testing.T, c *sim.Cluster) {
		several(c)
		dead := c.Names()[:2]
		for _, n := range dead {
			c.Kill(n)
		}
		writeFor(c, 5*time.Second)
		c.Settle(5 * time.Second)
		time.Sleep(time.Minute)
		writeFor(c, 2*time.Second)
		c.Settle(time.Second)
		for _, n := range dead {
			c.Restart(n)
		}
		c.AwaitReady()
		writeFor(c, 2*time.Second)
	})
}

func TestAWipedDiskRejoins(t *testing.T) {
	run(t, sim.Config{}, func(t *testing.T, c *sim.Cluster) {
		several(c)
		c.Kill("n1")
		writeFor(c, 2*time.Second)
		c.Wipe("n1")
		c.Restart("n1")
		c.AwaitReady()
		writeFor(c, 2*time.Second)
		// n1 votes again: without n2 there is still a leader.
		time.Sleep(time.Minute)
		c.Kill("n2")
		c.Await(20*time.Second, "a leader", func() bool { l := c.Leader(); return l != "" && l != "n2" })
		writeFor(c, 2*time.Second)
		c.Restart("n2")
		c.AwaitReady()
	})
}

// Raft does not need etcd: a wiped node votes again while etcd is stopped.
func TestAWipedDiskVotesAgainWithoutEtcd(t *testing.T) {
	run(t, sim.Config{}, func(_ *testing.T, c *sim.Cluster) {
		c.Etcd.Stop()
		c.Kill("n1")
		c.Wipe("n1")
		c.Restart("n1")
		voters := func() (names []string) {
			for _, m := range c.Node("n2").Members() {
				if m.GetVoter() {
					names = append(names, m.GetName())
				}
			}
			return names
		}
		c.Await(time.Minute, "the old identity is gone", func() bool { return !slices.Contains(voters(), "n1") })
		c.Await(time.Minute, "n1 votes", func() bool { return slices.Contains(voters(), "n1") })
		_ = c.Etcd.Start()
		c.AwaitReady()
	})
}

func TestEtcdIsAway(t *testing.T) {
	for _, away := range []time.Duration{10 * time.Second, 5 * time.Minute} {
		for name, fault := range map[string]struct{ begin, end func(c *sim.Cluster) }{
			"silent":  {func(c *sim.Cluster) { c.Pause(sim.Etcd) }, func(c *sim.Cluster) { c.Resume(sim.Etcd) }},
			"hanging": {func(c *sim.Cluster) { c.Etcd.Pause() }, func(c *sim.Cluster) { c.Etcd.Resume() }},
			"stopped": {func(c *sim.Cluster) { c.Etcd.Stop() }, func(c *sim.Cluster) { _ = c.Etcd.Start() }},
		} {
			t.Run(fmt.Sprintf("%s for %v", name, away), func(t *testing.T) {
				run(t, sim.Config{}, func(t *testing.T, c *sim.Cluster) {
					several(c)
					fault.begin(c)
					for range 10 {
						c.Put("/d1/k1", "unseen")
						time.Sleep(away / 10)
						for _, n := range c.Names() {
							_ = c.CheckRead(n, kv.Range{}, sim.Ask{MaxStaleness: 2 * time.Second})
							if len(c.Node(n).NotReady()) > 0 {
								t.Errorf("%s is not ready: %v", n, c.Node(n).NotReady())
							}
						}
					}
					fault.end(c)
					c.Settle(15 * time.Second)
					writeFor(c, time.Second)
				})
			})
		}
	}
}

func TestEtcdDropsProgress(t *testing.T) {
	run(t, sim.Config{}, func(_ *testing.T, c *sim.Cluster) {
		several(c)
		c.Etcd.DropProgress(true)
		writeFor(c, 20*time.Second)
		c.Etcd.DropProgress(false)
		c.Settle(10 * time.Second)
	})
}

func TestEtcdIsCompactedWhileANodeIsCutOff(t *testing.T) {
	for _, offset := range []kv.Revision{-1, 0, 1} {
		t.Run(fmt.Sprintf("at r%+d", offset), func(t *testing.T) {
			run(t, sim.Config{}, func(t *testing.T, c *sim.Cluster) {
				several(c)
				victim := c.Owner("/d1/k1")
				writeFor(c, 2*time.Second)
				time.Sleep(time.Second)
				r := c.Etcd.Revision()
				c.Pause(victim)
				writeFor(c, 5*time.Second)
				if err := c.Etcd.Compact(r + offset); err != nil {
					t.Fatal(err)
				}
				writeFor(c, 5*time.Second)
				c.Resume(victim)
				writeFor(c, 2*time.Second)
				c.AwaitReady()
			})
		})
	}
}

// Before the other replicas notice that the owner is cut off from etcd, etcd is compacted
// at its head: no node has the revisions between. One replica fetches the changes from
// etcd, the others take them from that replica, and all watches continue during the cut.
func TestEtcdIsCompactedBeforeTheReplicasLeaveAnOwnerThatIsCutFromIt(t *testing.T) {
	for name, cut := range map[string]func(c *sim.Cluster, owner string){
		"both ways":         func(c *sim.Cluster, owner string) { c.Cut(owner, sim.Etcd) },
		"etcd to the owner": func(c *sim.Cluster, owner string) { c.CutOneWay(sim.Etcd, owner) },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, sim.Config{Nodes: 5}, func(t *testing.T, c *sim.Cluster) {
				for _, node := range c.Running() { // a client that reaches only this node
					for _, other := range c.Running() {
						if other != node {
							c.Cut("client of "+node, other)
						}
					}
					c.WatchBy(c.Client("client of "+node), sim.WatchRequest{Range: kv.Prefix("/d1/")}).AwaitStart()
				}
				several(c)
				writeFor(c, 2*time.Second)
				cut(c, c.Owner("/d1/k1"))
				writeFor(c, 600*time.Millisecond)
				if err := c.Etcd.Compact(c.Etcd.Revision()); err != nil {
					t.Fatal(err)
				}
				writeFor(c, time.Second)
				c.Settle(5 * time.Second)
				c.HealAll()
				writeFor(c, 2*time.Second)
				c.AwaitReady()
			})
		})
	}
}

func TestEtcdIsCompactedWhileAllNodesAreCutFromIt(t *testing.T) {
	for _, offset := range []kv.Revision{-1, 0, 1, 2} {
		t.Run(fmt.Sprintf("at r%+d", offset), func(t *testing.T) {
			run(t, sim.Config{}, func(t *testing.T, c *sim.Cluster) {
				several(c)
				time.Sleep(time.Second)
				r := c.Etcd.Revision()
				c.Pause(sim.Etcd)
				c.Put("/d1/k1", "r+1")
				c.Put("/d1/k1", "r+2")
				if err := c.Etcd.Compact(r + offset); err != nil {
					t.Fatal(err)
				}
				time.Sleep(20 * time.Second)
				c.Resume(sim.Etcd)
				writeFor(c, 2*time.Second)
			})
		})
	}
}

func TestTransactionsOverTwoShardsArriveWhole(t *testing.T) {
	run(t, sim.Config{}, func(t *testing.T, c *sim.Cluster) {
		several(c)
		a, b := c.Shard("/d1/k1"), c.Shard("/d6/k1")
		if a.ID == b.ID {
			t.Fatal("all keys are in one shard")
		}
		for n := range 100 {
			if n == 30 {
				c.Kill(string(a.Owner()))
			}
			if n == 60 {
				c.Restart(string(a.Owner()))
			}
			v := fmt.Sprint(n)
			c.Txn(memetcd.OpPut("/d1/k1", v), memetcd.OpPut("/d6/k1", v), memetcd.OpDelete(kv.Single(fmt.Sprintf("/d3/k%d", n%8))))
			time.Sleep(100 * time.Millisecond)
		}
		c.AwaitReady()
	})
}

func TestAnEmptyEtcdIsSplitLater(t *testing.T) {
	run(t, sim.Config{Keys: []string{}}, func(t *testing.T, c *sim.Cluster) {
		if n := len(c.Map().Shards); n != 1 {
			t.Fatalf("%d shards for an empty etcd", n)
		}
		several(c)
		for d := range 8 {
			for k := range 8 {
				c.Put(fmt.Sprintf("/d%d/k%d", d, k), "first")
			}
		}
		end := time.Now().Add(time.Minute)
		for len(c.Map().Shards) < 8 && time.Now().Before(end) {
			writeFor(c, time.Second)
		}
		if n := len(c.Map().Shards); n != 8 {
			t.Errorf("%d shards after a minute with keys", n)
		}
		writeFor(c, 5*time.Second)
		c.AwaitReady()
	})
}

// Two nodes that restart at the same time see each other first. They must take the history
// from the third node, and not only the state from etcd.
func TestNodesThatRestartTogetherTakeTheHistory(t *testing.T) {
	run(t, sim.Config{}, func(_ *testing.T, c *sim.Cluster) {
		from := c.Etcd.Revision() + 1
		writeFor(c, 2*time.Second)
		for _, n := range []string{"n1", "n2"} {
			c.Kill(n)
		}
		writeFor(c, 3*time.Second)
		for _, n := range []string{"n1", "n2"} {
			c.Restart(n)
			time.Sleep(50 * time.Millisecond)
		}
		c.AwaitReady()
		c.Kill("n3")
		time.Sleep(3 * time.Second)
		c.WatchBy(c.Client("client"), sim.WatchRequest{Range: kv.Range{}, From: from})
		c.Settle(10 * time.Second)
		c.Restart("n3")
		c.AwaitReady()
	})
}
