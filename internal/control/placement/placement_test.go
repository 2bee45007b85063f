package placement_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/control/placement"
	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// The life of a cluster on real sockets and disks.
func TestThreeVoters(t *testing.T) {
	c := newCluster(t, false)
	nodes := []*node{c.add("n1", 3), c.add("n2", 3), c.add("n3", 3)}
	m := c.founded(nodes...)
	if len(m.Shards) != 4 || m.EtcdClusterID != 0xe7cd || len(m.Shards[0].Replicas) != 2 {
		t.Fatalf("founded as %+v", m)
	}
	for _, n := range nodes {
		if n.p.ClusterID() != m.ClusterID {
			t.Errorf("%s has cluster %s, want %s", n.name, n.p.ClusterID(), m.ClusterID)
		}
	}

	// A change through a follower reaches all nodes.
	lead := leader(t, nodes...)
	v := touch(t, without(nodes, lead)[0])
	for _, n := range nodes {
		testkit.Eventually(t, "the change arrives", func() bool { return n.p.Map().Version >= v })
	}
	if got := lead.p.Voters(); !slices.Equal(got, []shard.NodeID{"n1", "n2", "n3"}) || !lead.p.IsVoter("n2") || lead.p.IsVoter("x") {
		t.Errorf("voters %v", got)
	}

	// The leader stops; the others continue, and it returns at another address.
	lead.stop()
	if lead.err != nil {
		t.Fatalf("Run: %v", lead.err)
	}
	rest := without(nodes, lead)
	leader(t, rest...)
	v = touch(t, rest[0])
	lead.start()
	testkit.Eventually(t, "the old leader catches up", func() bool { return lead.p.Map().Version >= v })

	// Without a quorum the map stays, and the error of a proposal names the cause.
	lead = leader(t, nodes...)
	rest = without(nodes, lead)
	last := rest[0]
	lead.stop()
	rest[1].stop()
	before := last.p.Map()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := last.p.Propose(ctx, shard.Command{IfVersion: before.Version, Change: shard.Split{Shard: before.Shards[0].ID, At: []string{"a"}}})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("propose without a quorum: %v", err)
	}
	if last.p.Map() == nil || last.p.Map().Version < before.Version {
		t.Error("the map is lost without a quorum")
	}

	// All stop. Each has the map before raft has a leader.
	last.stop()
	last.start()
	if got := last.p.Map(); got == nil || got.Version < before.Version {
		t.Errorf("restarted with %+v, want version %d", got, before.Version)
	}
	lead.start()
	rest[1].start()
	leader(t, nodes...)
	touch(t, last)
}

func TestWipedVoterRejoinsWithANewIdentity(t *testing.T) {
	c := newCluster(t, false)
	nodes := []*node{c.add("n1", 3), c.add("n2", 3), c.add("n3", 3)}
	c.founded(nodes...)
	victim := without(nodes, leader(t, nodes...))[0]
	old := victim.member.UUID
	victim.stop()
	v := touch(t, leader(t, without(nodes, victim)...))
	victim.wipe()
	victim.start()
	if victim.member.UUID == old {
		t.Fatal("the node has its old identity on an empty disk")
	}
	testkit.Eventually(t, "the wiped voter has the map", func() bool { return victim.p.Map() != nil && victim.p.Map().Version >= v })
	testkit.Eventually(t, "it votes", func() bool {
		return slices.Equal(victim.p.Voters(), []shard.NodeID{"n1", "n2", "n3"})
	})
	// It votes: without one of the others there is still a majority.
	other := without(without(nodes, victim), leader(t, nodes...))[0]
	other.stop()
	touch(t, victim)
}

func TestNonVoterObserves(t *testing.T) {
	c := newCluster(t, false)
	voter, other := c.add("n1", 1), c.add("n2", 0)
	m := c.founded(voter)
	if other.p.Map() != nil {
		t.Fatal("a node without a source has a map")
	}
	_, changed := other.p.Watch()
	if err := other.p.Observe(m); err != nil {
		t.Fatal(err)
	}
	<-changed
	v := touch(t, other) // forwarded, although the node has no leader
	if err := other.p.Observe(m); err != nil || other.p.Map().Version != m.Version {
		t.Errorf("observed again: %v", err)
	}
	newer := voter.p.Map()
	if newer.Version < v {
		t.Fatalf("leader at %d, want %d", newer.Version, v)
	}
	if err := other.p.Observe(newer); err != nil || other.p.Map().Version != newer.Version {
		t.Errorf("newer: %v", err)
	}
	if err := other.p.Observe(m); err != nil || other.p.Map().Version != newer.Version {
		t.Errorf("older: %v, at %d", err, other.p.Map().Version)
	}
	alien := newer.Clone()
	alien.ClusterID, alien.Version = "alien", 99
	if err := other.p.Observe(alien); !errors.Is(err, placement.ErrForeign) {
		t.Errorf("alien: %v", err)
	}
	// The observed map is on disk.
	file := filepath.Join(other.dir, "shardmap")
	testkit.Eventually(t, "the map is on disk", func() bool { _, err := os.Stat(file); return err == nil })
	other.stop()
	other.start()
	if got := other.p.Map(); got == nil || got.ClusterID != m.ClusterID {
		t.Errorf("restarted with %+v", got)
	}
}

// A request whose outcome was lost is carried out once, however often it is
// repeated; also by another leader, and after a restart from disk.
func TestRepeatedRequestIsMadeOnce(t *testing.T) {
	c := newCluster(t, false)
	n := c.add("n1", 1)
	m := c.founded(n)
	cmd := shard.Command{RequestID: "r", IfVersion: m.Version, Change: shard.Split{Shard: m.Shards[0].ID, At: []string{"a"}}}
	v, err := n.p.Propose(t.Context(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	again := func() {
		t.Helper()
		got, err := n.p.Propose(t.Context(), cmd)
		if err != nil || got != v {
			t.Errorf("repeated: version %d, %v; want %d", got, err, v)
		}
	}
	again()
	n.stop()
	n.start()
	leader(t, n)
	again()
	cmd.RequestID = "other"
	if _, err := n.p.Propose(t.Context(), cmd); !errors.Is(err, shard.ErrRefused) {
		t.Errorf("a stale command: %v", err)
	}
}

// Commands that an older member does not understand are refused while it is a member.
func TestNewCommandsAreRefusedWhileMembersAreOld(t *testing.T) {
	c := newCluster(t, false)
	n, old := c.add("n1", 1), c.add("n2", 0)
	old.set(func(m *shard.Member) { m.Level = shard.LevelHomes - 1 })
	c.founded(n)
	err := change(n, shard.Drain{Nodes: []shard.NodeID{"n2"}})
	refused := new(shard.OldMembersError)
	if !errors.As(err, &refused) || !slices.Equal(refused.Members, []shard.NodeID{"n2"}) {
		t.Errorf("a new command with an old member: %v", err)
	}
	touch(t, n) // commands that the old member understands still work
	old.set(func(m *shard.Member) { m.Level = shard.Level })
	if err := change(n, shard.Drain{Nodes: []shard.NodeID{"n2"}}); err != nil {
		t.Fatal(err)
	}
	old.set(func(m *shard.Member) { m.Level = 1 }) // too late to block
	testkit.Eventually(t, "the drained node has no shards", func() bool {
		return !slices.ContainsFunc(n.p.Map().Shards, func(s shard.Shard) bool { return slices.Contains(s.Replicas, "n2") })
	})
	if err := change(n, shard.Drain{Nodes: []shard.NodeID{"n2"}, Undo: true}); err != nil {
		t.Error(err)
	}
}

func TestDataDirectoryOfAnotherCluster(t *testing.T) {
	a, b := newCluster(t, false), newCluster(t, false)
	lost := a.add("n9", 1)
	a.founded(lost)
	lost.stop()
	nodes := []*node{b.add("n1", 3), b.add("n2", 3), b.add("n3", 3)}
	b.founded(nodes...)
	lost.c = b
	lost.start()
	<-lost.done
	if !errors.Is(lost.err, placement.ErrForeign) || !strings.Contains(lost.err.Error(), "data directory belongs to cluster "+lost.p.ClusterID()) {
		t.Errorf("Run: %v", lost.err)
	}
	touch(t, nodes[0]) // the others do not block
}

func TestTornMapFileIsPutAside(t *testing.T) {
	c := newCluster(t, false)
	n := c.add("n1", 1)
	m := c.founded(n)
	file := filepath.Join(n.dir, "shardmap")
	testkit.Eventually(t, "the map is on disk", func() bool { _, err := os.Stat(file); return err == nil })
	n.stop()
	if err := os.WriteFile(file, []byte("shardwatch map 1\nnonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.start()
	if got := c.founded(n); got.ClusterID != m.ClusterID {
		t.Errorf("cluster %s, want %s", got.ClusterID, m.ClusterID)
	}
	if _, err := os.Stat(file + ".refused"); err != nil {
		t.Error(err)
	}
}

// The life of a cluster on fake time: founding waits for etcd, an empty etcd is split
// when it gets keys, a dead node's shards move after the grace time and return with the
// node, and a cut-off leader is replaced.
func TestClusterOnFakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, true)
		c.etcd = errors.New("etcd is away")
		c.cuts = nil
		nodes := []*node{c.add("n1", 3), c.add("n2", 3), c.add("n3", 3), c.add("n4", 0)}
		voters := nodes[:3]
		time.Sleep(time.Minute)
		if m := voters[0].p.Map(); m != nil {
			t.Fatalf("founded without etcd: %+v", m)
		}
		// A voter that had the log before it could bootstrap learns the ID with the map.
		ids := []string{voters[0].p.ClusterID(), voters[1].p.ClusterID(), voters[2].p.ClusterID()}
		ids = slices.DeleteFunc(ids, func(id string) bool { return id == "" })
		if slices.Sort(ids); len(slices.Compact(ids)) != 1 {
			t.Errorf("clusters %q before the founding", ids)
		}
		c.mu.Lock()
		c.etcd = nil
		c.mu.Unlock()
		time.Sleep(5 * time.Second)
		if m := c.founded(voters...); len(m.Shards) != 1 {
			t.Fatalf("an empty etcd has %d shards", len(m.Shards))
		}
		c.mu.Lock()
		c.cuts = []string{"b", "c", "d", "e"}
		c.mu.Unlock()
		time.Sleep(time.Minute)
		home := voters[0].p.Map()
		if len(home.Shards) != 4 {
			t.Fatalf("%d shards after keys came, want 4", len(home.Shards))
		}

		has := func(m *shard.Map, n shard.NodeID) (count int) {
			for _, s := range m.Shards {
				if slices.Contains(s.Replicas, n) {
					count++
				}
			}
			return count
		}
		var victim *node
		for _, n := range nodes {
			if has(home, n.name) > 0 && (victim == nil || n.name == "n4") {
				victim = n
			}
		}
		victim.stop()
		alive := without(nodes, victim)
		voter := without(voters, victim)[0]
		time.Sleep(4 * time.Second)
		if has(voter.p.Map(), victim.name) != has(home, victim.name) {
			t.Error("shards moved within the grace time")
		}
		time.Sleep(30 * time.Second)
		if n := has(voter.p.Map(), victim.name); n > 0 {
			t.Errorf("the dead %s still has %d shards", victim.name, n)
		}
		victim.start()
		time.Sleep(time.Minute)
		if got := voter.p.Map(); !reflect.DeepEqual(replicas(got), replicas(home)) {
			t.Errorf("after the node's return: %v, want %v", replicas(got), replicas(home))
		}
		if len(alive) != 3 {
			t.Fatal("the test needs three other nodes")
		}

		lead := leader(t, voters...)
		for _, n := range without(voters, lead) {
			c.net.Cut(lead.member.RaftAddress, n.member.RaftAddress)
		}
		time.Sleep(10 * time.Second)
		rest := without(voters, lead)
		next := leader(t, rest...)
		v := touch(t, next)
		if lead.p.Map().Version >= v {
			t.Error("the cut-off leader has the change")
		}
		for _, n := range rest {
			c.net.Heal(lead.member.RaftAddress, n.member.RaftAddress)
		}
		time.Sleep(10 * time.Second)
		if lead.p.Map().Version < v {
			t.Error("the old leader did not catch up")
		}
		for _, n := range nodes {
			n.stop()
			if n.err != nil {
				t.Errorf("%s: %v", n.name, n.err)
			}
		}
	})
}

// A voter that received the log before it saw the others has no cluster ID. It still
// founds the same cluster when it leads.
func TestLeaderThatDidNotBootstrapFounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, true)
		c.etcd = errors.New("etcd is away")
		late := time.Now().Add(time.Minute)
		c.edit = func(cfg *placement.Config) {
			self, all := cfg.Name, cfg.Members
			cfg.Members = func() []shard.Member {
				return slices.DeleteFunc(all(), func(m shard.Member) bool { return self == "n3" && m.Name != self && time.Now().Before(late) })
			}
		}
		nodes := []*node{c.add("n1", 3), c.add("n2", 3), c.add("n3", 3)}
		time.Sleep(2 * time.Minute)
		id := cmp.Or(nodes[0].p.ClusterID(), nodes[1].p.ClusterID())
		if last := nodes[2].p.ClusterID(); id == "" || last != "" {
			t.Fatalf("cluster IDs: %q at n1 or n2, %q at n3", id, last)
		}
		for leader(t, nodes...) != nodes[2] {
			l := leader(t, nodes...)
			l.stop()
			time.Sleep(time.Minute)
			l.start()
			time.Sleep(time.Minute)
		}
		c.mu.Lock()
		c.etcd = nil
		c.mu.Unlock()
		time.Sleep(5 * time.Second)
		if l := leader(t, nodes...); l != nodes[2] {
			t.Fatalf("%s leads", l.name)
		}
		if m := c.founded(nodes...); m.ClusterID != id {
			t.Errorf("founded cluster %q, want %q", m.ClusterID, id)
		}
	})
}

// A shard with too much load is cut in two, first on its nodes. After the load has
// been low for long enough, its parts are merged again. An operator's move is lasting.
func TestLoadSplitsAndMerges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, true)
		c.cuts = nil
		c.reports = true
		c.edit = func(cfg *placement.Config) { cfg.Spec.Shards = 1 }
		nodes := []*node{c.add("n1", 3), c.add("n2", 3), c.add("n3", 3), c.add("n4", 0)}
		time.Sleep(20 * time.Second)
		first := c.founded(nodes[0]).Shards[0]
		load := func(n int64) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.bytes = n
		}
		load(600 << 20)
		time.Sleep(30 * time.Second)
		if _, waiting := did(nodes...); waiting != (planner.Waiting{Split: 1}) {
			t.Errorf("waiting: %+v", waiting)
		}
		time.Sleep(150 * time.Second)
		load(100 << 20)
		m := nodes[0].p.Map()
		if len(m.Shards) != 2 || m.Shards[0].Range.End != "half" || !slices.Equal(m.Shards[0].Replicas, first.Replicas) {
			t.Fatalf("from %+v to %+v", first, m.Shards)
		}
		time.Sleep(5 * time.Minute)
		if got := len(nodes[0].p.Map().Shards); got != 2 {
			t.Errorf("%d shards, want no change so soon", got)
		}
		load(10 << 20)
		time.Sleep(15 * time.Minute)
		if m = nodes[0].p.Map(); len(m.Shards) != 1 || m.Shards[0].ID != 4 || len(m.Shards[0].Replicas) != 2 {
			t.Fatalf("still %+v", m.Shards)
		}
		deeds, waiting := did(nodes...)
		if deeds[planner.LoadSplit] != 1 || deeds[planner.LoadMerge] != 1 || deeds[planner.Merged] != 1 || waiting != (planner.Waiting{}) {
			t.Errorf("did %v, waiting %+v", deeds, waiting)
		}

		s := m.Shards[0]
		pins := []shard.NodeID{"n1", "n2", "n3", "n4"}
		pins = slices.DeleteFunc(pins, func(n shard.NodeID) bool { return slices.Contains(s.Replicas, n) })
		if err := change(nodes[0], shard.Rehome{Homes: []shard.ShardHome{{Shard: s.ID, Home: shard.Home{Pins: pins}}}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if got := nodes[0].p.Map().Shards[0].Replicas; !slices.Equal(got, pins) {
			t.Errorf("on %v, want %v", got, pins)
		}
		for _, n := range nodes {
			n.stop()
		}
	})
}

// did adds up the operations of the nodes as leaders.
func did(nodes ...*node) (done map[planner.Operation]int64, waiting planner.Waiting) {
	done = make(map[planner.Operation]int64)
	for _, n := range nodes {
		f := n.p.Stats()
		for op, shards := range f.Shards {
			done[op] += shards
		}
		waiting.Split, waiting.Merge, waiting.Replicas = waiting.Split+f.Waiting.Split, waiting.Merge+f.Waiting.Merge, waiting.Replicas+f.Waiting.Replicas
	}
	return done, waiting
}

// A voter that is away for ten minutes is replaced by a node that has the log, and votes
// again some time after its return. A drained voter hands over its vote, even as the
// leader. The voters can change the map throughout.
func TestVotersAreReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, true)
		c.reports = true
		nodes := []*node{c.add("n1", 3), c.add("n2", 3), c.add("n3", 3)}
		time.Sleep(20 * time.Second)
		c.founded(nodes...)
		n4 := c.add("n4", 3)
		nodes = append(nodes, n4)
		if err := n4.p.Observe(nodes[0].p.Map()); err != nil { // received as by its node
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		voters := func(n *node) []shard.NodeID { return n.p.Voters() }
		victim := leader(t, nodes[:3]...)
		rest := without(nodes[:3], victim)
		victim.stop()
		time.Sleep(9 * time.Minute)
		if got := voters(leader(t, rest...)); len(got) != 3 || !slices.Contains(got, victim.name) {
			t.Errorf("after nine minutes: %v", got)
		}
		time.Sleep(2 * time.Minute)
		want := []shard.NodeID{rest[0].name, rest[1].name, "n4"}
		if got := voters(rest[0]); !slices.Equal(got, want) {
			t.Fatalf("after eleven minutes: %v, want %v", got, want)
		}
		if f := leader(t, rest...).p.Stats(); f.Voters["learn"] != 1 || f.Voters["remove"] != 1 || f.Voters["add"] != 1 {
			t.Errorf("changes of voters: %v", f.Voters)
		}
		touch(t, rest[0])

		victim.start()
		time.Sleep(20 * time.Second)
		if got := voters(rest[0]); !slices.Equal(got, want) {
			t.Errorf("just after the old voter's return: voters %v, want %v", got, want)
		}
		time.Sleep(time.Minute)
		want = []shard.NodeID{"n1", "n2", "n3"}
		if got := voters(victim); !slices.Equal(got, want) {
			t.Errorf("the old voter sees voters %v, want %v", got, want)
		}
		v := touch(t, rest[0])
		time.Sleep(time.Second)
		if got := victim.p.Map().Version; got < v {
			t.Errorf("the old voter has map version %d, want %d", got, v)
		}

		lead := leader(t, nodes[:3]...)
		if err := change(rest[0], shard.Drain{Nodes: []shard.NodeID{lead.name}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		others := without(nodes, lead)
		next := leader(t, others...)
		if got := voters(next); len(got) != 3 || slices.Contains(got, lead.name) {
			t.Errorf("%s is drained, voters are %v", lead.name, got)
		}
		lead.stop()
		for _, n := range others {
			if n != next {
				n.stop() // two of three are a majority
				break
			}
		}
		touch(t, next)
		for _, n := range nodes {
			n.stop()
		}
	})
}

// fiveNodes returns five nodes that all may vote, of which the first three do.
func fiveNodes(t *testing.T) (*cluster, []*node) {
	c := newCluster(t, true)
	c.reports = true
	var nodes []*node
	for i := range 5 {
		nodes = append(nodes, c.add(shard.NodeID(fmt.Sprintf("n%d", i)), 3))
	}
	time.Sleep(20 * time.Second)
	c.founded(nodes[:3]...)
	c.spread()
	return c, nodes
}

// spread gives every node the newest map, as if it had received the map.
func (c *cluster) spread() {
	c.t.Helper()
	var newest *shard.Map
	for _, n := range c.all() {
		if m := n.p.Map(); m != nil && (newest == nil || m.Version > newest.Version) {
			newest = m
		}
	}
	for _, n := range c.all() {
		if err := n.p.Observe(newest); err != nil {
			c.t.Fatal(err)
		}
	}
}

// Pods 1 and 2 are away at overlapping times, so that the votes move to pods 3 and
// 4; later the StatefulSet is scaled from 5 to 3, which ends pods 3 and 4 at once.
func TestScaledFromFiveToThreeTheQuorumSurvives(t *testing.T) {
	for _, tc := range []struct {
		name string
		rest time.Duration // between the return of 1 and 2 and the scaling
		want []shard.NodeID
	}{
		{"long after", time.Minute, []shard.NodeID{"n0", "n1", "n2"}},
		{"at once", 5 * time.Second, []shard.NodeID{"n0", "n3", "n4"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, nodes := fiveNodes(t)
				nodes[1].stop()
				time.Sleep(11 * time.Minute)
				nodes[2].stop()
				time.Sleep(11 * time.Minute)
				if got, want := leader(t, nodes[0], nodes[3], nodes[4]).p.Voters(), []shard.NodeID{"n0", "n3", "n4"}; !slices.Equal(got, want) {
					t.Fatalf("while 1 and 2 are away: voters %v, want %v", got, want)
				}
				nodes[1].start()
				nodes[2].start()
				c.spread()
				time.Sleep(tc.rest)
				if got := nodes[0].p.Voters(); !slices.Equal(got, tc.want) {
					t.Fatalf("before the scaling: voters %v, want %v", got, tc.want)
				}
				for _, n := range nodes[3:] { // SIGTERM
					n.set(func(m *shard.Member) { m.Draining = true })
				}
				time.Sleep(3 * time.Second)
				for _, n := range nodes[3:] {
					n.set(func(m *shard.Member) { m.State = shard.Left })
					n.stop()
				}
				time.Sleep(10 * time.Second)
				if got, want := leader(t, nodes[:3]...).p.Voters(), []shard.NodeID{"n0", "n1", "n2"}; !slices.Equal(got, want) {
					t.Errorf("after the scaling: voters %v, want %v", got, want)
				}
				touch(t, nodes[0])
				for _, n := range nodes {
					n.stop()
				}
			})
		})
	}
}

// A voter that gossips and answers, but whose raft port is dead, is replaced.
func TestVoterWithADeadRaftPortIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, nodes := fiveNodes(t)
		lead := leader(t, nodes[:3]...)
		victim := without(nodes[:3], lead)[0]
		cut := func(n *node) {
			for _, o := range nodes {
				if o != n {
					c.net.Cut(string(n.name)+":7402", string(o.name)+":7402")
				}
			}
		}
		cut(victim)
		time.Sleep(9 * time.Minute)
		if got := lead.p.Voters(); !slices.Contains(got, victim.name) {
			t.Errorf("after nine minutes: voters %v", got)
		}
		time.Sleep(2 * time.Minute)
		if got := lead.p.Voters(); len(got) != 3 || slices.Contains(got, victim.name) || !slices.Contains(got, "n3") {
			t.Errorf("after eleven minutes: voters %v, want n3 in place of %s", got, victim.name)
		}
		other := without(nodes[:3], victim)
		other = without(other, lead)
		cut(other[0])
		touch(t, lead)
		for _, n := range nodes {
			n.stop()
		}
	})
}

// If a drain is undone while the drained node and its replacement both vote, three
// voters remain.
func TestUndrainedDuringReplacementThreeVote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, nodes := fiveNodes(t)
		for i := range 20 {
			if err := change(nodes[0], shard.Drain{Nodes: []shard.NodeID{"n2"}}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(i) * 20 * time.Millisecond)
			if err := change(nodes[0], shard.Drain{Nodes: []shard.NodeID{"n2"}, Undo: true}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Minute)
			if got, want := leader(t, nodes[:3]...).p.Voters(), []shard.NodeID{"n0", "n1", "n2"}; !slices.Equal(got, want) {
				t.Fatalf("undrained after %d ms: voters %v, want %v", i*20, got, want)
			}
		}
		for _, n := range nodes {
			n.stop()
		}
	})
}

func replicas(m *shard.Map) (out [][]shard.NodeID) {
	for _, s := range m.Shards {
		out = append(out, s.Replicas)
	}
	return out
}

// A leader whose disk hangs gives up, and the others elect.
func TestLeaderWithHangingDiskStepsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, true)
		nodes := []*node{c.add("n1", 3), c.add("n2", 3), c.add("n3", 3)}
		time.Sleep(10 * time.Second)
		c.founded(nodes...)
		lead := leader(t, nodes...)
		lead.disk.Hang()
		time.Sleep(30 * time.Second)
		select {
		case <-lead.done:
			if !errors.Is(lead.err, placement.ErrStuck) {
				t.Errorf("Run: %v", lead.err)
			}
		default:
			t.Error("the leader with a hanging disk still runs")
		}
		rest := without(nodes, lead)
		leader(t, rest...)
		touch(t, rest[0])
		lead.disk.Unhang()
		for _, n := range nodes {
			n.stop()
		}
	})
}

// Of five nodes that all may vote, three do, and all nodes agree on these three.
func TestMoreNodesThanVoters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, true)
		var nodes []*node
		for _, name := range []shard.NodeID{"n5", "n3", "n1", "n4", "n2"} {
			nodes = append(nodes, c.add(name, 3))
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		if got := nodes[2].p.Voters(); !slices.Equal(got, []shard.NodeID{"n1", "n2", "n3"}) {
			t.Errorf("voters %v", got)
		}
		if got := nodes[0].p.Voters(); len(got) > 0 {
			t.Errorf("n5 sees voters %v", got)
		}
		for _, n := range nodes {
			n.stop()
		}
	})
}

// A node whose map file and raft log have different clusters ends with an error that
// names both, and uses neither.
func TestAMapFileOfAnotherClusterThanTheRaftLog(t *testing.T) {
	ours, theirs := newCluster(t, false), newCluster(t, false)
	n, other := ours.add("n1", 1), theirs.add("n1", 1)
	here, there := ours.founded(n), theirs.founded(other)
	n.stop()
	other.stop()
	b, err := os.ReadFile(filepath.Join(other.dir, "shardmap"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.dir, "shardmap"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	n.start()
	<-n.done
	if !errors.Is(n.err, placement.ErrForeign) || !strings.Contains(n.err.Error(), here.ClusterID) || !strings.Contains(n.err.Error(), there.ClusterID) {
		t.Errorf("ended with %v", n.err)
	}
}

// Idle voters write little: each entry wakes all of them, and waits for their disks.
func TestVotersAtRestWriteLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, true)
		nodes := []*node{c.add("n1", 3), c.add("n2", 3), c.add("n3", 3)}
		time.Sleep(30 * time.Second)
		c.founded(nodes...)
		lead, before := leader(t, nodes...), nodes[0].p.RaftIndex()
		time.Sleep(time.Minute)
		if leader(t, nodes...) != lead {
			t.Error("another node leads")
		}
		for _, n := range nodes {
			// At least one: the leader checks whether its disk hangs.
			if wrote := n.p.RaftIndex() - before; wrote < 1 || wrote > 13 {
				t.Errorf("%s has written %d entries in a minute", n.name, wrote)
			}
		}
		for _, n := range nodes {
			n.stop()
		}
	})
}
