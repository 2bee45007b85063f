package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/nodetest"
)

// following is watches of all keys through one node, by both APIs.
type following struct {
	node            string
	started         atomic.Int64
	native, etcd    atomic.Int64 // the revision of each
	nativeEvents    atomic.Int64
	etcdEvents      atomic.Int64
	longestOfNative atomic.Int64 // time without an update, in ns
}

// follow watches through a node until ctx ends. It returns the error of a watch that ended earlier.
func (f *following) follow(ctx context.Context, endpoint, prefix string) error {
	native, err := client.New(client.Config{Endpoints: []string{endpoint}, Silence: 20 * time.Second}) // it stays on this node
	if err != nil {
		return err
	}
	defer native.Close()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: time.Minute})
	if err != nil {
		return err
	}
	defer etcd.Close()
	var both sync.WaitGroup
	defer both.Wait()
	errs := make(chan error, 2)
	both.Go(func() {
		w := native.Watch(ctx, client.Prefix(prefix))
		<-w.Started()
		f.started.Add(1)
		last := time.Now()
		for u, err := range w.Updates() {
			switch {
			case ctx.Err() != nil:
				errs <- nil
				return
			case err != nil:
				errs <- fmt.Errorf("the native watch at %s: %w", f.node, err)
				return
			case u.Kind != client.KindBatch && u.Kind != client.KindProgress:
				errs <- fmt.Errorf("the native watch at %s was sent a %v", f.node, u.Kind)
				return
			}
			f.longestOfNative.Store(max(f.longestOfNative.Load(), int64(time.Since(last))))
			last = time.Now()
			f.nativeEvents.Add(int64(len(u.Events)))
			f.native.Store(u.Revision)
		}
		errs <- nil
	})
	both.Go(func() {
		for r := range etcd.Watch(clientv3.WithRequireLeader(ctx), prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify()) {
			if err := r.Err(); err != nil && ctx.Err() == nil {
				errs <- fmt.Errorf("the etcd watch at %s: %w", f.node, err)
				return
			}
			if r.Created {
				f.started.Add(1)
			}
			f.etcdEvents.Add(int64(len(r.Events)))
			f.etcd.Store(r.Header.Revision)
		}
		errs <- nil
	})
	return errors.Join(<-errs, <-errs)
}

// Eight nodes run with deploy/k8s' settings, so five of them do not vote, while the shard map
// changes five times a second. No watch of any node is cancelled or loses an event, and shard map
// changes requested from nodes that do not vote succeed although the map has changed meanwhile:
// cachectl exits with 0.
func TestChangesAndWatchesAtNodesThatDoNotVoteWhileTheMapChanges(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs eight nodes")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	e := etcdtest.Start(t)
	cachectl := filepath.Join(t.TempDir(), "cachectl")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", cachectl, "github.com/shardwatch/shardwatch/cmd/cachectl").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for d := range 8 {
		for k := range 8 {
			if _, err := e.Client().Put(ctx, fmt.Sprintf("/d%d/k%d", d, k), "0"); err != nil {
				t.Fatal(err)
			}
		}
	}
	c, err := nodetest.Start(ctx, nodetest.Config{Binary: this(t), Dir: t.TempDir(), Etcd: e.Endpoint(), Nodes: 8, Args: []string{"--shards", "8"}})
	must(t, err)
	defer c.Stop()
	defer func() {
		if t.Failed() {
			t.Log(c.Logs(3000))
		}
	}()
	api, err := client.New(client.Config{Endpoints: c.Endpoints(), RetryFor: time.Minute})
	must(t, err)
	defer api.Close()
	others := nonVoters(t, api, c)

	watching, stopWatching := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stopWatching()
	all := make([]*following, len(c.Nodes))
	for i, n := range c.Nodes {
		f := &following{node: n.Name}
		all[i] = f
		running.Go(func() {
			if err := f.follow(watching, n.Client, "/"); err != nil {
				t.Error(err)
			}
		})
	}
	for _, f := range all {
		for f.started.Load() < 2 && !t.Failed() && ctx.Err() == nil {
			time.Sleep(20 * time.Millisecond)
		}
	}
	changing, stopChanging := context.WithCancel(ctx)
	defer stopChanging()
	changer := &mapChanger{t: t, api: api, etcd: e.Client(), begun: make(chan struct{}), stopped: make(chan struct{})}
	running.Go(func() { changer.run(ctx, changing) })
	select {
	case <-changer.begun:
	case <-changer.stopped:
		t.Fatal("the map does not change")
	}

	order := func(endpoint string, args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(ctx, cachectl, append([]string{"--endpoints", endpoint}, args...)...).CombinedOutput()
		if err != nil {
			t.Errorf("cachectl %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	if !*whole {
		others = others[:2]
	}
	for i, node := range others {
		before := lastShards(ctx, t, api, 1)
		order(node.Client, "split", fmt.Sprint(before[0].ID), "--at", fmt.Sprintf("/e%d", i))
		parts := lastShards(ctx, t, api, 2)
		order(node.Client, "merge", fmt.Sprint(parts[0].ID), fmt.Sprint(parts[1].ID))
		if after := lastShards(ctx, t, api, 1); after[0].Range != before[0].Range {
			t.Errorf("split and merged through %s, the shard of %v is %v", node.Name, before[0].Range, after[0].Range)
		}
	}
	stopChanging()
	<-changer.stopped

	// Each watch gets all events once.
	end, err := e.Client().Put(ctx, "/d7/k7", "last")
	must(t, err)
	for _, f := range all {
		for f.native.Load() < end.Header.Revision || f.etcd.Load() < end.Header.Revision {
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
				t.Fatalf("%s is at revisions %d and %d of %d", f.node, f.native.Load(), f.etcd.Load(), end.Header.Revision)
			}
			if t.Failed() {
				return
			}
		}
		if n, etcd, want := f.nativeEvents.Load(), f.etcdEvents.Load(), changer.writes.Load()+1; n != want || etcd != want {
			t.Errorf("%s has sent %d and %d events, and %d keys were written", f.node, n, etcd, want)
		}
		t.Logf("%s: the native watch had updates at least every %v", f.node, time.Duration(f.longestOfNative.Load()).Round(time.Millisecond))
	}
	t.Logf("%d changes of the map", changer.changes.Load())
	for _, n := range c.Nodes {
		for {
			newest, err := admin.New(api).ClusterStatus(ctx, 0)
			must(t, err)
			is, err := admin.New(api).Status(ctx, n.Client)
			must(t, err)
			if is.MapVersion >= newest.Map.Version {
				break
			}
			time.Sleep(20 * time.Millisecond) // until ctx ends
		}
	}
}

// mapChanger changes the map, and writes a key for each change.
type mapChanger struct {
	t               *testing.T
	api             *client.Client
	etcd            *clientv3.Client
	changes, writes atomic.Int64
	begun, stopped  chan struct{} // closed with the fifth change, and at the end
}

// run makes a change every 200 ms until changing ends.
func (m *mapChanger) run(ctx, changing context.Context) {
	defer close(m.stopped)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for changing.Err() == nil {
		if err := changeOwner(changing, m.api); err != nil && changing.Err() == nil {
			m.t.Errorf("change %d of the map: %v", m.changes.Load()+1, err)
			return
		}
		if m.changes.Add(1) == 5 {
			close(m.begun)
		}
		if _, err := m.etcd.Put(ctx, fmt.Sprintf("/d%d/k1", m.changes.Load()%8), "1"); err != nil {
			m.t.Error(err)
			return
		}
		m.writes.Add(1)
		select {
		case <-tick.C:
		case <-changing.Done():
		}
	}
}

// nonVoters returns the nodes that do not vote, once gossip has the voters.
func nonVoters(t *testing.T, api *client.Client, c *nodetest.Cluster) (nodes []*nodetest.Node) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		members, err := admin.New(api).Members(t.Context())
		votes := map[string]bool{}
		for _, m := range members {
			votes[m.Name] = m.Voter
		}
		nodes = nil
		for _, n := range c.Nodes {
			if !votes[n.Name] {
				nodes = append(nodes, n)
			}
		}
		if len(nodes) == 5 && len(members) == 8 {
			return nodes
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d members do not vote, %v", len(nodes), len(members), err)
		}
	}
}

// changeOwner makes another replica the owner of one of the first four shards.
func changeOwner(ctx context.Context, api *client.Client) error {
	m, err := admin.New(api).ShardMap(ctx)
	if err != nil {
		return err
	}
	s := m.Shards[rand.IntN(4)]
	if len(s.Replicas) < 2 {
		return nil
	}
	run, err := admin.New(api).ChangePlacement(ctx, admin.MoveShard{Shard: s.ID, Owner: s.Replicas[1+rand.IntN(len(s.Replicas)-1)]}, admin.ChangeOptions{Force: true})
	if err != nil {
		return err
	}
	run.Close()
	return nil
}

// lastShards returns the last shards of the newest map of any node.
func lastShards(ctx context.Context, t *testing.T, api *client.Client, n int) []admin.Shard {
	t.Helper()
	s, err := admin.New(api).ClusterStatus(ctx, 0)
	must(t, err)
	return s.Map.Shards[len(s.Map.Shards)-n:]
}
