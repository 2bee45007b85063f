package node

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/replica"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// chain returns the sources of this node's replica, best first: the nodes
// before it in the map's order, then etcd, then the nodes behind it. Those are
// for a node that is cut from etcd, owner or not: while the clock gets no
// answer they come before etcd, and serve once they read etcd themselves.
func (n *Node) chain(id shard.ID) []replica.Candidate {
	peer := replica.Peer{Shard: id, Self: n.self, RequireDirect: true}
	var before, behind, etcd []replica.Candidate
	to := &before
	for _, node := range n.replicasOf(id) {
		if node == n.self {
			to = &behind
			continue
		}
		*to = n.appendPeer(*to, node, peer)
	}
	away := n.clock.trouble() != nil
	if n.clock.checked() {
		etcd = []replica.Candidate{{Name: replica.Etcd, Direct: true, Away: away, Source: n.cfg.Etcd}}
	}
	if away {
		return slices.Concat(before, behind, etcd)
	}
	return slices.Concat(before, etcd, behind)
}

// warmSilence is for how long a node that sends its state may say nothing.
// Longer than one that is followed: it has much to send, to a node that starts
// and that nobody waits for, and the other way is a list at etcd.
const warmSilence = 2 * time.Second

// warm returns the nodes that may have the shard already, and before them what was
// here in its place until now.
func (n *Node) warm(id shard.ID) []replica.Candidate {
	out := n.store.forebears()
	for _, node := range n.replicasOf(id) {
		out = n.appendPeer(out, node, replica.Peer{Shard: id, Self: n.self, Silence: warmSilence})
	}
	return out
}

// relays returns the sources of a relay: any node that has the shard.
func (n *Node) relays(id shard.ID) []replica.Candidate {
	var out []replica.Candidate
	for _, node := range n.replicasOf(id) {
		out = n.appendPeer(out, node, replica.Peer{Shard: id, Self: n.self, Stateless: true})
	}
	return out
}

// replicasOf returns the nodes that have a shard, or had it until a map that the
// caches here are not of yet: until then its copy goes on as it was.
func (n *Node) replicasOf(id shard.ID) []shard.NodeID {
	for _, m := range []*shard.Map{n.placement.Map(), n.store.acted.Load()} {
		if m == nil {
			continue
		}
		if s, ok := m.Shard(id); ok {
			return s.Replicas
		}
	}
	return nil
}

// appendPeer adds a node that gossip does not call gone.
func (n *Node) appendPeer(out []replica.Candidate, node shard.NodeID, p replica.Peer) []replica.Candidate {
	if node == n.self {
		return out
	}
	conn, err := n.peers.conn(node)
	if err != nil {
		return out
	}
	p.Link = conn.link
	return append(out, replica.Candidate{Name: string(node), Source: &p})
}

// Replica implements router.Shards and server.Node. A copy that is still being
// loaded is none yet: others have the shard.
func (n *Node) Replica(id shard.ID) *cache.Cache {
	if h := n.store.replica(id); h != nil && h.ready() && n.lineage.Refusal() == nil {
		return h.cache
	}
	return nil
}

// Arrival implements server.Node.
func (n *Node) Arrival(id shard.ID) <-chan struct{} {
	moved := n.store.moved.Wait() // before the maps: nothing is missed
	newest, acted := n.placement.Map(), n.store.acted.Load()
	if newest == nil || acted == nil {
		return nil
	}
	if _, here := acted.Shard(id); here {
		return nil
	}
	switch s, ok := newest.Shard(id); {
	case ok && !slices.Contains(s.Replicas, n.self):
		return nil
	case !ok && id < newest.NextID: // not even of a map that has not come here yet
		return nil
	}
	return moved
}

// Direct implements server.Node.
func (n *Node) Direct(id shard.ID) (bool, <-chan struct{}) {
	h := n.store.following(id)
	if h == nil {
		return false, nil
	}
	changed := h.source.Changed() // before Current: nothing is missed
	_, direct := h.source.Current()
	return direct, changed
}

// Relay implements router.Shards.
func (n *Node) Relay(ctx context.Context, id shard.ID) (*cache.Cache, func(), error) {
	if why := n.lineage.Refusal(); why != nil {
		return nil, nil, why
	}
	m := shards{n}.Map()
	s, ok := m.Shard(id)
	if !ok {
		return nil, nil, cache.ErrRetired // the map has changed under the caller
	}
	return n.store.relay(ctx, m, s)
}

// Conn implements router.Shards. What others have may be of a history that has
// ended, too.
func (n *Node) Conn(node shard.NodeID) (grpc.ClientConnInterface, error) {
	if why := n.lineage.Refusal(); why != nil {
		return nil, why
	}
	conn, err := n.peers.reach(node)
	if err != nil {
		return nil, err // not a nil *peerConn
	}
	return conn, nil
}

// Endpoints implements router.Shards.
func (n *Node) Endpoints(nodes []shard.NodeID) []string {
	var out []string
	members := n.roster()
	for _, node := range nodes {
		i := slices.IndexFunc(members, func(m shard.Member) bool { return m.Name == node })
		if i >= 0 && node != n.self && !members[i].Draining && members[i].State == shard.Alive {
			out = append(out, members[i].ClientAddress)
		}
	}
	return out
}

// Map implements server.Node: the newest map.
func (n *Node) Map() *shard.Map { return n.placement.Map() }

// MapSince implements server.Node.
func (n *Node) MapSince(cluster string, version uint64) (*shard.Map, *shard.Delta) {
	return n.placement.MapSince(cluster, version)
}

// shards is the node as the router sees it.
type shards struct{ *Node }

// Map implements router.Shards: the newest map that the caches are of. What a
// newer one has is not here yet, and what it no longer has still is.
func (s shards) Map() *shard.Map {
	newest := s.placement.Map()
	if acted := s.store.acted.Load(); acted != nil && newest != nil && acted.Lineage == newest.Lineage {
		return acted
	}
	return newest
}

// Changes implements server.Node.
func (n *Node) Changes() <-chan struct{} { return n.changed.Wait() }

// member returns what gossip says of a node.
func (n *Node) member(name shard.NodeID) (shard.Member, bool) {
	for _, m := range n.members.Members() {
		if m.Name == name {
			return m, true
		}
	}
	return shard.Member{}, false
}
