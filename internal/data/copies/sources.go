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

// sources are those that the caches of a node follow.
type sources struct {
	cfg   Config
	acted atomic.Pointer[shard.Map]    // that replicas are of; changes under Set.mu
	going atomic.Pointer[predecessors] // that others inherit from at the moment; nil: none
}

// chain returns the sources of this node's replica, best first: the nodes
// before it in the map's order, then etcd, then the nodes behind it. Those are
// for a node that is cut from etcd, owner or not: while the clock gets no
// answer they come before etcd, and serve once they read etcd themselves.
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

// warmSilence is for how long a node that sends its state may say nothing.
// Longer than one that is followed: it has much to send, to a node that starts
// and that no caller waits for, and the other way is a list at etcd.
const warmSilence = 2 * time.Second

// warm returns the nodes that may have the shard already, and before them what was
// here in its place until now.
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

// replicasOf returns the nodes that have a shard, or had it until a map that the
// caches here are not of yet: until then its copy continues unchanged.
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

// appendPeer adds a node that gossip does not call gone.
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

// Replica returns this node's copy of a shard, or nil. A copy that is still being
// loaded is none yet: others have the shard.
func (s *Set) Replica(id shard.ID) *cache.Cache {
	if h := s.replica(id); h != nil && h.Ready() && s.cfg.Lineage.Refusal() == nil {
		return h.Cache
	}
	return nil
}

// Arrival returns a channel that is closed when this node may have a shard that it has
// not, and that a map is about to give it; nil when there is none such.
func (s *Set) Arrival(id shard.ID) <-chan struct{} {
	moved := s.moved.Wait() // before the maps: nothing is missed
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
	case !ok && id < newest.NextID: // not even of a map that has not come here yet
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
// gives it back.
func (s *Set) Relay(ctx context.Context, id shard.ID) (*cache.Cache, func(), error) {
	if why := s.cfg.Lineage.Refusal(); why != nil {
		return nil, nil, why
	}
	m := s.ServedMap()
	sh, ok := m.Shard(id)
	if !ok {
		return nil, nil, cache.ErrRetired // the map has changed under the caller
	}
	return s.relay(ctx, m, sh)
}

// ServedMap returns the newest map that the caches are of. What a
// newer one has is not here yet, and what it no longer has still is.
func (s *Set) ServedMap() *shard.Map {
	newest := s.cfg.Placement.Map()
	if acted := s.acted.Load(); acted != nil && newest != nil && acted.Lineage == newest.Lineage {
		return acted
	}
	return newest
}
