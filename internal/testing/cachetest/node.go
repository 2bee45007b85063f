package cachetest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/grpc"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// Node has caches of the shards that a map assigns to it, and relays of the others.
// It is a router.Shards. Create it with NewNode; Stop ends it.
type Node struct {
	Self    shard.NodeID
	history *Script
	ctx     context.Context //nolint:containedctx // the caches' life
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	m, last  *shard.Map                                // guarded by mu; last is the previous map
	replicas map[shard.ID]*held                        // guarded by mu
	relays   map[shard.ID]*held                        // guarded by mu
	conns    map[shard.NodeID]grpc.ClientConnInterface // guarded by mu
	borrowed int                                       // guarded by mu; relays not yet released
	noRelays error                                     // guarded by mu; the error of Relay, if it fails
	relaying chan struct{}                             // guarded by mu; Relay returns when it is closed; nil: at once
	tune     func(*cache.Config)
}

type held struct {
	cache *cache.Cache
	gate  *Gate
	stop  context.CancelFunc
	done  chan struct{}
}

// NewNode returns a node without a map. tune, which may be nil, changes the
// Config of its caches.
func NewNode(self shard.NodeID, h *Script, tune func(*cache.Config)) *Node {
	ctx, cancel := context.WithCancel(context.Background())
	return &Node{
		Self: self, history: h, ctx: ctx, cancel: cancel, tune: tune,
		replicas: make(map[shard.ID]*held), relays: make(map[shard.ID]*held), conns: make(map[shard.NodeID]grpc.ClientConnInterface),
	}
}

// Map returns a map of shards between the cuts, lineage 1, all on the nodes.
func Map(version uint64, cuts []string, nodes ...shard.NodeID) *shard.Map {
	m := &shard.Map{ClusterID: "test", Lineage: 1, Version: version, Spec: shard.Spec{Ranges: []kv.Range{{}}}}
	start := ""
	for _, end := range append(slices.Clone(cuts), "") {
		m.NextID++
		m.Shards = append(m.Shards, shard.Shard{ID: m.NextID, Range: kv.Range{Start: start, End: end}, Epoch: 1, Replicas: nodes})
		start = end
	}
	m.NextID++
	return m
}

// Use starts and ends caches according to m. Caches whose shard is gone or has another range or
// lineage end; their successors inherit from them.
func (n *Node) Use(m *shard.Map) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last, n.m = n.m, m
	var gone []*held
	for _, set := range []map[shard.ID]*held{n.replicas, n.relays} {
		for id, h := range set {
			s, ok := m.Shard(id)
			here := slices.Contains(s.Replicas, n.Self)
			if ok && s.Range == h.cache.Range() && h.cache.Lineage() == m.Lineage && here == (n.replicas[id] == h) {
				continue
			}
			h.stop()
			<-h.done
			gone = append(gone, h)
			delete(set, id)
		}
	}
	for i := range m.Shards {
		s := &m.Shards[i]
		if n.replicas[s.ID] == nil && slices.Contains(s.Replicas, n.Self) {
			n.replicas[s.ID] = n.launchLocked(s, gone)
		}
	}
}

func (n *Node) launchLocked(s *shard.Shard, gone []*held) *held {
	cfg := cache.Defaults()
	h := &held{gate: &Gate{}, done: make(chan struct{})}
	cfg.Range, cfg.Lineage, cfg.Source = s.Range, n.m.Lineage, n.history.Source(h.gate)
	var from []*cache.Cache
	for _, g := range gone {
		if g.cache.Lineage() == cfg.Lineage {
			from = append(from, g.cache)
		}
	}
	cfg.Seed = cache.Inherit(s.Range, false, from...)
	if n.tune != nil {
		n.tune(&cfg)
	}
	var ctx context.Context
	ctx, h.stop = context.WithCancel(n.ctx)
	h.cache = cache.New(cfg)
	if s, ok := cfg.Source.(*Source); ok {
		s.looked = h.cache.Observe
	}
	n.running.Go(func() {
		defer close(h.done)
		_ = h.cache.Run(ctx) // ends with ctx only
	})
	return h
}

// Stop ends all caches.
func (n *Node) Stop() {
	n.cancel()
	n.running.Wait()
}

// Gate returns the gate of a shard's replica or relay.
func (n *Node) Gate(id shard.ID) *Gate {
	n.mu.Lock()
	defer n.mu.Unlock()
	if h := n.replicas[id]; h != nil {
		return h.gate
	}
	if h := n.relays[id]; h != nil {
		return h.gate
	}
	return &Gate{}
}

// Idle fails when a watcher or a relay is still in use.
func (n *Node) Idle() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, set := range []map[shard.ID]*held{n.replicas, n.relays} {
		for id, h := range set {
			if w := h.cache.Status().Watchers; w > 0 {
				return fmt.Errorf("shard %d has %d watchers left", id, w)
			}
		}
	}
	if n.borrowed != 0 {
		return fmt.Errorf("%d relays were not released", n.borrowed)
	}
	return nil
}

// Map implements router.Shards.
func (n *Node) Map() *shard.Map {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.m
}

// MapSince returns the map, and its delta from the map before.
func (n *Node) MapSince(cluster string, version uint64) (*shard.Map, *shard.Delta) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.last == nil || n.last.ClusterID != cluster || n.last.Version != version {
		return n.m, nil
	}
	return n.m, shard.Diff(n.last, n.m)
}

// Replica implements router.Shards.
func (n *Node) Replica(id shard.ID) *cache.Cache {
	n.mu.Lock()
	defer n.mu.Unlock()
	if h := n.replicas[id]; h != nil {
		return h.cache
	}
	return nil
}

// RefuseRelays makes Relay fail with err; nil ends that.
func (n *Node) RefuseRelays(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.noRelays = err
}

// HoldRelays makes Relay wait until release is called.
func (n *Node) HoldRelays() (release func()) {
	held := make(chan struct{})
	n.mu.Lock()
	defer n.mu.Unlock()
	n.relaying = held
	return sync.OnceFunc(func() { close(held) })
}

// Relay implements router.Shards.
func (n *Node) Relay(ctx context.Context, id shard.ID) (*cache.Cache, func(), error) {
	n.mu.Lock()
	if held := n.relaying; held != nil {
		n.mu.Unlock()
		<-held
		n.mu.Lock()
	}
	s, ok := n.m.Shard(id)
	if err := n.noRelays; err != nil || !ok {
		n.mu.Unlock()
		if err == nil {
			err = cache.ErrRetired
		}
		return nil, nil, err
	}
	h := n.replicas[id]
	if h == nil {
		h = n.relays[id]
	}
	if h == nil {
		h = n.launchLocked(&s, nil)
		n.relays[id] = h
	}
	n.borrowed++
	n.mu.Unlock()
	back := sync.OnceFunc(func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.borrowed--
	})
	select {
	case <-h.cache.Ready():
		return h.cache, back, nil
	case <-ctx.Done():
		back()
		return nil, nil, ctx.Err()
	}
}

// Connect makes Conn return conn for a node.
func (n *Node) Connect(node shard.NodeID, conn grpc.ClientConnInterface) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns[node] = conn
}

// Conn implements router.Shards.
func (n *Node) Conn(node shard.NodeID) (grpc.ClientConnInterface, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c := n.conns[node]; c != nil {
		return c, nil
	}
	return nil, &kv.UnavailableError{Why: kv.NotReady, Detail: fmt.Sprintf("node %s is not known", node)}
}

// Endpoints implements router.Shards.
func (n *Node) Endpoints(nodes []shard.NodeID) []string {
	var out []string
	for _, node := range nodes {
		if node != n.Self {
			out = append(out, string(node)+":7400")
		}
	}
	return out
}
