package shard

import (
	"slices"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// ID names a shard. It is never used again once the shard is gone. 0 is none.
type ID uint64

// NodeID is a node's name.
type NodeID string

// Shard is one range of keys and the nodes that serve it.
type Shard struct {
	ID    ID
	Range kv.Range
	// Epoch grows with every change of Replicas.
	Epoch uint64
	// Replicas are the nodes that have the shard, in order of preference. The
	// first is the owner: the one that watches etcd.
	Replicas []NodeID
	// Home is where the shard belongs, which is where the planner takes it.
	Home Home
}

// Home is where a shard belongs, as far as that does not follow from its ID and
// from the specification. The zero Home is that of most shards.
type Home struct {
	// Seat is the ID that rendezvous hashing takes for the shard's own; 0: its
	// own. A part of a split keeps its parent's seat, so that it need not move.
	// Neighbours that have one seat and are alike in the rest are placed alike:
	// they are about to become one shard (see [Map.MergeGroups]).
	Seat ID
	// Pins are nodes that have the shard regardless of hashing, as long as they
	// are there, in order of preference: the first is to own it. Others are
	// added until there are enough.
	Pins []NodeID
	// Replicas is how many nodes should have the shard; 0: as many as the
	// specification says.
	Replicas int
	// Parting is how many watches the shard had that this one was cut from to part
	// them; 0: it was not, or it is known what came of it.
	Parting int
	// Whole is how many watches the shard had when it was found that a cut does not
	// part them: they watch all of it, and each part would have all of them. 0: it
	// may part them.
	Whole int
}

// IsZero reports whether the home is empty.
func (h Home) IsZero() bool {
	return h.Seat == 0 && len(h.Pins) == 0 && h.Replicas == 0 && !h.marked()
}

// marked reports whether the home says something about splits for watches.
func (h Home) marked() bool { return h.Parting != 0 || h.Whole != 0 }

func (h Home) clone() Home {
	h.Pins = slices.Clone(h.Pins)
	return h
}

// Seat returns the ID that says where the shard belongs.
func (s *Shard) Seat() ID {
	if s.Home.Seat != 0 {
		return s.Home.Seat
	}
	return s.ID
}

// HomeFor returns the home of a shard with the ID id that is to be where s is.
func (s *Shard) HomeFor(id ID) Home {
	h := s.Home.clone()
	if h.Seat = s.Seat(); h.Seat == id {
		h.Seat = 0
	}
	return h
}

// Wanted returns how many replicas the shard has when there are enough nodes.
func (s *Shard) Wanted(spec Spec) int {
	count := spec.Replicas
	if s.Home.Replicas > 0 {
		count = s.Home.Replicas
	}
	return max(count, len(s.Home.Pins))
}

// Owner returns the node that watches etcd for the shard, or "".
func (s *Shard) Owner() NodeID {
	if len(s.Replicas) == 0 {
		return ""
	}
	return s.Replicas[0]
}

// Spec has the settings of the operator: from the founding of the cluster, and later from
// [Configure].
type Spec struct {
	// Ranges are the parts of the key space that are served, ordered and
	// disjoint.
	Ranges []kv.Range
	// Shards is how many shards to cut them into, as far as the keys allow.
	Shards int
	// Replicas is how many nodes should have each shard.
	Replicas int
	// Owners is how many nodes should own shards, as far as the replicas allow so few;
	// 0: all.
	Owners int
}

// Map is the division of the key space, and the nodes of each shard.
//
// Invariants (see Validate): shards are ordered by key and disjoint; together
// they cover Spec.Ranges and nothing else; IDs are unique and below NextID; a
// shard's replicas are distinct, and so are its pins; drained nodes are in order
// and distinct.
type Map struct {
	// ClusterID is a UUID made when the cluster was founded.
	ClusterID string
	// EtcdClusterID is the etcd cluster that is served.
	EtcdClusterID uint64
	// Lineage is the history all revisions belong to. It starts at 1.
	Lineage uint64
	// Origin is how the lineage came about; nil for the first.
	Origin *Origin
	// Generation names the raft group that changes the map: it is the version that
	// the group began with. It is 0 for the group that founded the cluster, and greater
	// after each recovery of the voters; see [Map.Recover].
	Generation uint64
	// Version grows with every change: by one, and more when the voters are recovered.
	Version uint64
	// NextID is the ID of the next new shard.
	NextID ID
	Spec   Spec
	Shards []Shard
	// Drained are the nodes that shall have no shards until an operator says
	// otherwise, in the order of their names: whether they run or not, and over
	// restarts. A node that shuts down drains by gossip (Member.Draining).
	Drained []NodeID
	// Finalized is the feature level that an operator has finalized, or the founders'
	// own; 0: from before LevelSettings. It only grows. See [Map.FinalLevel].
	Finalized int
}

// IsDrained reports whether the node is one of Drained.
func (m *Map) IsDrained(n NodeID) bool {
	_, found := slices.BinarySearch(m.Drained, n)
	return found
}

// Origin is the origin of a lineage: the cause that ended the history before it, and
// the evidence. It is not changed once it is in a map.
type Origin struct {
	Cause kv.Cause
	// Reason is the evidence, or the operator's reason, for people.
	Reason string
	// Node is the node that proposed it, At the time there.
	Node NodeID
	At   time.Time
	// Was is how far the history before was known to have come; Is where the new
	// one was when it was found. Either may be zero.
	Was, Is kv.Mark
}
