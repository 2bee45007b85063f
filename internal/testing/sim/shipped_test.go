package sim_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/control/mapchange"
	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/sim"
)

// shipped is a cluster of eight nodes configured like deploy/k8s: every node may vote, three do.
func shipped(seed uint64) sim.Config { return sim.Config{Seed: seed, Nodes: 8} }

// seeds returns the number of runs from the environment variable SIM_SEEDS, by default few.
func seeds(t *testing.T, few int) int {
	t.Helper()
	text := os.Getenv("SIM_SEEDS")
	if text == "" {
		return few
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("SIM_SEEDS=%q is not a number of runs", text)
	}
	return n
}

// nonVoters returns the nodes that do not vote, once gossip shows the voters.
func nonVoters(t *testing.T, c *sim.Cluster) (names []string) {
	t.Helper()
	c.Await(10*time.Second, "gossip shows three voters", func() bool {
		names = nil
		for _, m := range c.Node("n8").Members() {
			if !m.GetVoter() {
				names = append(names, m.GetName())
			}
		}
		return len(names) == 5
	})
	return names
}

// The shards are split, merged and moved five times a second. Nodes that do not vote also
// have shards and serve watches: no watch waits for a node to learn the map. SIM_SEEDS sets
// the number of runs.
func TestWatchesContinueWhileTheMapOfEightNodesChanges(t *testing.T) {
	var longest []time.Duration
	first := testseed.Of(t)
	for i := range seeds(t, 2) {
		s := first + uint64(i)
		run(t, shipped(s), func(t *testing.T, c *sim.Cluster) {
			r := c.Rand()
			var ws []*sim.Watcher
			for i := range 8 {
				cl := c.Client(fmt.Sprintf("client%d", i))
				ws = append(ws, c.WatchBy(cl, sim.WatchRequest{Range: kv.Range{}}), c.WatchBy(cl, sim.WatchRequest{Range: anyRange(r)}))
			}
			for _, w := range ws {
				w.AwaitStart()
			}
			l := startLoad(c, s)
			p := measure(c)
			made := changeMap(t, c, r, 20*time.Second)
			l.end()
			pause, who := p.end()
			t.Logf("%d map changes, longest pause %v: %s", made, pause, who)
			if made < 10 {
				t.Errorf("only %d map changes", made)
			}
			longest = append(longest, pause)
			c.Settle(10 * time.Second)
			if n := units(ws); n > 0 {
				t.Errorf("%d watches had to reload the state", n)
			}
			c.AwaitReady()
		})
	}
	if len(longest) == 0 {
		return
	}
	slices.Sort(longest)
	p99 := longest[(len(longest)*99+99)/100-1]
	t.Logf("longest pause of %d runs: median %v, p99 %v", len(longest), longest[len(longest)/2], p99)
	if p99 > 300*time.Millisecond {
		t.Errorf("the longest pause of a run is %v at the 99th percentile, want 300ms at most", p99)
	}
}

// The node that receives an order carries it out, voter or not, even if the map has just changed.
func TestAChangeRequestedFromANodeThatDoesNotVote(t *testing.T) {
	run(t, shipped(1), func(t *testing.T, c *sim.Cluster) {
		several(c)
		for i, name := range nonVoters(t, c) {
			changeMap(t, c, c.Rand(), 2*time.Second)
			m := c.Map()
			last := m.Shards[len(m.Shards)-1]
			began := time.Now()
			err := c.Node(name).ChangeMap(context.Background(), mapchange.Order{
				ID: fmt.Sprint("order ", i), Request: mapchange.Split{Shard: last.ID, At: []string{last.Range.Start + string(rune('a'+i))}},
			}, func(*mapchange.Plan) error { return errAgreed }, nil)
			if took := time.Since(began); !errors.Is(err, errAgreed) || took > time.Second {
				t.Errorf("an order sent to %s returned after %v: %v", name, took, err)
			}
		}
	})
}

var errAgreed = errors.New("the voters have agreed")
