package main

import (
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// cluster is a shard map, its members, and the state of its raft leader.
type cluster struct {
	config
	m       *shard.Map
	members []shard.Member
	rules   planner.Rules
	history planner.Observations
	now     time.Time
	could   map[shard.NodeID]bool // nodes that could have shards when the map last settled
}

// found creates a cluster whose copies are already at their target nodes.
func found(c config) (*cluster, error) {
	cl := &cluster{config: c, now: time.Unix(1_800_000_000, 0), rules: planner.DefaultRules()}
	cl.rules.MaxFills, cl.rules.MaxNodeFills, cl.rules.Planner = c.maxMoves, c.maxNodeMoves, new(planner.Planner)
	for range c.nodes {
		cl.join()
	}
	cl.now = cl.now.Add(time.Hour)
	var cuts []string
	for i := 1; i < c.shards; i++ {
		cuts = append(cuts, fmt.Sprintf("/registry/pods/namespace-%06d/", i))
	}
	f, err := planner.Place(shard.Found{
		ClusterID: "scale", EtcdClusterID: 1, Cuts: cuts,
		Spec: shard.Spec{Ranges: []kv.Range{{}}, Shards: c.shards, Replicas: c.replicas},
	}, cl.members)
	if err != nil {
		return nil, err
	}
	cl.could = cl.can()
	cl.m, err = shard.Apply(nil, shard.Command{Change: f})
	return cl, err
}

// join adds a node in the next zone.
func (c *cluster) join() shard.NodeID {
	i := len(c.members)
	n := shard.Member{
		Name: shard.NodeID(fmt.Sprintf("shardwatch-%04d", i)), Zone: fmt.Sprintf("zone-%d", i%c.zones), Level: shard.Level,
		State: shard.Alive, Since: c.now,
	}
	c.members = append(c.members, n)
	return n.Name
}

// set changes the gossip state of a node.
func (c *cluster) set(i int, state shard.State, draining bool) {
	c.members[i].State, c.members[i].Draining, c.members[i].Since = state, draining, c.now
}

// effect is the result of a change.
type effect struct {
	worst    time.Duration // CPU time of the longest plan
	commands int           // changes of the map
	copies   int           // replicas that had to be loaded
	fewest   int           // the minimum for any planner
	lasted   time.Duration // under the bounds on moves
}

// settle lets the leader decide until no decisions remain.
func (c *cluster) settle() (effect, error) {
	e := effect{fewest: c.fewest()}
	began := c.now
	for {
		start := cpu()
		d := c.rules.Decide(c.m, c.members, c.history, c.now)
		e.worst = max(e.worst, cpu()-start)
		if len(d.Moves) == 0 {
			if d.Again.IsZero() {
				break
			}
			c.now = d.Again
			continue
		}
		i := 0
		for _, mv := range d.Moves { // in the order of the map
			for c.m.Shards[i].ID != mv.Shard {
				i++
			}
			e.copies += missing(mv.Replicas, c.m.Shards[i].Replicas)
		}
		next, err := shard.Apply(c.m, shard.Command{IfVersion: c.m.Version, Change: shard.Assign{Moves: d.Moves}})
		if err != nil {
			return e, err
		}
		c.history = c.history.Record(c.m, d, c.members, c.now)
		c.m = next
		e.commands++
	}
	c.could = c.can()
	e.lasted = c.now.Sub(began)
	return e, nil
}

// can returns the nodes that can have shards.
func (c *cluster) can() map[shard.NodeID]bool {
	can := make(map[shard.NodeID]bool)
	for _, m := range c.members {
		if m.State == shard.Alive && !m.Draining {
			can[m.Name] = true
		}
	}
	return can
}

// fewest returns the minimum number of replicas that any planner must load: the replicas of nodes
// that can no longer have shards, or an even share for each new node.
func (c *cluster) fewest() int {
	can, lost, come := c.can(), 0, 0
	for i := range c.m.Shards {
		for _, n := range c.m.Shards[i].Replicas {
			if !can[n] {
				lost++
			}
		}
	}
	for n := range can {
		if !c.could[n] {
			come++
		}
	}
	return max(lost, come*len(c.m.Shards)*min(c.replicas, len(can))/len(can))
}

// missing returns how many of nodes are not in others.
func missing(nodes, others []shard.NodeID) (n int) {
	for _, node := range nodes {
		if !slices.Contains(others, node) {
			n++
		}
	}
	return n
}

// skew returns the greatest share of any node relative to the mean.
func (c *cluster) skew(share func(s *shard.Shard, add func(n shard.NodeID, x float64))) float64 {
	of, sum := make(map[shard.NodeID]float64), 0.0
	for i := range c.m.Shards {
		share(&c.m.Shards[i], func(n shard.NodeID, x float64) {
			of[n] += x
			sum += x
		})
	}
	most, live := 0.0, 0
	for _, m := range c.members {
		if m.State == shard.Alive && !m.Draining {
			most = max(most, of[m.Name])
			live++
		}
	}
	return most / (sum / float64(live))
}

func (c *cluster) replicaSkew() float64 {
	return c.skew(func(s *shard.Shard, add func(shard.NodeID, float64)) {
		for _, n := range s.Replicas {
			add(n, 1)
		}
	})
}

func (c *cluster) ownerSkew() float64 {
	return c.skew(func(s *shard.Shard, add func(shard.NodeID, float64)) { add(s.Owner(), 1) })
}

// watchSkew spreads the watches of each shard evenly over its replicas, like clients that choose
// one at random.
func (c *cluster) watchSkew(watches map[shard.ID]float64) float64 {
	return c.skew(func(s *shard.Shard, add func(shard.NodeID, float64)) {
		for _, n := range s.Replicas {
			add(n, watches[s.ID]/float64(len(s.Replicas)))
		}
	})
}

// cpu returns the CPU time of this process so far: other processes on the machine do not count.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // cannot fail with these arguments
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
