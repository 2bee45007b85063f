package sim_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/node"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/check"
	"github.com/shardwatch/shardwatch/internal/testing/sim"
	"github.com/shardwatch/shardwatch/internal/testing/sim/memetcd"
)

// mapChange returns a random split, merge or move, or nil if it drew an impossible one.
// Like the leader, it gives nothing to a node that is still loading its replica.
func mapChange(c *sim.Cluster, m *shard.Map, r *rand.Rand) shard.Change {
	loads := func(s *shard.Shard, n shard.NodeID) bool { return c.Node(string(n)).Replica(s.ID) == nil }
	i := r.IntN(len(m.Shards))
	s := &m.Shards[i]
	switch {
	case r.IntN(3) == 0:
		if loads(s, s.Replicas[1%len(s.Replicas)]) {
			return nil
		}
		return shard.Assign{Moves: []shard.Move{{Shard: s.ID, Replicas: append(slices.Clone(s.Replicas[1:]), s.Replicas[0])}}}
	case r.IntN(2) == 0 && len(m.Shards) > 8 && i+1 < len(m.Shards):
		next := &m.Shards[i+1]
		both := slices.DeleteFunc(slices.Clone(s.Replicas), func(n shard.NodeID) bool {
			return !slices.Contains(next.Replicas, n) || loads(s, n) || loads(next, n)
		})
		if len(both) == 0 {
			return nil
		}
		return shard.Merge{Shards: []shard.ID{s.ID, next.ID}, Replicas: both}
	case len(m.Shards) < 16:
		key := anyKey(r)
		if at, ok := m.Find(key); ok && key > at.Range.Start {
			return shard.Split{Shard: at.ID, At: []string{key}}
		}
	}
	return nil
}

// changeMap changes the map five times a second, and returns the number of changes.
func changeMap(t *testing.T, c *sim.Cluster, r *rand.Rand, d time.Duration) (made int) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		leader := c.Leader()
		if leader == "" {
			continue
		}
		m := c.Map()
		change := mapChange(c, m, r)
		if change == nil {
			continue
		}
		b, err := shard.EncodeCommand(shard.Command{RequestID: uuid.NewString(), IfVersion: m.Version, Change: change})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Node(leader).Propose(context.Background(), b); err == nil {
			made++
		}
	}
	return made
}

// pauses measures the longest time during which some watcher lacked events.
type pauses struct {
	stop    chan struct{}
	done    chan struct{}
	longest time.Duration
	who     string
}

func measure(c *sim.Cluster) *pauses {
	p := &pauses{stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		for since := time.Now(); ; {
			select {
			case <-p.stop:
				return
			case <-time.After(2 * time.Millisecond):
			}
			who := c.Behind()
			if who == "" {
				since = time.Now()
			} else if d := time.Since(since); d > p.longest {
				p.longest, p.who = d, who
			}
		}
	}()
	return p
}

func (p *pauses) end() (time.Duration, string) {
	close(p.stop)
	<-p.done
	return p.longest, p.who
}

// units returns the number of states and deltas that were sent to watchers with a position.
func units(ws []*sim.Watcher) (n int) {
	for _, w := range ws {
		for i, op := range w.Seen().Ops {
			if op.Kind == check.OpDelta || op.Kind == check.OpState && i > 0 {
				n++
			}
		}
	}
	return n
}

// Shards are split, merged and moved five times a second, on nodes that do not have all of them.
// Watches pause and continue; no client gets the state again, and etcd does not have to send it.
func TestMapChangesUnderLoad(t *testing.T) {
	d := 20 * time.Second
	if testing.Short() {
		d = 5 * time.Second
	}
	s := testseed.Of(t)
	run(t, sim.Config{Seed: s, Nodes: 5}, func(t *testing.T, c *sim.Cluster) {
		r := c.Rand()
		var ws []*sim.Watcher
		for i := range 8 {
			cl := c.Client(fmt.Sprintf("client%d", i))
			ws = append(ws,
				c.WatchBy(cl, sim.WatchRequest{Range: kv.Range{}}),
				c.WatchBy(cl, sim.WatchRequest{Range: anyRange(r), Prev: true}),
			)
		}
		for _, w := range ws {
			w.AwaitStart()
		}
		l := startLoad(c, s)
		p := measure(c)
		made := changeMap(t, c, r, d)
		l.end()
		longest, who := p.end()
		t.Logf("%d map changes, at most %v without new events: %s", made, longest, who)
		if made < 10 {
			t.Errorf("only %d map changes", made)
		}
		// 0.06 s in most runs, and at most 0.15 s in eighty: etcd needs 0.1 s for a watch
		// that begins in the past. A node that waits for events that do not come would take
		// a second longer.
		if longest > 400*time.Millisecond {
			t.Errorf("a pause of %v: %s", longest, who)
		}
		c.Settle(10 * time.Second)
		if n := units(ws); n > 0 {
			t.Errorf("%d watches had to reload the state", n)
		}
		c.AwaitReady()
	})
}

// Shards are split, merged and moved while nodes are killed and restarted, and while etcd
// compacts. No guarantee is broken, whichever of them coincide.
func TestMapChangesWhileNodesDie(t *testing.T) {
	rounds := 6
	if testing.Short() {
		rounds = 2
	}
	s := testseed.Of(t)
	run(t, sim.Config{Seed: s, Nodes: 5}, func(t *testing.T, c *sim.Cluster) {
		r := c.Rand()
		clients := []*client.Client{c.Client("client1"), c.Client("client2")}
		l := startLoad(c, s)
		for range 8 {
			l.watch(clients[r.IntN(2)], r)
		}
		for range rounds {
			changeMap(t, c, r, 2*time.Second)
			victim := c.Names()[r.IntN(5)]
			c.Note("kill %s", victim)
			c.Kill(victim)
			_ = c.Etcd.Compact(c.RevisionAt(time.Now().Add(-time.Duration(r.IntN(10)) * time.Second)))
			changeMap(t, c, r, time.Duration(1+r.IntN(8))*time.Second)
			l.watch(clients[r.IntN(2)], r)
			c.Restart(victim)
			changeMap(t, c, r, 2*time.Second)
		}
		l.end()
		c.AwaitReady()
	})
}

// Two of five nodes leave permanently, one by a drain and one by a kill; they return as new
// nodes, and leave again.
func TestScaleUnderLoad(t *testing.T) {
	s := testseed.Of(t)
	run(t, sim.Config{Seed: s, Nodes: 5}, func(t *testing.T, c *sim.Cluster) {
		r := c.Rand()
		var ws []*sim.Watcher
		for i := range 4 {
			cl := c.Client(fmt.Sprintf("client%d", i))
			ws = append(ws, c.WatchBy(cl, sim.WatchRequest{Range: kv.Range{}}), c.WatchBy(cl, sim.WatchRequest{Range: anyRange(r)}))
		}
		for _, w := range ws {
			w.AwaitStart()
		}
		l := startLoad(c, s)
		p := measure(c)
		have := func(name string) bool {
			return slices.ContainsFunc(c.Map().Shards, func(s shard.Shard) bool { return slices.Contains(s.Replicas, shard.NodeID(name)) })
		}
		for turn, two := range [][]string{{"n4", "n5"}, {"n5", "n4"}} {
			c.Stop(two[0])
			c.Kill(two[1])
			c.Await(time.Minute, "their shards are elsewhere", func() bool { return !have(two[0]) && !have(two[1]) })
			if turn > 0 {
				break
			}
			for _, n := range two {
				c.Wipe(n)
				c.Restart(n)
			}
			c.Await(time.Minute, "they have shards again", func() bool { return have(two[0]) && have(two[1]) })
			time.Sleep(15 * time.Second)
		}
		l.end()
		longest, who := p.end()
		t.Logf("at most %v without new events: %s", longest, who)
		if longest > 2*time.Second {
			t.Errorf("a pause of %v: %s", longest, who)
		}
		c.Settle(10 * time.Second)
		if n := units(ws); n > 0 {
			t.Errorf("%d watches had to reload the state", n)
		}
	})
}

// Under load, a shard with many writes is split, a shard with many watches gets another replica, and
// more nodes own shards. After the load, all of this is undone. Nothing else changes.
func TestLoadChangesTheMap(t *testing.T) {
	tune := func(cfg *node.Config) {
		cfg.Balance = planner.Balance{
			Split: true, SplitEvents: 25, MaxShards: 16, Merge: true, Owners: true, ReplicaWatches: 4, MaxExtraReplicas: 1,
			Patience: 10 * time.Second, MergePatience: 10 * time.Second, MinAge: 20 * time.Second,
		}
	}
	run(t, sim.Config{Nodes: 5, Tune: tune}, func(t *testing.T, c *sim.Cluster) {
		w := c.Watch("/")
		first := c.Map()
		// Two shards together have more than a quarter of the limit.
		write := func(stop chan struct{}, txn func(n int) []memetcd.Op) {
			for n := 0; ; n++ {
				select {
				case <-time.After(200 * time.Millisecond):
				case <-stop:
					return
				}
				if _, err := c.Etcd.Txn(txn(n)...); err != nil {
					t.Error(err)
				}
			}
		}
		var writers sync.WaitGroup
		always, hot := make(chan struct{}), make(chan struct{})
		writers.Go(func() {
			write(always, func(n int) (ops []memetcd.Op) {
				for d := range 8 {
					ops = append(ops, memetcd.OpPut(fmt.Sprintf("/d%d/k%d", d, n%8), fmt.Sprint(n)))
				}
				return ops
			})
		})
		writers.Go(func() {
			write(hot, func(n int) (ops []memetcd.Op) {
				for k := range 7 {
					ops = append(ops, memetcd.OpPut(fmt.Sprintf("/d3/k%d", (k+n)%8), fmt.Sprint(n)))
				}
				return ops
			})
		})
		ctx, leave := context.WithCancel(context.Background())
		cl := c.Client("crowd")
		for range 14 {
			writers.Go(func() {
				cw := cl.Watch(ctx, client.Prefix("/d5/"))
				defer cw.Close()
				for {
					if _, err := cw.Next(ctx); err != nil {
						return
					}
				}
			})
		}
		copies := func() int { return len(c.Shard("/d5/k0").Replicas) }
		c.Await(2*time.Minute, "a split and another replica", func() bool { return len(c.Map().Shards) == 9 && copies() == 4 })
		c.Await(2*time.Minute, "an owner for every 25 of 75 events", func() bool { return c.Map().Spec.Owners == 3 && owners(c.Map()) == 3 })
		time.Sleep(40 * time.Second)
		if m := c.Map(); m.NextID != first.NextID+2 || len(m.Shards) != 9 || copies() != 4 {
			t.Errorf("the map does not settle: %d shards, up to ID %d, %d replicas", len(m.Shards), m.NextID-1, copies())
		}
		if c.Shard("/d3/k0").ID == c.Shard("/d3/k7").ID {
			t.Error("a shard other than the hot one was split")
		}
		close(hot)
		leave()
		c.Await(2*time.Minute, "a merge and a replica less", func() bool { return len(c.Map().Shards) == 8 && copies() == 3 })
		time.Sleep(40 * time.Second)
		if m := c.Map(); m.NextID != first.NextID+3 || len(m.Shards) != 8 || copies() != 3 {
			t.Errorf("the map does not settle: %d shards, up to ID %d, %d replicas", len(m.Shards), m.NextID-1, copies())
		}
		close(always)
		writers.Wait()
		c.Await(2*time.Minute, "as few owners as before", func() bool { return c.Map().Spec.Owners == owners(c.Map()) && owners(c.Map()) <= owners(first) })
		c.Settle(10 * time.Second)
		if n := units([]*sim.Watcher{w}); n > 0 {
			t.Error("the watch had to reload the state")
		}
	})
}

// owners returns the number of nodes that own shards.
func owners(m *shard.Map) int {
	all := make(map[shard.NodeID]bool)
	for i := range m.Shards {
		all[m.Shards[i].Owner()] = true
	}
	return len(all)
}
