package node_test

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/internal/control/placement"
	"github.com/shardwatch/shardwatch/internal/etcd"
	"github.com/shardwatch/shardwatch/internal/freeport"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/membership"
	"github.com/shardwatch/shardwatch/internal/node"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// A probe of memberlist outlives its Shutdown until the answer or a timeout, for
// seconds on a busy machine: the check for leaks ignores it.
func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); !testing.Short() && f.Value.String() == f.DefValue {
		_ = f.Value.Set("4") // tests mostly wait, except with the race detector, for which -short is set
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode"))
}

// patience bounds the wait for expected events. It is never used up in a
// healthy run.
const patience = 2 * time.Minute

// cluster is some nodes in this process, with real sockets, in front of an
// etcd.
type cluster struct {
	t    testing.TB
	etcd *etcdtest.Server
	// through wraps the nodes' access to etcd; nil: direct access.
	through *etcdtest.Proxy
	voters  int
	// account is the etcd user of the nodes; "": none.
	account string
	// etcdURL and etcdTLS lead to another etcd than the field etcd.
	etcdURL string
	etcdTLS *tls.Config
	// change changes the configuration of every node.
	change func(*node.Config)
	log    *logs

	nodes  []*machine
	stores []*etcd.Client // of all nodes that ever ran
	ends   sync.Once      // ends the nodes before the resources they depend on
}

// machine is the place of a node across restarts: its addresses and its disk.
type machine struct {
	c                          *cluster
	name                       string
	dir                        string
	clients, peers, raft, chat string
	wrap                       func(node.Etcd) node.Etcd // may be nil
	node                       *node.Node
	store                      *etcd.Client // of the node
	listeners                  node.Listeners
	stop                       context.CancelFunc
	ended                      chan error
}

// startCluster runs n nodes of which voters vote, and stops them when the test
// ends. It does not wait for them.
func startCluster(t testing.TB, n, voters int, change func(*node.Config)) *cluster {
	t.Helper()
	c := newCluster(t, n, voters, change)
	c.etcd = etcdtest.Start(t)
	for _, m := range c.nodes {
		m.start()
	}
	return c
}

func newCluster(t testing.TB, n, voters int, change func(*node.Config)) *cluster {
	t.Helper()
	c := &cluster{t: t, voters: voters, change: change, log: &logs{}}
	t.TempDir() // its cleanup removes all temporary directories, and must run after the nodes' end
	for i := range n {
		c.add(fmt.Sprintf("node-%d", i+1))
	}
	return c
}

func (c *cluster) add(name string) *machine {
	c.t.Helper()
	m := &machine{
		c: c, name: name, dir: c.t.TempDir(),
		clients: freePort(c.t), peers: freePort(c.t), raft: freePort(c.t), chat: freePort(c.t),
	}
	c.nodes = append(c.nodes, m)
	return m
}

// end stops all nodes when the test ends.
func (c *cluster) end() {
	c.t.Cleanup(func() {
		c.stopAll()
		if c.t.Failed() {
			c.t.Log(c.log.tail(20_000))
		}
	})
}

func (c *cluster) stopAll() {
	var all sync.WaitGroup
	for _, m := range c.nodes {
		if m.node != nil {
			all.Go(func() { m.crash() })
		}
	}
	all.Wait()
}

// freePort returns an address of this machine that only this test uses.
func freePort(t testing.TB) string {
	t.Helper()
	free, err := freeport.Take(1)
	if err != nil {
		t.Fatal(err)
	}
	return free[0]
}

// config returns the node's configuration, with timings for tests.
func (m *machine) config() node.Config {
	cfg := node.Defaults()
	cfg.Self = shard.Member{
		Name: shard.NodeID(m.name), ClientAddress: m.clients, PeerAddress: m.peers, RaftAddress: m.raft,
		GossipAddress: m.chat, Version: "test",
	}
	for i := range m.c.voters {
		if m.c.nodes[i] == m {
			cfg.Self.BootstrapExpect = m.c.voters
		}
	}
	for _, other := range m.c.nodes {
		if other != m {
			cfg.Join = append(cfg.Join, other.chat)
		}
	}
	cfg.DataDir, cfg.GossipBind = m.dir, m.chat
	cfg.SignOfLife = 10 * time.Second // a crashed node refuses connections at once
	cfg.Server.GRPCGo = os.Getenv("CACHENODE_CLIENT_SERVER") == "grpc-go"
	cfg.Logger = slog.New(slog.NewTextHandler(m.c.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	cfg.TunePlacement = func(p *placement.Config) {
		p.Heartbeat, p.Election = 500*time.Millisecond, 500*time.Millisecond
		p.Settle, p.SplitCheck, p.DeadGrace = 300*time.Millisecond, 300*time.Millisecond, time.Second
		p.MoveInterval, p.PromoteDelay = time.Second, 500*time.Millisecond
		p.BarrierTimeout = 30 * time.Second // the machine may be busy
	}
	cfg.TuneMembership = func(c *membership.Config) {
		c.RetryInterval, c.ViewInterval, c.GossipInterval = 100*time.Millisecond, 100*time.Millisecond, 50*time.Millisecond
	}
	if m.c.change != nil {
		m.c.change(&cfg)
	}
	return cfg
}

// dialEtcd connects to the machine's etcd.
func (m *machine) dialEtcd() *etcd.Client {
	m.c.t.Helper()
	ec := etcd.Defaults()
	switch {
	case m.c.etcdURL != "":
		ec.Endpoints = []string{m.c.etcdURL}
		if m.c.etcdTLS != nil {
			ec.TLS = func() *tls.Config { return m.c.etcdTLS }
		}
	case m.c.through != nil:
		ec.Endpoints = []string{"http://" + m.c.through.Endpoint()}
	default:
		ec.Endpoints = []string{"http://" + m.c.etcd.Endpoint()}
	}
	ec.Logger = slog.New(slog.NewTextHandler(m.c.log, nil)).With("node", m.name)
	if m.c.account != "" {
		ec.Username, ec.Password = m.c.account, etcdtest.Password
	}
	store, err := etcd.New(ec)
	if err != nil {
		m.c.t.Fatal(err)
	}
	return store
}

// start runs the node, until the test ends.
func (m *machine) start() {
	m.c.t.Helper()
	m.c.ends.Do(m.c.end)
	cfg := m.config()
	store := m.dialEtcd()
	m.c.stores, m.store = append(m.c.stores, store), store
	if cfg.Etcd == nil {
		cfg.Etcd = store
	}
	if m.wrap != nil {
		cfg.Etcd = m.wrap(cfg.Etcd)
	}
	open := func(address string) net.Listener {
		l, err := net.Listen("tcp", address)
		if err != nil {
			m.c.t.Fatal(err)
		}
		return l
	}
	cfg.Listeners = node.Listeners{Client: open(m.clients), Peer: open(m.peers), Raft: open(m.raft)}
	n, err := node.New(cfg)
	if err != nil {
		m.c.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	m.node, m.listeners, m.stop, m.ended = n, cfg.Listeners, stop, make(chan error, 1)
	go func() {
		err := n.Run(ctx)
		m.ended <- errors.Join(err, store.Close())
	}()
}

// drain stops the node in an orderly way.
func (m *machine) drain() {
	m.c.t.Helper()
	m.stop()
	if err := m.wait(); err != nil {
		m.c.t.Errorf("%s: %v", m.name, err)
	}
}

// crash stops the node without notice: a broken port ends it at once.
func (m *machine) crash() {
	m.c.t.Helper()
	_ = m.listeners.Client.Close()
	_ = m.wait()
	m.stop()
}

// wait waits for the end of the node.
func (m *machine) wait() error {
	m.c.t.Helper()
	select {
	case err := <-m.ended:
		m.node = nil
		return err
	case <-time.After(patience):
		m.c.t.Fatalf("%s does not stop", m.name)
		return nil
	}
}

// ready waits until all nodes that run are ready.
func (c *cluster) ready() {
	c.t.Helper()
	testkit.Succeeds(c.t, "all nodes ready", func() error {
		for _, m := range c.nodes {
			if m.node == nil {
				continue
			}
			if why := m.node.NotReady(); len(why) > 0 {
				return fmt.Errorf("%s: %s", m.name, strings.Join(why, "; "))
			}
		}
		return nil
	})
}

// settled waits until the map has that many shards, each with its replicas, and
// every replica is loaded from the expected source.
func (c *cluster) settled(shards, replicas int) *shard.Map {
	c.t.Helper()
	var found *shard.Map
	testkit.Succeeds(c.t, "shards settled", func() error {
		for _, m := range c.nodes {
			if m.node == nil {
				continue
			}
			sm := m.node.Map()
			if sm == nil || len(sm.Shards) < shards {
				return fmt.Errorf("%s: map %+v", m.name, sm)
			}
			if found == nil || sm.Version > found.Version {
				found = sm
			}
			if sm.Version < found.Version {
				return fmt.Errorf("%s has map version %d, want %d", m.name, sm.Version, found.Version)
			}
			for i := range sm.Shards {
				s := &sm.Shards[i]
				if len(s.Replicas) != replicas {
					return fmt.Errorf("shard %d is on %v", s.ID, s.Replicas)
				}
			}
			if err := m.follows(sm); err != nil {
				return err
			}
		}
		return nil
	})
	return found
}

// reached waits until every copy is at a revision.
func (c *cluster) reached(revision int64) {
	c.t.Helper()
	testkit.Succeeds(c.t, fmt.Sprintf("all copies are at %d", revision), func() error {
		for _, m := range c.nodes {
			for _, r := range m.node.Status().GetReplicas() {
				if r.GetProgress() < revision {
					return fmt.Errorf("%s: shard %d is at %d", m.name, r.GetShardId(), r.GetProgress())
				}
			}
		}
		return nil
	})
}

// follows fails unless the machine's replicas are loaded, the first replica of
// each shard from etcd and the others from the first.
func (m *machine) follows(sm *shard.Map) error {
	status := m.node.Status()
	for i := range sm.Shards {
		s := &sm.Shards[i]
		for at, name := range s.Replicas {
			if string(name) != m.name {
				continue
			}
			want, found := "", false
			if at > 0 {
				want = string(s.Replicas[0])
			}
			for _, r := range status.GetReplicas() {
				found = found || r.GetShardId() == uint64(s.ID) && !r.GetRelay() && r.GetReady() && r.GetSourceNode() == want && r.GetSource() != 0
			}
			if !found {
				return fmt.Errorf("%s: shard %d is not loaded from %q", m.name, s.ID, want)
			}
		}
	}
	return nil
}

// busiest returns the machine with the most watches; it depends on the nodes'
// identities.
func (c *cluster) busiest() (out *machine) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	status, err := admin.New(c.client()).ClusterStatus(ctx, 10*time.Second)
	if err != nil {
		c.t.Fatal(err)
	}
	most := int64(0)
	for _, m := range status.Members {
		if m.Status != nil && m.Status.Watches > most {
			most, out = m.Status.Watches, c.machineOf(shard.NodeID(m.Member.Name))
		}
	}
	if out == nil {
		c.t.Fatal("no node has watches")
	}
	return out
}

// machineOf returns the machine of a node.
func (c *cluster) machineOf(name shard.NodeID) *machine {
	for _, m := range c.nodes {
		if m.name == string(name) {
			return m
		}
	}
	c.t.Fatalf("no node %s", name)
	return nil
}

// owner returns the machine of the key's owner.
func (c *cluster) owner(key string) *machine {
	for _, m := range c.nodes {
		if m.node == nil {
			continue
		}
		if s := m.node.Map().Overlapping(kv.Single(key)); len(s) == 1 {
			return c.machineOf(s[0].Owner())
		}
	}
	c.t.Fatalf("no node has %s", key)
	return nil
}

// put writes keys to etcd.
func (c *cluster) put(keys ...string) (revision int64) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, key := range keys {
		r, err := c.etcd.Client().Put(ctx, key, "value of "+key)
		if err != nil {
			c.t.Fatal(err)
		}
		revision = r.Header.GetRevision()
	}
	return revision
}

// keys returns n keys that can be cut at "/" boundaries.
func keys(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("/%c/%02d", 'a'+i%8, i)
	}
	return out
}

// client connects to the given machines, or to all running ones.
func (c *cluster) client(machines ...*machine) *client.Client {
	c.t.Helper()
	return c.connect(client.Config{}, machines)
}

// patient is a client that does not leave a silent node, because nodes on a busy
// machine may be silent for a while. It receives progress rarely.
func (c *cluster) patient(machines ...*machine) *client.Client {
	c.t.Helper()
	return c.connect(client.Config{Silence: patience}, machines)
}

func (c *cluster) connect(cfg client.Config, machines []*machine) *client.Client {
	c.t.Helper()
	if len(machines) == 0 {
		machines = c.nodes
	}
	cfg.RetryFor = patience
	for _, m := range machines {
		cfg.Endpoints = append(cfg.Endpoints, m.clients)
	}
	out, err := client.New(cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = out.Close() })
	return out
}

// logs collects the nodes' logs.
type logs struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if strings.Contains(string(p), "from=memberlist") {
		return len(p), nil
	}
	return l.text.Write(p)
}

func (l *logs) tail(n int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.text.String()
	return s[max(0, len(s)-n):]
}

// count returns how many lines contain all of the texts.
func (l *logs) count(texts ...string) int {
	n := 0
next:
	for line := range strings.Lines(l.tail(1 << 30)) {
		for _, text := range texts {
			if !strings.Contains(line, text) {
				continue next
			}
		}
		n++
	}
	return n
}

// other returns a machine other than m.
func (c *cluster) other(m *machine) *machine {
	for _, o := range c.nodes {
		if o != m {
			return o
		}
	}
	return nil
}

// lists returns how often a node has loaded a shard by a list at etcd.
func (c *cluster) lists() int64 {
	var n int64
	for _, s := range c.stores {
		n += s.Stats().Lists
	}
	return n
}

// resets returns how often a node lost its history.
func (c *cluster) resets() int { return c.log.count("history compacted at the source") }
