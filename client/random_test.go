package client_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/clienttest"
	"github.com/shardwatch/shardwatch/client/mirror"
	"github.com/shardwatch/shardwatch/internal/files/testseed"
)

// Random writes, random faults, and watchers of all kinds: all guarantees are checked
// against the history.
func TestRandomFaults(t *testing.T) {
	rng := testseed.Rand(t)
	rounds := 120
	if testing.Short() {
		rounds = 30
	}
	cluster := start(t, clienttest.Config{FragmentEvents: 2, ChunkKeys: 3, Cuts: []string{"/k3", "/k6"}, Replicas: 2})
	silent := func(c *client.Config) { c.Silence = 400 * time.Millisecond }
	clients := []*client.Client{connect(t, cluster, silent), connect(t, cluster, silent)}
	ctx, stop := context.WithTimeout(t.Context(), 4*patience) // some 2,000 resumes, under the race detector
	defer stop()

	write := func() int64 {
		var ops []clienttest.Op
		for range 1 + rng.IntN(6) {
			op := clienttest.Op{Key: fmt.Sprintf("/k%d/%d", rng.IntN(10), rng.IntN(5)), Value: fmt.Sprint(rng.IntN(1000)), Delete: rng.IntN(4) == 0}
			dup := false // etcd refuses a duplicate key in a transaction
			for _, o := range ops {
				dup = dup || o.Key == op.Key
			}
			if !dup {
				ops = append(ops, op)
			}
		}
		return cluster.Txn(ops...)
	}
	for range 20 {
		write()
	}

	type follower struct {
		seen
		w       *client.Watcher
		from    int64
		prev    bool
		goal    chan int64
		updates chan error
	}
	var followers []*follower
	var wg sync.WaitGroup
	watch := func(c *client.Client, r client.Range) {
		f := &follower{seen: seen{rng: r}, goal: make(chan int64, 1), updates: make(chan error, 1)}
		var opts []client.WatchOption
		switch rng.IntN(3) {
		case 0:
			opts = append(opts, client.WithState())
		case 1:
			f.from = 1 + rng.Int64N(cluster.Revision())
			opts = append(opts, client.FromRevision(f.from+1))
		default:
			f.from = cluster.Revision()
			opts = append(opts, client.FromRevision(f.from+1))
		}
		if f.prev = rng.IntN(2) == 0; f.prev {
			opts = append(opts, client.WithPrevKV())
		}
		opts = append(opts, client.WithProgress())
		lazy := rng.IntN(3) == 0
		if lazy {
			opts = append(opts, client.WithBuffer(5000))
		}
		f.w = c.Watch(ctx, r, opts...)
		pause := time.Duration(rng.IntN(5)) * time.Millisecond
		followers = append(followers, f)
		wg.Go(func() {
			goal := int64(1 << 60)
			for f.revision < goal {
				one, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
				u, err := f.w.Next(one)
				cancel()
				if err == nil {
					err = f.add(u)
				} else if one.Err() != nil && ctx.Err() == nil {
					err = nil
				}
				if err != nil {
					f.updates <- fmt.Errorf("watch %v at %d of %d: %w (%+v)", f.rng, f.revision, goal, err, f.w.Stats())
					return
				}
				select {
				case goal = <-f.goal:
				default:
				}
				if lazy && goal == 1<<60 {
					time.Sleep(pause) // a slow consumer, not a synchronization
				}
			}
			f.updates <- nil
		})
	}
	someRange := func() client.Range {
		switch rng.IntN(4) {
		case 0:
			return client.Range{}
		case 1:
			return client.Key(fmt.Sprintf("/k%d/%d", rng.IntN(10), rng.IntN(5)))
		case 2:
			return client.Prefix(fmt.Sprintf("/k%d/", rng.IntN(10)))
		default:
			return client.Between(fmt.Sprintf("/k%d", rng.IntN(5)), fmt.Sprintf("/k%d", 5+rng.IntN(5)))
		}
	}
	for range 30 {
		watch(clients[rng.IntN(2)], someRange())
	}
	local := mirror.New(ctx, clients[0], client.Range{})

	nodes := cluster.Nodes()
	down := map[int]bool{}
	for range rounds {
		for range rng.IntN(20) {
			write()
		}
		i := rng.IntN(len(nodes))
		n := nodes[i]
		switch rng.IntN(8) {
		case 0:
			if len(down) == 0 || down[i] {
				n.Kill()
				down[i] = true
			}
		case 1:
			if len(down) == 0 || down[i] {
				n.Stall()
				down[i] = true
			}
		case 2:
			if len(down) == 0 {
				n.Drain()
				down[i] = true
			}
		case 3, 4:
			n.CutAfter(1 + rng.Int64N(8))
		case 5:
			n.Hold(cluster.Revision() - rng.Int64N(5))
		case 6:
			watch(clients[rng.IntN(2)], someRange())
		default:
		}
		if len(down) > 0 && rng.IntN(3) == 0 {
			for i := range down {
				nodes[i].Kill()
				if err := nodes[i].Restart(); err != nil {
					t.Fatal(err)
				}
				delete(down, i)
			}
		}
		if rng.IntN(4) == 0 {
			n.Hold(0)
		}
		time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond) // the pace of the faults, not a synchronization
	}
	for i, n := range nodes {
		n.Continue()
		n.Hold(0)
		n.CutAfter(0)
		if down[i] {
			n.Kill()
			if err := n.Restart(); err != nil {
				t.Fatal(err)
			}
		}
	}
	end := cluster.Put("/k5/0", "the end")
	for _, f := range followers {
		f.goal <- end
	}
	wg.Wait()
	history := cluster.History()
	resumes := 0
	for _, f := range followers {
		if err := <-f.updates; err != nil {
			t.Fatal(err)
		}
		if err := f.check(history, f.from, f.prev); err != nil {
			t.Errorf("watch %v from %d: %v", f.rng, f.from, err)
		}
		resumes += f.w.Stats().Resumes
	}
	t.Logf("%d watchers, %d revisions, %d resumes", len(followers), end, resumes)
	if err := local.WaitFor(ctx, cluster.At(end)); err != nil {
		t.Fatal(err)
	}
	checkView(t, cluster, local.View(), client.Range{})
}

// checkView compares a view with the history at the view's revision.
func checkView(t testing.TB, cluster *clienttest.Cluster, v mirror.View, r client.Range) {
	t.Helper()
	u := client.Update{Kind: client.KindState, Revision: v.Revision()}
	for kv := range v.All() {
		u.KVs = append(u.KVs, kv)
	}
	s := seen{rng: r, state: &u, revision: v.Revision()}
	if err := s.check(cluster.History(), 0, false); err != nil {
		t.Error(err)
	}
}
