package shard

import "github.com/shardwatch/shardwatch/internal/kv"

// Command is one change of the shard map, as the voters agree on it.
//
// It is compare-and-swap on the map's version, and it carries a request ID: a
// proposer that does not know its result may propose the same command again.
type Command struct {
	// RequestID is a UUID, the same in every repetition.
	RequestID string
	// IfVersion is the map version that the command was made for; 0: no map
	// yet.
	IfVersion uint64
	// Change is the change to apply.
	Change Change
}

// Change is the change that a command makes: [Found], [Assign], [Split], [Merge], [Rehome],
// [Drain], [Renew], [Configure] or [Finalize].
//
// A change holds decisions, never the input of a decision. The planner may differ between versions
// of the software, but replayed commands must have the same effect.
type Change interface {
	apply(m *Map) (*Map, error)
}

// Found makes the first map.
type Found struct {
	// ClusterID is the new cluster's UUID.
	ClusterID string
	// EtcdClusterID is the ID of the served etcd cluster.
	EtcdClusterID uint64
	// Spec is the operator's specification.
	Spec Spec
	// Cuts are the keys at which the served ranges are cut, in order, each
	// inside a range and not at its start.
	Cuts []string
	// Replicas are the replicas of the shards, in key order; empty: no node has
	// a shard yet.
	Replicas [][]NodeID
	// Finalized is the feature level that all founders have; 0 when it is below
	// LevelSettings.
	Finalized int
}

// Assign gives new replicas to one or more shards.
type Assign struct {
	Moves []Move
}

// Move is the new list of replicas of one shard, in order of preference. At least one.
type Move struct {
	Shard    ID
	Replicas []NodeID
}

// Split cuts a shard into len(At)+1 parts. The parts are new shards with new
// IDs and epoch 1, on the replicas of the old shard, with its pins and its
// number of replicas.
type Split struct {
	Shard ID
	// At are the cuts, in order, each inside the shard and not at its start.
	At []string
	// Stay keeps the first part where the shard belonged. Otherwise each part
	// belongs where its own ID says.
	Stay bool
	// Watches is how many watches the shard has, if the cut is made to divide
	// them; see Home.Parting. 0: the cut has another reason.
	Watches int
}

// Merge merges adjacent shards of one served range. The result is a new shard
// with a new ID and epoch 1. It belongs where the first of the shards belonged.
//
// A merge moves no data: each replica of the result must already have every
// part. A [Rehome] makes the planner bring this about.
type Merge struct {
	// Shards are the parts, two or more, in the order of their keys.
	Shards []ID
	// Replicas are the replicas of the new shard, in order of preference: at
	// least one, and each a replica of all the parts.
	Replicas []NodeID
}

// Rehome sets the homes of shards. It does not change their replicas: the
// planner moves them to their homes step by step, and keeps them there.
type Rehome struct {
	// Homes holds at least one home, and at most one for each shard.
	Homes []ShardHome
}

// ShardHome is one shard's home.
type ShardHome struct {
	Shard ID
	Home  Home
}

// Drain forbids nodes to have shards, or with Undo allows it again. It may be
// repeated, also for nodes that no member has seen.
type Drain struct {
	// Nodes holds at least one node, in any order.
	Nodes []NodeID
	Undo  bool
}

// Renew begins the next lineage: etcd has another history from now on.
type Renew struct {
	// Lineage is the lineage that has ended. The change is refused with a [LineageError] if it
	// is not the map's: another node has already renewed it.
	Lineage uint64
	// EtcdClusterID is the ID of the etcd cluster that is served from now on.
	EtcdClusterID uint64
	Origin        Origin
}

// Configure changes the settings of the cluster: how many replicas each shard has, how many nodes own
// shards, and which keys are served. A shard that lies entirely in a served range stays unchanged. A
// shard that lies partly in served ranges is cut: each served part is a new shard with a new ID, on
// the same replicas, where the old shard belonged. Served keys without a shard become new shards
// without replicas, one for each gap. All other shards end.
type Configure struct {
	// Replicas is the new Spec.Replicas.
	Replicas int
	// Owners is the new Spec.Owners.
	Owners int
	// Ranges are the new Spec.Ranges.
	Ranges []kv.Range
}

// Finalize makes a feature level mandatory: nodes with software that does not support it can no
// longer join.
type Finalize struct {
	// Level is above the finalized level of the map.
	Level int
}
