package mapchange

import (
	"fmt"
	"slices"
	"strings"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// Cluster is the state that an order is checked against.
type Cluster struct {
	// Map is the shard map; not nil.
	Map *shard.Map
	// Members are those that gossip sees.
	Members []shard.Member
	// Voters are the voters; nil: not known.
	Voters []shard.NodeID
	// Copies are the nodes' reports of the shards that they have. A missing node was
	// not asked, or did not answer.
	Copies map[shard.NodeID]map[shard.ID]Copy
	// Ending are the watches of clients that would end on each node if the keys were
	// served that a [Settings] names. A node that is missing was not asked, or gave
	// no answer.
	Ending map[shard.NodeID]Ending
}

// Ending are watches that would end, by the API that they came by.
type Ending struct{ Native, Etcd int64 }

// Copy is a node's copy of a shard.
type Copy struct {
	// Ready: it serves. Else it is being loaded.
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

// shardList names the map's shards, as far as a person would read on.
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

// takes reports whether the member can have shards.
func (c *Cluster) takes(m *shard.Member) bool {
	return (m.State == shard.Alive || m.State == shard.Suspect) && !m.Draining && !c.Map.IsDrained(m.Name)
}

// joins reports whether the shard is about to be merged with a neighbour.
func (c *Cluster) joins(id shard.ID) bool {
	return c.Map.Joins(slices.IndexFunc(c.Map.Shards, func(s shard.Shard) bool { return s.ID == id }))
}

// moving says why a shard is not at rest; "": it is.
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

// rests adds a doubt when the shard is not at rest.
func (c *Cluster) rests(field string, s *shard.Shard, doubts []*RefusedError) []*RefusedError {
	if why := c.moving(s); why != "" {
		return append(doubts, doubt(field, "%s: wait until cachectl shards shows no pending change of it", why))
	}
	return doubts
}
