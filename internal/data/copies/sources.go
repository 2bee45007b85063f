package copies

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/replica"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// sources are the sources of a node's caches.
type sources struct {
	cfg   Config
	acted atomic.Pointer[shard.Map]    // the map of the replicas; changes under Set.mu
	going atomic.Pointer[predecessors] // caches from which others inherit now; nil: none
}

// chain returns the sources of this node's replica, best first: the nodes before it in
// the map's order, then etcd, then the nodes after it. The latter are for a node
// without a connection to etcd, owner or not: while the clock gets no answer they come
// before etcd, and serve once they read etcd themselves.
func (s *sources) chain(id shard.ID) []replica.Candidate {
	peer := replica.Peer{Shard: id, Self: s.cfg.Self, RequireDirect: true}
	var before, behind, etcd []replica.Candidate
	to := &before
	for _, node := range s.replicasOf(id) {
		if node == s.cfg.Self {
			to = &behind
			continue
		}
		*to = s.appendPeer(*to, node, peer)
	}
	away := s.cfg.Clock.Trouble() != nil
	if s.cfg.Clock.Checked() {
		etcd = []replica.Candidate{{Name: replica.Etcd, Direct: true, Away: away, Source: s.cfg.Etcd}}
	}
	if away {
		return slices.Concat(before, behind, etcd)
	}
	return slices.Concat(before, etcd, behind)
}

// warmSilence is how long a node that sends its state may be silent. It is longer than
// for a followed node: the state is large, no caller waits for a starting node, and the
// alternative is a list at etcd.
const warmSilence = 2 * time.Second

// warm returns the nodes that may have the shard already, and before them its
// predecessors on this node.
func (s *sources) warm(id shard.ID) []replica.Candidate {
	out := s.predecessors()
	for _, node := range s.replicasOf(id) {
		out = s.appendPeer(out, node, replica.Peer{Shard: id, Self: s.cfg.Self, Silence: warmSilence})
	}
	return out
}

// relaySources returns the sources of a relay: any node that has the shard.
func (s *sources) relaySources(id shard.ID) []replica.Candidate {
	var out []replica.Candidate
	for _, node := range s.replicasOf(id) {
		out = s.appendPeer(out, node, replica.Peer{Shard: id, Self: s.cfg.Self, Stateless: true})
	}
	return out
}

// replicasOf returns the nodes that have a shard, or had it before a map that the
// caches here do not match yet: until then its copy continues unchanged.
func (s *sources) replicasOf(id shard.ID) []shard.NodeID {
	for _, m := range []*shard.Map{s.cfg.Placement.Map(), s.acted.Load()} {
		if m == nil {
			continue
		}
		if sh, ok := m.Shard(id); ok {
			return sh.Replicas
		}
	}
	return nil
}

// appendPeer adds a node unless gossip reports it as gone.
func (s *sources) appendPeer(out []replica.Candidate, node shard.NodeID, p replica.Peer) []replica.Candidate {
	if node == s.cfg.Self {
		return out
	}
	link, err := s.cfg.Link(node)
	if err != nil {
		return out
	}
	p.Link = link
	return append(out, replica.Candidate{Name: string(node), Source: &p})
}

// Replica returns this node's copy of a shard, or nil. A copy that is still loading
// does not count: other nodes have the shard.
func (s *Set) Replica(id shard.ID) *cache.Cache {
	if h := s.replica(id); h != nil && h.Ready() && s.cfg.Lineage.Refusal() == nil {
		return h.Cache
	}
	return nil
}

// Arrival returns a channel that is closed when this node may have got a shard that it
// does not have but that a map may assign to it soon; nil: no such map is due.
func (s *Set) Arrival(id shard.ID) <-chan struct{} {
	moved := s.moved.Wait() // before the maps, so that no change is missed
	newest, acted := s.cfg.Placement.Map(), s.acted.Load()
	if newest == nil || acted == nil {
		return nil
	}
	if _, here := acted.Shard(id); here {
		return nil
	}
	switch sh, ok := newest.Shard(id); {
	case ok && !slices.Contains(sh.Replicas, s.cfg.Self):
		return nil
	case !ok && id < newest.NextID: // not even in a map that has not come here yet
		return nil
	}
	return moved
}

// Direct reports whether the copy's events come from etcd itself, and returns a channel
// that is closed when that may have changed.
func (s *Set) Direct(id shard.ID) (bool, <-chan struct{}) {
	h := s.following(id)
	if h == nil {
		return false, nil
	}
	changed := h.Source.Changed() // before Current: nothing is missed
	_, direct := h.Source.Current()
	return direct, changed
}

// Relay returns a running, ready relay of a shard that is not here, and a function that
// releases it.
func (s *Set) Relay(ctx context.Context, id shard.ID) (*cache.Cache, func(), error) {
	if why := s.cfg.Lineage.Refusal(); why != nil {
		return nil, nil, why
	}
	m := s.ServedMap()
	sh, ok := m.Shard(id)
	if !ok {
		return nil, nil, cache.ErrRetired // the map has changed meanwhile
	}
	return s.relay(ctx, m, sh)
}

// ServedMap returns the newest map that the caches match. Shards that a newer map adds
// are not here yet, and shards that it removes still are.
func (s *Set) ServedMap() *shard.Map {
	newest := s.cfg.Placement.Map()
	if acted := s.acted.Load(); acted != nil && newest != nil && acted.Lineage == newest.Lineage {
		return acted
	}
	return newest
}
