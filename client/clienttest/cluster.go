package clienttest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/client"
)

// Config configures a cluster. The zero value of a field stands for its default.
type Config struct {
	// Nodes is the number of nodes. Default: one for each of Addresses, else 3.
	Nodes int
	// Addresses are host:port of the first nodes, for a cluster that replaces another
	// one. The others listen on free ports.
	Addresses []string
	// ID is the cluster's ID. Default: a unique one.
	ID string
	// Cuts has the keys at which the key space is cut into shards. Default: one shard.
	Cuts []string
	// Replicas is how many nodes have each shard. Default: all.
	Replicas int
	// Zones has the zones of the first nodes, in order.
	Zones []string
	// FragmentEvents is how many events a response carries at most; 0: all.
	FragmentEvents int
	// ChunkKeys is how many keys a chunk of a state or list carries at most;
	// 0: all.
	ChunkKeys int
	// Stopped leaves the nodes stopped, with no listener at their addresses, until each
	// is restarted.
	Stopped bool
	// NoUnits makes nodes that support no units but states, as older ones did: they end
	// watches that allow units as if they did not.
	NoUnits bool
}

// Cluster has some nodes that share one history.
type Cluster struct {
	cfg Config

	watches, lists, deltas, resyncs atomic.Int64

	mu       sync.Mutex
	hist     history       // guarded by mu
	past     []history     // of earlier lineages, the oldest first; guarded by mu
	lineage  uint64        // guarded by mu
	shardMap *pb.ShardMap  // immutable; replaced under mu
	changed  chan struct{} // closed and replaced with every change; guarded by mu
	nodes    []*Node
	placing  placing           // guarded by mu
	corrupt  map[string]string // keys that are wrong at nodes; guarded by mu

	recovered string // the only voter since the voters were recovered; "": they were not; guarded by mu

	accounts accounts
}

// Start starts a cluster on free ports of 127.0.0.1.
func Start(cfg Config) (*Cluster, error) {
	if cfg.Nodes == 0 {
		cfg.Nodes = 3
		if len(cfg.Addresses) > 0 {
			cfg.Nodes = len(cfg.Addresses)
		}
	}
	if cfg.ID == "" {
		cfg.ID = "clienttest-" + rand.Text()
	}
	if cfg.Replicas == 0 || cfg.Replicas > cfg.Nodes {
		cfg.Replicas = cfg.Nodes
	}
	c := &Cluster{cfg: cfg, lineage: 1, hist: history{keys: map[string]*pb.KeyValue{}}, changed: make(chan struct{})}
	for i := range cfg.Nodes {
		n := &Node{Name: fmt.Sprintf("n%d", i+1), c: c}
		if i < len(cfg.Addresses) {
			n.addr = cfg.Addresses[i]
		}
		if i < len(cfg.Zones) {
			n.zone = cfg.Zones[i]
		}
		c.nodes = append(c.nodes, n)
	}
	c.shardMap = &pb.ShardMap{Lineage: 1, Version: 1, ClusterId: cfg.ID, Replicas: int32(cfg.Replicas)}
	cuts := append([]string{"\x00"}, cfg.Cuts...)
	for i, start := range cuts {
		s := &pb.Shard{Id: uint64(i) + 1, Key: []byte(start), RangeEnd: []byte{0}, Epoch: 1}
		if i+1 < len(cuts) {
			s.RangeEnd = []byte(cuts[i+1])
		}
		for r := range cfg.Replicas {
			s.Replicas = append(s.Replicas, c.nodes[(i+r)%cfg.Nodes].Name)
		}
		c.shardMap.Shards = append(c.shardMap.Shards, s)
	}
	for _, n := range c.nodes {
		if cfg.Stopped {
			break
		}
		if err := n.Restart(); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

// Close kills all nodes.
func (c *Cluster) Close() error {
	for _, n := range c.nodes {
		n.Kill()
	}
	return nil
}

// Endpoints returns the addresses of all nodes.
func (c *Cluster) Endpoints() []string {
	out := make([]string, len(c.nodes))
	for i, n := range c.nodes {
		out[i] = n.Addr()
	}
	return out
}

// Nodes returns the nodes n1, n2, … in order.
func (c *Cluster) Nodes() []*Node { return slices.Clone(c.nodes) }

// Node returns a node by its name, nil if there is none.
func (c *Cluster) Node(name string) *Node {
	for _, n := range c.nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// Put changes a key and returns the revision.
func (c *Cluster) Put(key, value string) int64 { return c.Txn(Op{Key: key, Value: value}) }

// Delete deletes keys in one revision and returns it.
func (c *Cluster) Delete(keys ...string) int64 {
	ops := make([]Op, len(keys))
	for i, k := range keys {
		ops[i] = Op{Key: k, Delete: true}
	}
	return c.Txn(ops...)
}

// Txn makes one revision of several changes and returns it.
func (c *Cluster) Txn(ops ...Op) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.broadcastLocked()
	return c.hist.apply(ops)
}

// Compact makes all revisions below floor unavailable.
func (c *Cluster) Compact(floor int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hist.floor = floor
}

// ForgetDeletes drops the deletes below floor: a client that resumes from an older,
// compacted revision gets a resync.
func (c *Cluster) ForgetDeletes(floor int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hist.deletes = floor
}

// Restore takes the cluster back to an earlier revision, as a new lineage.
// Running watches end with REASON_LINEAGE.
func (c *Cluster) Restore(revision int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.past = append(c.past, c.hist)
	old := c.hist.batches[:revision-1]
	c.hist = history{keys: map[string]*pb.KeyValue{}, batches: slices.Clone(old)}
	for _, kv := range c.hist.state(revision, "", "") {
		c.hist.keys[string(kv.GetKey())] = kv
	}
	c.lineage++
	m := c.cloneMapLocked()
	m.Lineage = c.lineage
	c.shardMap = m
	c.broadcastLocked()
}

// historyLocked returns the history of a lineage: a watch that is served while etcd is
// restored keeps the previous one until it is ended.
func (c *Cluster) historyLocked(lineage uint64) *history {
	if lineage < c.lineage {
		return &c.past[lineage-1]
	}
	return &c.hist
}

// SetReplicas moves a shard to other nodes, by name.
func (c *Cluster) SetReplicas(shard uint64, names ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.cloneMapLocked()
	for i, s := range m.Shards {
		if s.GetId() == shard {
			m.Shards[i] = &pb.Shard{Id: s.GetId(), Key: s.GetKey(), RangeEnd: s.GetRangeEnd(), Epoch: s.GetEpoch() + 1, Replicas: names}
		}
	}
	c.shardMap = m
	c.broadcastLocked()
}

// Revision returns the newest revision.
func (c *Cluster) Revision() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hist.revision()
}

// History returns all batches so far.
func (c *Cluster) History() []Batch {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.hist.batches)
}

// State returns all keys at a revision of a lineage, in key order.
func (c *Cluster) State(lineage uint64, revision int64) []*pb.KeyValue {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.historyLocked(lineage).state(revision, "", "")
}

// Watches returns how many watches have been started, at all nodes.
func (c *Cluster) Watches() int64 { return c.watches.Load() }

// Lists returns how many lists and states have been begun, at all nodes.
func (c *Cluster) Lists() int64 { return c.lists.Load() }

// Deltas returns how many deltas have been begun, at all nodes.
func (c *Cluster) Deltas() int64 { return c.deltas.Load() }

// Resyncs returns how many resyncs have been begun, at all nodes.
func (c *Cluster) Resyncs() int64 { return c.resyncs.Load() }

// ID returns the cluster's ID.
func (c *Cluster) ID() string { return c.cfg.ID }

// At returns the position of a revision in the current history.
func (c *Cluster) At(revision int64) client.Position {
	return client.Position{Cluster: c.cfg.ID, Lineage: c.Lineage(), Revision: revision}
}

// Lineage returns the current lineage.
func (c *Cluster) Lineage() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lineage
}

func (c *Cluster) cloneMapLocked() *pb.ShardMap {
	old := c.shardMap
	return &pb.ShardMap{
		Lineage: old.GetLineage(), Version: old.GetVersion() + 1, ClusterId: old.GetClusterId(), Shards: slices.Clone(old.GetShards()),
		Drained: old.GetDrained(), Replicas: old.GetReplicas(), FeatureLevel: old.GetFeatureLevel(),
		Generation: old.GetGeneration(),
	}
}

func (c *Cluster) broadcastLocked() {
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *Cluster) broadcast() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broadcastLocked()
}

func (c *Cluster) membersLocked() []*pb.Member {
	out := make([]*pb.Member, 0, len(c.nodes))
	for i, n := range c.nodes {
		m := n.member()
		m.Leader = i == 0
		m.Draining = m.GetDraining() || slices.Contains(c.shardMap.GetDrained(), n.Name)
		out = append(out, m)
	}
	return out
}
