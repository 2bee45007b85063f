package shard

import "github.com/shardwatch/shardwatch/internal/kv"

// Command is one change of the shard map, as the voters agree on it.
//
// It is compare-and-swap on the map's version, and it carries the name of the
// request: a proposer that does not know its result may propose the
// same again.
type Command struct {
	// RequestID is a UUID, the same in every repetition.
	RequestID string
	// IfVersion is the version of the map the command was made for; 0: there
	// is none yet.
	IfVersion uint64
	// Change is the change to apply.
	Change Change
}

// Change is the change that a command makes: [Found], [Assign], [Split], [Merge], [Rehome],
// [Drain], [Renew], [Configure] or [Finalize].
//
// A change holds decisions, never the input of one. The planner may differ between versions of the
// software, and the commands that voters replay must not.
type Change interface {
	apply(m *Map) (*Map, error)
}

// Found makes the first map.
type Found struct {
	// ClusterID is the new cluster's UUID.
	ClusterID string
	// EtcdClusterID is the etcd cluster that is served.
	EtcdClusterID uint64
	// Spec is the operator's specification.
	Spec Spec
	// Cuts are where the served ranges are cut, in order, each inside a range
	// and not at its start.
	Cuts []string
	// Replicas are those of the shards, in key order; or empty: no node has
	// any shard yet.
	Replicas [][]NodeID
	// Finalized is the feature level that all founders have; 0 when it is below
	// LevelSettings.
	Finalized int
}

// Assign gives shards new replicas, several at once.
type Assign struct {
	Moves []Move
}

// Move is one shard's new replicas, in order of preference. At least one.
type Move struct {
	Shard    ID
	Replicas []NodeID
}

// Split cuts a shard in len(At)+1 parts. The parts are new shards with new
// IDs and epoch 1, on the replicas of the old one, with its pins and its number
// of replicas.
type Split struct {
	Shard ID
	// At are the cuts, in order, each inside the shard and not at its start.
	At []string
	// Stay lets the first part belong where the shard belonged. Else all parts
	// belong where their own IDs say.
	Stay bool
	// Watches is how many watches the shard has, when it is cut to part them; see
	// Home.Parting. 0: it is cut for another reason.
	Watches int
}

// Merge makes one shard of several that lie side by side in one served range.
// It is a new shard with a new ID and epoch 1. It belongs where the first of
// them did.
//
// A merge moves no data: each of its replicas must have every part already.
// A [Rehome] brings that about.
type Merge struct {
	// Shards are the parts, two or more, in the order of their keys.
	Shards []ID
	// Replicas are those of the new shard, in order of preference. At least one,
	// and each a replica of all the parts.
	Replicas []NodeID
}

// Rehome sets the homes of shards. Their replicas do not change with
// it: the planner takes them there step by step, and leaves them there.
type Rehome struct {
	// Homes has at least one, and none twice.
	Homes []ShardHome
}

// ShardHome is one shard's home.
type ShardHome struct {
	Shard ID
	Home  Home
}

// Drain says of nodes that they shall have no shards, or with Undo, that they may
// have some again. Repeating it is allowed, also for nodes that no member
// has seen.
type Drain struct {
	// Nodes are at least one, in any order.
	Nodes []NodeID
	Undo  bool
}

// Renew begins the next lineage: etcd's history is another one from now on.
type Renew struct {
	// Lineage is the one that has ended. It is refused with a [LineageError] when it is not the
	// map's: another node has already renewed it.
	Lineage uint64
	// EtcdClusterID is the etcd cluster that is served from now on.
	EtcdClusterID uint64
	Origin        Origin
}

// Configure changes the settings of the cluster: how many replicas each shard has, how many
// nodes own shards, and which keys are served. A shard that lies in a served range as a whole stays as
// it is. One that does so in part is cut: each part is a new shard with a new ID, on
// the same replicas, where the old one belonged. Keys that no shard had yet become
// new shards without replicas, one for each gap. All other shards end.
type Configure struct {
	// Replicas is Spec.Replicas from now on.
	Replicas int
	// Owners is Spec.Owners from now on.
	Owners int
	// Ranges are Spec.Ranges from now on.
	Ranges []kv.Range
}

// Finalize makes a feature level mandatory: nodes with software that does not know it cannot join
// again.
type Finalize struct {
	// Level is above the level that is finalized.
	Level int
}
