package mapchange

import (
	"fmt"
	"slices"
	"strings"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// Cluster is the cluster state that an order is checked against.
type Cluster struct {
	// Map is the shard map; not nil.
	Map *shard.Map
	// Members are the nodes that gossip sees.
	Members []shard.Member
	// Voters are the voters; nil: not known.
	Voters []shard.NodeID
	// Copies are the nodes' reports of their shards. Missing nodes were not asked,
	// or did not answer.
	Copies map[shard.NodeID]map[shard.ID]Copy
	// Ending counts, for each node, the watches of clients that would end if only
	// the keys of a [Settings] were served. Missing nodes were not asked, or did not
	// answer.
	Ending map[shard.NodeID]Ending
}

// Ending counts watches that would end, by the API of the client.
type Ending struct{ Native, Etcd int64 }

// Copy is a node's copy of a shard.
type Copy struct {
	// Ready: it serves. Otherwise it is being loaded.
	Ready bool
	// Keys is the number of keys, Bytes their memory with their values and history.
	// While a copy is being loaded, Bytes is the memory of the part received so far.
	Keys, Bytes int64
}

// shardNamed returns the shard that a field of a request names.
func (c *Cluster) shardNamed(field string, id shard.ID) (shard.Shard, error) {
	if s, ok := c.Map.Shard(id); ok {
		return s, nil
	}
	why := fmt.Sprintf("there is no shard %d", id)
	if id != 0 && id < c.Map.NextID {
		why += " any more: it was split or merged"
	}
	return shard.Shard{}, &kv.InvalidError{Field: field, Reason: why + "; there are " + shardList(c.Map)}
}

// shardList lists the first few shards of the map, for messages.
func shardList(m *shard.Map) string {
	const enough = 16
	var out []string
	for i := range m.Shards {
		if i == enough {
			return fmt.Sprintf("%s and %d more", strings.Join(out, ", "), len(m.Shards)-enough)
		}
		out = append(out, fmt.Sprint(m.Shards[i].ID))
	}
	return strings.Join(out, ", ")
}

// memberNamed returns the member that a field of a request names.
func (c *Cluster) memberNamed(field string, node shard.NodeID) (shard.Member, error) {
	for _, m := range c.Members {
		if m.Name == node {
			return m, nil
		}
	}
	var known []shard.NodeID
	for _, m := range c.Members {
		if m.State != shard.Left {
			known = append(known, m.Name)
		}
	}
	slices.Sort(known)
	return shard.Member{}, &kv.InvalidError{Field: field, Reason: fmt.Sprintf("there is no node %q; there are %s", node, names(known))}
}

// takes reports whether the member may be given shards.
func (c *Cluster) takes(m *shard.Member) bool {
	return (m.State == shard.Alive || m.State == shard.Suspect) && !m.Draining && !c.Map.IsDrained(m.Name)
}

// joins reports whether the shard will be merged with a neighbour.
func (c *Cluster) joins(id shard.ID) bool {
	return c.Map.Joins(slices.IndexFunc(c.Map.Shards, func(s shard.Shard) bool { return s.ID == id }))
}

// moving returns the reason why a shard has a pending change; "": it has none.
func (c *Cluster) moving(s *shard.Shard) string {
	if c.joins(s.ID) {
		return fmt.Sprintf("shard %d is about to be merged with its neighbour", s.ID)
	}
	for _, n := range s.Replicas {
		if copies, asked := c.Copies[n]; asked && !copies[s.ID].Ready {
			return fmt.Sprintf("shard %d is still being loaded at %s", s.ID, n)
		}
	}
	return ""
}

// rests adds a doubt when the shard has a pending change.
func (c *Cluster) rests(field string, s *shard.Shard, doubts []*RefusedError) []*RefusedError {
	if why := c.moving(s); why != "" {
		return append(doubts, doubt(field, "%s: wait until cachectl shards shows no pending change of it", why))
	}
	return doubts
}
