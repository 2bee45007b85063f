package node

import (
	"context"
	"slices"

	"google.golang.org/grpc"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/control/mapchange"
	"github.com/shardwatch/shardwatch/internal/data/copies"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// shards is the node as the router sees it.
type shards struct {
	*copies.Set
	n *Node
}

// Map implements router.Shards.
func (s shards) Map() *shard.Map { return s.ServedMap() }

// Conn implements router.Shards. It fails while the lineage is refused, because
// other nodes' data may also belong to a history that has ended.
func (s shards) Conn(node shard.NodeID) (grpc.ClientConnInterface, error) {
	if why := s.n.lineage.Refusal(); why != nil {
		return nil, why
	}
	return s.n.peers.Reachable(node)
}

// Endpoints implements router.Shards.
func (s shards) Endpoints(nodes []shard.NodeID) []string {
	var out []string
	members := s.n.roster.All()
	for _, node := range nodes {
		i := slices.IndexFunc(members, func(m shard.Member) bool { return m.Name == node })
		if i >= 0 && node != s.n.self && !members[i].Draining && members[i].State == shard.Alive {
			out = append(out, members[i].ClientAddress)
		}
	}
	return out
}

// serverView is the node as its server sees it.
type serverView struct {
	*Node
	*copies.Set
	*clock
}

// Replica implements server.Node.
func (v serverView) Replica(id shard.ID) *cache.Cache { return v.Set.Replica(id) }

// Replica returns this node's copy of a shard, once it is loaded; nil otherwise.
func (n *Node) Replica(id shard.ID) *cache.Cache { return n.copies.Replica(id) }

// ChangeMap carries out a shard map change of an operator; see admin.Operator.
func (n *Node) ChangeMap(ctx context.Context, o mapchange.Order, planned func(*mapchange.Plan) error, progress func(*mapchange.Progress) error) error {
	return n.operator.ChangeMap(ctx, o, planned, progress)
}

// Map implements server.Node: the newest map.
func (n *Node) Map() *shard.Map { return n.placement.Map() }

// MapSince implements server.Node.
func (n *Node) MapSince(cluster string, version uint64) (*shard.Map, *shard.Delta) {
	return n.placement.MapSince(cluster, version)
}

// Changes implements server.Node.
func (n *Node) Changes() <-chan struct{} { return n.changed.Wait() }
