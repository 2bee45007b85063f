package sim

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/internal/control/placement"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/membership"
	"github.com/shardwatch/shardwatch/internal/node"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/check"
	"github.com/shardwatch/shardwatch/internal/testing/sim/memetcd"
)

// Etcd is the name of etcd's host.
const Etcd = "etcd"

// The ports of every node.
const clientPort, peerPort = "7400", "7401"

// Config configures a cluster. The zero value of a field stands for its default.
type Config struct {
	// Nodes is the number of nodes, called n1, n2, …; default 3.
	Nodes int
	// Shards is the number of shards to found; default 8.
	Shards int
	// Replicas is the number of nodes with each shard; default 3.
	Replicas int
	// Owners is the number of nodes that own shards at first, if the replicas allow so few;
	// default 1, as for --auto-owners.
	Owners int
	// Voters is the --bootstrap-expect of every node, as in deploy/k8s: that many
	// of them vote. Default 3, or 1 when there are fewer than 3 nodes.
	Voters int
	// Keys are in etcd before the cluster is founded, which cuts its shards from
	// them. nil: eight directories of eight keys, /d0/k0 to /d7/k7. Empty: none.
	Keys []string
	// Seed is the seed of gossip's losses and of [Cluster.Rand].
	Seed uint64
	// Latency is the latency of all messages except gossip and raft; default 200 µs.
	Latency time.Duration
	// Tune changes a node's configuration before it is built; nil: the defaults of
	// production, timings included.
	Tune func(*node.Config)
}

func (c Config) withDefaults() Config {
	setDefault(&c.Nodes, 3)
	setDefault(&c.Shards, 8)
	setDefault(&c.Replicas, 3)
	setDefault(&c.Owners, 1)
	if c.Nodes >= 3 {
		setDefault(&c.Voters, 3)
	}
	setDefault(&c.Voters, 1)
	setDefault(&c.Latency, 200*time.Microsecond)
	if c.Keys == nil {
		for d := range 8 {
			for k := range 8 {
				c.Keys = append(c.Keys, fmt.Sprintf("/d%d/k%d", d, k))
			}
		}
	}
	return c
}

func setDefault[T comparable](to *T, value T) {
	var zero T
	if *to == zero {
		*to = value
	}
}

// Cluster is an etcd, nodes and clients in one bubble. Its methods belong to
// the test's goroutine; those that wait let fake time pass.
type Cluster struct {
	t   *testing.T
	cfg Config

	// Net connects nodes, clients and etcd, each a host with its name.
	Net *Network
	// Etcd is the cached etcd. Tests may write to it and cause faults in it.
	Etcd *memetcd.Server

	rng    *rand.Rand
	gossip *membership.Network
	raft   *placement.MemNetwork
	faults faults
	log    *recent

	hosts []*host // by number
	truth truth

	cuts     map[string]bool // start keys of all shards that Map has seen
	clients  []*client.Client
	watchers []*Watcher
	reading  sync.WaitGroup // the watchers' goroutines
}

// Start returns a cluster that is ready. It must be called in a synctest
// bubble, and ends with the test. If the test has failed, it logs the newest
// lines of the nodes' logs.
func Start(t *testing.T, cfg Config) *Cluster {
	t.Helper()
	cfg = cfg.withDefaults()
	c := &Cluster{
		t: t, cfg: cfg, Net: NewNetwork(), rng: rand.New(rand.NewPCG(cfg.Seed, 1)),
		gossip: membership.NewNetwork(cfg.Seed), raft: placement.NewMemNetwork(),
		faults: newFaults(), cuts: make(map[string]bool), log: newRecent(), truth: truth{history: check.NewHistory(1, nil)},
	}
	c.Net.SetLatency(cfg.Latency)
	t.Cleanup(c.stop)
	c.startEtcd()
	for i := range cfg.Nodes {
		h := &host{c: c, name: fmt.Sprintf("n%d", i+1), number: i + 1, disk: placement.NewMemDisk()}
		c.hosts = append(c.hosts, h)
		h.start()
	}
	c.AwaitReady()
	return c
}

func (c *Cluster) startEtcd() {
	c.t.Helper()
	ec := memetcd.Defaults()
	ec.Listen = func() (net.Listener, error) { return c.Net.Listen(Etcd + ":2379") }
	s, err := memetcd.New(ec)
	if err != nil {
		c.t.Fatal(err)
	}
	c.Etcd = s
	if err := s.Start(); err != nil {
		c.t.Fatal(err)
	}
	for _, k := range c.cfg.Keys {
		c.Put(k, "first")
	}
}

// stop ends everything: watches, clients, nodes, etcd.
func (c *Cluster) stop() {
	c.HealAll()
	c.Etcd.Resume()
	for _, cl := range c.clients {
		_ = cl.Close() // always nil
	}
	c.reading.Wait()
	for _, h := range c.hosts {
		h.cancel(node.ErrKilled)
	}
	for _, h := range c.hosts {
		<-h.ended
	}
	c.Etcd.Stop()
	// Raft leaves calls behind that end by their timeouts: wait for them before
	// the clock stops.
	time.Sleep(time.Minute)
	if c.t.Failed() {
		c.t.Logf("the newest log lines:\n%s", c.log)
	}
}

// Note writes a line into the log that a failed test shows.
func (c *Cluster) Note(format string, args ...any) {
	slog.New(c.log.handler("test")).Info("NOTE: " + fmt.Sprintf(format, args...))
}

// Rand returns the random source of the test, seeded with Config.Seed.
func (c *Cluster) Rand() *rand.Rand { return c.rng }

// Names returns the nodes' names.
func (c *Cluster) Names() []string {
	names := make([]string, len(c.hosts))
	for i, h := range c.hosts {
		names[i] = h.name
	}
	return names
}

// Running returns the names of the nodes that are not killed.
func (c *Cluster) Running() []string {
	var names []string
	for _, h := range c.hosts {
		if h.running() {
			names = append(names, h.name)
		}
	}
	return names
}

// Node returns a node as it runs now.
func (c *Cluster) Node(name string) *node.Node { return c.host(name).node }

func (c *Cluster) host(name string) *host {
	c.t.Helper()
	for _, h := range c.hosts {
		if h.name == name {
			return h
		}
	}
	c.t.Fatalf("there is no node %q", name)
	return nil
}

// Map returns the newest shard map that a running node has, and records its start keys.
func (c *Cluster) Map() *shard.Map {
	var newest *shard.Map
	for _, h := range c.hosts {
		if m := h.node.Map(); h.running() && m != nil && (newest == nil || m.Version > newest.Version) {
			newest = m
		}
	}
	if newest != nil {
		for i := range newest.Shards {
			c.cuts[newest.Shards[i].Range.Start] = true
		}
	}
	return newest
}

// cut reports whether a map that Map has returned had several shards in r.
func (c *Cluster) cut(r kv.Range) bool {
	for at := range c.cuts {
		if at > r.Start && r.Contains(at) {
			return true
		}
	}
	return false
}

// Shard returns the shard that has key.
func (c *Cluster) Shard(key string) shard.Shard {
	c.t.Helper()
	s, ok := c.Map().Find(key)
	if !ok {
		c.t.Fatalf("no shard has %q", key)
	}
	return s
}

// Owner returns the node that the map calls owner of key's shard.
func (c *Cluster) Owner(key string) string {
	s := c.Shard(key)
	return string(s.Owner())
}

// Follower returns a node that has key's shard and does not own it.
func (c *Cluster) Follower(key string) string {
	c.t.Helper()
	s := c.Shard(key)
	if len(s.Replicas) < 2 {
		c.t.Fatalf("shard %d has no follower", s.ID)
	}
	return string(s.Replicas[1])
}

// Leader returns the raft leader according to most of the running voters; ""
// when they know none.
func (c *Cluster) Leader() string {
	votes := map[string]int{}
	for _, h := range c.hosts {
		if !h.running() {
			continue
		}
		for _, m := range h.node.Members() {
			if m.GetLeader() {
				votes[m.GetName()]++
			}
		}
	}
	best := ""
	for name, n := range votes {
		if best == "" || n > votes[best] {
			best = name
		}
	}
	return best
}

// Traffic counts the sent bytes.
type Traffic struct {
	Gossip  int64 // between nodes: members, and the version of the map
	Peers   int64 // between nodes: the map, data, heartbeats and status; not raft
	Clients int64 // between nodes and clients
}

// Traffic returns how many bytes were sent so far.
func (c *Cluster) Traffic() Traffic {
	return Traffic{Gossip: c.gossip.Bytes(), Peers: c.Net.Bytes(peerPort), Clients: c.Net.Bytes(clientPort)}
}

// Since returns the traffic after before.
func (t Traffic) Since(before Traffic) Traffic {
	return Traffic{Gossip: t.Gossip - before.Gossip, Peers: t.Peers - before.Peers, Clients: t.Clients - before.Clients}
}

// All returns the bytes of all kinds.
func (t Traffic) All() int64 { return t.Gossip + t.Peers + t.Clients }

// Put writes a key to etcd, as an external client would: at once.
func (c *Cluster) Put(key, value string) kv.Revision {
	c.t.Helper()
	return c.Txn(memetcd.OpPut(key, value))
}

// Delete deletes a key.
func (c *Cluster) Delete(key string) kv.Revision {
	c.t.Helper()
	return c.Txn(memetcd.OpDelete(kv.Single(key)))
}

// Txn does all ops in one revision.
func (c *Cluster) Txn(ops ...memetcd.Op) kv.Revision {
	c.t.Helper()
	rev, err := c.Etcd.Txn(ops...)
	if err != nil {
		c.t.Fatal(err)
	}
	return rev
}

// Await polls until ok returns true, and fails the test after d of fake time.
func (c *Cluster) Await(d time.Duration, what string, ok func() bool) {
	c.t.Helper()
	for deadline := time.Now().Add(d); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.t.Fatalf("%s: not within %v", what, d)
		}
	}
}

// AwaitReady waits until every running node is ready and all know one map.
func (c *Cluster) AwaitReady() {
	c.t.Helper()
	var why string
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if why = c.notReady(); why == "" {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("the cluster is not ready within a minute: %s", why)
		}
	}
}

func (c *Cluster) notReady() string {
	newest := c.Map()
	for _, h := range c.hosts {
		if !h.running() {
			continue
		}
		if why := h.node.NotReady(); len(why) > 0 {
			return fmt.Sprintf("%s: %v", h.name, why)
		}
		if m := h.node.Map(); m.Version != newest.Version {
			return fmt.Sprintf("%s has map %d of %d", h.name, m.Version, newest.Version)
		}
	}
	return ""
}

// Client returns a new client on a host of that name, with the endpoints of every
// node. It is closed with the cluster.
func (c *Cluster) Client(name string) *client.Client {
	c.t.Helper()
	cfg := client.Config{Dialer: c.Net.Dialer(name), Logger: slog.New(c.log.handler(name))}
	for _, h := range c.hosts {
		cfg.Endpoints = append(cfg.Endpoints, h.clientAddress())
	}
	cl, err := client.New(cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	c.clients = append(c.clients, cl)
	return cl
}

// host is a machine that runs a node, or will again.
type host struct {
	c      *Cluster
	name   string
	number int
	disk   *placement.MemDisk
	wiped  int // how often its disk was wiped

	node   *node.Node
	gossip membership.Transport
	cancel context.CancelCauseFunc
	ended  chan struct{} // closed when Run has returned
	down   bool          // killed or stopped by the test
}

func (h *host) running() bool         { return !h.down }
func (h *host) clientAddress() string { return h.name + ":" + clientPort }
func (h *host) peerAddress() string   { return h.name + ":" + peerPort }
func (h *host) gossipAddress() string { return gossipAddress(h.number) }

// raftAddress returns a different address for every disk. Raft's network in memory
// knows only addresses: at the old address the new identity would answer for the old
// one, which real transports prevent (package placement, addresses).
func (h *host) raftAddress() string { return fmt.Sprintf("%s:%d", h.name, 7402+100*h.wiped) }

func gossipAddress(number int) string { return fmt.Sprintf("10.0.0.%d:7946", number) }
