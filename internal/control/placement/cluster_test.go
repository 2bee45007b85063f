package placement_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/shardwatch/shardwatch/internal/control/placement"
	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is the placements of several nodes, with gossip that is always right.
type cluster struct {
	t    *testing.T
	net  *placement.MemNetwork // nil: real sockets and disks
	edit func(*placement.Config)
	dir  string

	mu    sync.Mutex
	nodes map[shard.NodeID]*node
	cuts  []string
	etcd  error // FoundingFacts fails with it

	reports bool  // nodes report their shards
	bytes   int64 // reported size of each shard
}

type node struct {
	c       *cluster
	name    shard.NodeID
	dir     string
	disk    *placement.MemDisk
	expect  int
	p       *placement.Placement
	member  shard.Member
	changed chan struct{}
	cancel  context.CancelFunc
	done    chan struct{}
	err     error // of Run, once done is closed
}

func newCluster(t *testing.T, mem bool) *cluster {
	c := &cluster{t: t, nodes: map[shard.NodeID]*node{}, cuts: []string{"b", "c", "d"}}
	if mem {
		c.net = placement.NewMemNetwork()
	} else {
		c.dir = t.TempDir()
	}
	t.Cleanup(func() {
		for _, n := range c.all() {
			n.stop()
		}
	})
	return c
}

func (c *cluster) all() (out []*node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.nodes {
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b *node) int { return int(a.name[len(a.name)-1]) - int(b.name[len(b.name)-1]) })
	return out
}

func (c *cluster) members() (out []shard.Member) {
	for _, n := range c.all() {
		c.mu.Lock()
		m, p := n.member, n.p
		c.mu.Unlock()
		if p != nil {
			m.ClusterID = p.ClusterID()
		}
		out = append(out, m)
	}
	return out
}

// report makes each node report that it has loaded its shards in the map.
func (c *cluster) report(_ context.Context, nodes []shard.NodeID) (out []planner.Report) {
	var m *shard.Map // nodes that do not vote receive it from others
	for _, n := range c.all() {
		if of := n.p.Map(); of != nil && (m == nil || of.Version > m.Version) {
			m = of
		}
	}
	for _, n := range c.all() {
		c.mu.Lock()
		alive := n.member.State == shard.Alive
		c.mu.Unlock()
		if m == nil || !alive || !slices.Contains(nodes, n.name) {
			continue
		}
		r := planner.Report{Node: n.name, RaftIndex: n.p.RaftIndex()}
		if of := n.p.Map(); of != nil {
			r.MapVersion = of.Version
		}
		for _, s := range m.Shards {
			if slices.Contains(s.Replicas, n.name) {
				r.Shards = append(r.Shards, planner.ShardReport{Shard: s.ID, Ready: true, Bytes: c.load()})
			}
		}
		out = append(out, r)
	}
	return out
}

func (c *cluster) load() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}

func (c *cluster) tell() {
	for _, n := range c.all() {
		select {
		case n.changed <- struct{}{}:
		default:
		}
	}
}

// add makes a node on an empty disk, and starts it.
func (c *cluster) add(name shard.NodeID, expect int) *node {
	c.t.Helper()
	n := &node{c: c, name: name, expect: expect}
	n.wipe()
	n.start()
	return n
}

func (n *node) wipe() {
	if n.c.net != nil {
		n.disk = placement.NewMemDisk()
		return
	}
	n.dir = filepath.Join(n.c.t.TempDir(), string(n.name))
}

func (n *node) start() {
	n.c.t.Helper()
	cfg := placement.Defaults()
	cfg.Name, cfg.BootstrapExpect = n.name, n.expect
	if n.c.net != nil {
		cfg.Network, cfg.Disk, cfg.UUID, cfg.Address = n.c.net, n.disk, n.disk.Identity(), string(n.name)+":7402"
	} else {
		id, err := placement.Identity(n.dir)
		if err != nil {
			n.c.t.Fatal(err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			n.c.t.Fatal(err)
		}
		cfg.DataDir, cfg.UUID, cfg.Listener, cfg.Address = n.dir, id, l, l.Addr().String()
		cfg.Heartbeat, cfg.Election, cfg.Settle = 300*time.Millisecond, 300*time.Millisecond, 50*time.Millisecond
		cfg.BarrierTimeout = time.Minute // a busy machine must not look like a hanging disk
	}
	cfg.Spec = shard.Spec{Ranges: []kv.Range{{}}, Shards: 4, Replicas: 2}
	cfg.Members = n.c.members
	n.changed = make(chan struct{}, 1)
	cfg.MembersChanged = n.changed
	cfg.FoundingFacts = func(context.Context) (uint64, []string, error) {
		n.c.mu.Lock()
		defer n.c.mu.Unlock()
		return 0xe7cd, slices.Clone(n.c.cuts), n.c.etcd
	}
	cfg.Cuts = func(context.Context) ([]string, error) {
		n.c.mu.Lock()
		defer n.c.mu.Unlock()
		return slices.Clone(n.c.cuts), nil
	}
	cfg.Forward = func(ctx context.Context, to shard.NodeID, b []byte) (uint64, error) {
		n.c.mu.Lock()
		other := n.c.nodes[to]
		n.c.mu.Unlock()
		if other == nil || other.member.State != shard.Alive {
			return 0, errors.New("connection refused")
		}
		return other.p.ApplyEncoded(ctx, b)
	}
	cfg.Halve = func(context.Context, kv.Range) (string, error) { return "half", nil }
	if n.c.reports {
		cfg.Reports = n.c.report
	}
	cfg.Logger = slog.New(slog.NewTextHandler(n.c.t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo})).With("node", n.name)
	if n.c.edit != nil {
		n.c.edit(&cfg)
	}
	p, err := placement.New(cfg)
	if err != nil {
		n.c.t.Fatal(err)
	}
	n.c.mu.Lock()
	n.p = p
	n.member = shard.Member{
		Name: n.name, UUID: cfg.UUID, RaftAddress: cfg.Address,
		BootstrapExpect: n.expect, Level: shard.Level, State: shard.Alive, Since: time.Now(),
	}
	n.c.nodes[n.name] = n
	n.c.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel, n.done = cancel, make(chan struct{})
	go func() {
		defer close(n.done)
		n.err = p.Run(ctx)
	}()
	n.c.tell()
}

// stop ends the node, and gossip reports it as dead.
func (n *node) stop() {
	n.cancel()
	<-n.done
	n.set(func(m *shard.Member) {
		if m.State == shard.Alive {
			m.State, m.Since = shard.Dead, time.Now()
		}
	})
}

func (n *node) set(f func(*shard.Member)) {
	n.c.mu.Lock()
	f(&n.member)
	n.c.mu.Unlock()
	n.c.tell()
}

// founded waits until the nodes have the map, and returns it.
func (c *cluster) founded(nodes ...*node) *shard.Map {
	c.t.Helper()
	for _, n := range nodes {
		testkit.Eventually(c.t, fmt.Sprintf("%s has a map", n.name), func() bool { return n.p.Map() != nil })
	}
	return nodes[0].p.Map()
}

func leader(t *testing.T, nodes ...*node) *node {
	t.Helper()
	var found *node
	testkit.Eventually(t, "the nodes agree on a leader", func() bool {
		found = nil
		var names []shard.NodeID
		for _, n := range nodes {
			l, ok := n.p.Leader()
			if !ok {
				return false
			}
			names = append(names, l)
			if l == n.name {
				found = n
			}
		}
		return len(slices.Compact(names)) == 1 && found != nil
	})
	return found
}

// change makes a change of n's version of the map, and retries if the map has changed
// meanwhile.
func change(n *node, c shard.Change) error {
	for {
		_, err := n.p.Propose(context.Background(), shard.Command{IfVersion: n.p.Map().Version, Change: c})
		if stale := new(shard.StaleError); !errors.As(err, &stale) {
			return err
		}
	}
}

// touch makes some change of the map through n and returns its version.
func touch(t *testing.T, n *node) uint64 {
	t.Helper()
	for {
		m := n.p.Map()
		s := m.Shards[0]
		replicas := slices.Clone(s.Replicas)
		slices.Reverse(replicas)
		v, err := n.p.Propose(t.Context(), shard.Command{IfVersion: m.Version, Change: shard.Assign{Moves: []shard.Move{{Shard: s.ID, Replicas: replicas}}}})
		var stale *shard.StaleError
		if errors.As(err, &stale) { // the leader moves shards too
			testkit.Eventually(t, "the newer map arrives", func() bool { return n.p.Map().Version > m.Version })
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func without(nodes []*node, n *node) (out []*node) {
	for _, o := range nodes {
		if o != n {
			out = append(out, o)
		}
	}
	return out
}
