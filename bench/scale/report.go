package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// change is a change of a cluster.
type change struct {
	name string
	do   func(c *cluster)
}

// changes returns the changes, which are made in sequence.
func changes(c config) []change {
	tenth, zone := c.nodes/10, func(do func(c *cluster, i int)) func(*cluster) {
		return func(cl *cluster) {
			for i := 0; i < len(cl.members); i += c.zones {
				do(cl, i)
			}
		}
	}
	return []change{
		{"a node joins", func(cl *cluster) { cl.join() }},
		{"a node dies", func(cl *cluster) { cl.set(1, shard.Dead, false) }},
		{"it is back", func(cl *cluster) { cl.set(1, shard.Alive, false) }},
		{"a node is drained", func(cl *cluster) { cl.set(2, shard.Alive, true) }},
		{"it takes part again", func(cl *cluster) { cl.set(2, shard.Alive, false) }},
		{fmt.Sprintf("%d nodes join", tenth), func(cl *cluster) {
			for range tenth {
				cl.join()
			}
		}},
		{fmt.Sprintf("%d nodes are drained", tenth), func(cl *cluster) {
			for i := range tenth {
				cl.set(len(cl.members)-1-i, shard.Alive, true)
			}
		}},
		{"and leave", func(cl *cluster) {
			for i := range tenth {
				cl.set(len(cl.members)-1-i, shard.Left, true)
			}
		}},
		{"a zone is lost", zone(func(cl *cluster, i int) {
			if cl.members[i].State == shard.Alive {
				cl.set(i, shard.Dead, false)
			}
		})},
		{"the zone is back", zone(func(cl *cluster, i int) {
			if cl.members[i].State == shard.Dead {
				cl.set(i, shard.Alive, false)
			}
		})},
	}
}

// report prints the tables.
func report(c config, out io.Writer) error {
	fmt.Fprintf(out, "%d nodes in %d zones, %d shards, %d replicas of each, %d watches. CPU time, one core.\n\n", c.nodes, c.zones, c.shards, c.replicas, c.watches)
	cl, err := found(c)
	if err != nil {
		return err
	}
	start := cpu()
	new(planner.Planner).Plan(cl.m, cl.members)
	fresh := cpu() - start
	start = cpu()
	cl.rules.Decide(cl.m, cl.members, cl.history, cl.now)
	worst := max(fresh, cpu()-start)

	fmt.Fprintln(out, "| change | longest plan | replicas copied | lost, or an even share | map commands | takes | replicas max/mean | owners max/mean |")
	fmt.Fprintln(out, "|---|---:|---:|---:|---:|---:|---:|---:|")
	fmt.Fprintf(out, "| a new leader | %s | 0 | 0 | 0 | 0s | %.2f | %.2f |\n", ms(fresh), cl.replicaSkew(), cl.ownerSkew())
	for _, ch := range changes(c) {
		cl.now = cl.now.Add(time.Hour)
		ch.do(cl)
		e, err := cl.settle()
		if err != nil {
			return fmt.Errorf("%s: %w", ch.name, err)
		}
		worst = max(worst, e.worst)
		fmt.Fprintf(out, "| %s | %s | %d | %d | %d | %s | %.2f | %.2f |\n",
			ch.name, ms(e.worst), e.copies, e.fewest, e.commands, e.lasted.Round(time.Second), cl.replicaSkew(), cl.ownerSkew())
	}
	if err := reportRestart(cl, out); err != nil {
		return err
	}
	if err := reportWatches(c, out); err != nil {
		return err
	}
	if err := reportSize(cl, out); err != nil {
		return err
	}
	if c.most > 0 && worst > c.most {
		return fmt.Errorf("a plan took %s, more than --most %s", worst, c.most)
	}
	return nil
}

// reportRestart restarts some nodes in sequence: each drains, leaves, and returns a moment later.
func reportRestart(cl *cluster, out io.Writer) error {
	const restarted = 3
	cl.now = cl.now.Add(time.Hour)
	began := cl.now
	var sum effect
	for i := range min(restarted, cl.nodes/2) {
		for _, step := range []func(){
			func() { cl.set(3+i, shard.Alive, true) },
			func() { cl.set(3+i, shard.Left, true) },
			func() { cl.now = cl.now.Add(5 * time.Second); cl.set(3+i, shard.Alive, false) },
		} {
			step()
			e, err := cl.settle()
			if err != nil {
				return fmt.Errorf("restart: %w", err)
			}
			sum.worst, sum.copies, sum.commands = max(sum.worst, e.worst), sum.copies+e.copies, sum.commands+e.commands
		}
	}
	n := min(restarted, cl.nodes/2)
	_, err := fmt.Fprintf(out, "\nA rolling restart, per node: %d replicas copied, %.1f map commands, %s; longest plan %s.\n",
		sum.copies/n, float64(sum.commands)/float64(n), (cl.now.Sub(began) / time.Duration(n)).Round(time.Second), ms(sum.worst))
	return err
}

// reportWatches spreads the watches over the shards, evenly and by a typical distribution, and lets
// the load change the map for a while.
func reportWatches(c config, out io.Writer) error {
	cl, err := found(c)
	if err != nil {
		return err
	}
	even, uneven := make(map[shard.ID]float64), make(map[shard.ID]float64)
	rng, sum := rand.New(rand.NewPCG(c.seed, 0)), 0.0
	for rank, i := range rng.Perm(len(cl.m.Shards)) {
		even[cl.m.Shards[i].ID] = float64(c.watches) / float64(len(cl.m.Shards))
		uneven[cl.m.Shards[i].ID] = 1 / float64(rank+1)
		sum += 1 / float64(rank+1)
	}
	hottest := 0.0
	for id := range uneven {
		uneven[id] *= float64(c.watches) / sum
		hottest = max(hottest, uneven[id])
	}
	fmt.Fprintf(out, "\nWatches, max/mean of nodes: %.2f when all shards have the same; %.2f when they are spread by Zipf's law (%.0f in one shard).\n",
		cl.watchSkew(even), cl.watchSkew(uneven), hottest)

	b := planner.DefaultBalance()
	b.MaxShards = 2 * c.shards
	var t planner.Trend
	const balanced = 20 * time.Minute
	splits, homes, longest := 0, 0, time.Duration(0)
	for end := cl.now.Add(balanced); cl.now.Before(end); cl.now = cl.now.Add(10 * time.Second) {
		loads := make(map[shard.ID]planner.Load, len(cl.m.Shards))
		for i := range cl.m.Shards {
			loads[cl.m.Shards[i].ID] = planner.Load{Watches: int(uneven[cl.m.Shards[i].ID])}
		}
		var a planner.Action
		start := cpu()
		a, t = b.Decide(cl.m, loads, t, cl.now)
		longest = max(longest, cpu()-start)
		if len(a.Homes) > 0 {
			if err := cl.apply(shard.Rehome{Homes: a.Homes}); err != nil {
				return err
			}
			homes += len(a.Homes)
		}
		for _, c := range a.Splits {
			id := c.Shard
			s, _ := cl.m.Shard(id)
			if err := cl.apply(shard.Split{Shard: id, At: []string{inside(s.Range)}, Stay: true, Watches: c.Watches}); err != nil {
				return err
			}
			for child := cl.m.NextID - 2; child < cl.m.NextID; child++ {
				uneven[child] = uneven[id] / 2
			}
			splits++
		}
	}
	if _, err := cl.settle(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "After 20 minutes of splits and extra replicas for the latter: %.2f, with %d splits and %d changes of replicas; a look at the load took at most %s.\n",
		cl.watchSkew(uneven), splits, homes, ms(longest))
	return err
}

// inside returns a key at which a range can be cut.
func inside(r kv.Range) string {
	for _, letter := range "mgdba" {
		if at := r.Start + string(letter) + "/"; r.Contains(at) {
			return at
		}
	}
	return r.Start + "\x00"
}

func (c *cluster) apply(ch shard.Change) error {
	next, err := shard.Apply(c.m, shard.Command{IfVersion: c.m.Version, Change: ch})
	if err != nil {
		return err
	}
	c.m = next
	return nil
}

// reportSize reports the size of the map.
func reportSize(cl *cluster, out io.Writer) error {
	start := cpu()
	b, err := shard.EncodeMap(cl.m)
	if err != nil {
		return err
	}
	encoding := cpu() - start
	before := heap()
	start = cpu()
	m, err := shard.DecodeMap(b)
	if err != nil {
		return err
	}
	decoding := cpu() - start
	memory := heap() - before
	start = cpu()
	next, err := shard.Apply(m, shard.Command{IfVersion: m.Version, Change: shard.Assign{Moves: []shard.Move{{Shard: m.Shards[0].ID, Replicas: m.Shards[1].Replicas}}}})
	if err != nil {
		return err
	}
	applying := cpu() - start
	applied := heap() - before - memory
	_, err = fmt.Fprintf(out, "\nThe map: %.1f MB encoded (%d bytes a shard; %s to encode, %s to decode), %.1f MB in memory, %.1f MB more for the next version, %s to apply a change.\n",
		float64(len(b))/1e6, len(b)/len(cl.m.Shards), ms(encoding), ms(decoding), float64(memory)/1e6, float64(applied)/1e6, ms(applying))
	runtime.KeepAlive([]any{cl, b, m, next})
	return err
}

// heap returns the size of the live heap in bytes.
func heap() int64 {
	var s runtime.MemStats
	runtime.GC()
	runtime.GC() // collect also objects that the first run finalized
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

func ms(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }
