package shard

import (
	"slices"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// ID identifies a shard. It is never reused. 0 is no shard.
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
	// Home describes where the planner places the shard.
	Home Home
}

// Home describes where a shard belongs, in addition to its ID and the
// specification. Most shards have the zero Home.
type Home struct {
	// Seat is the ID that rendezvous hashing uses for the shard; 0: its own ID.
	// A part of a split keeps its parent's seat, so that it need not move.
	// Neighbours with the same seat, pins and number of replicas are placed
	// together: they are about to be merged (see [Map.MergeGroups]).
	Seat ID
	// Pins are nodes that have the shard regardless of hashing while they can
	// have shards, in order of preference: the first should own it. Others are
	// added until there are enough.
	Pins []NodeID
	// Replicas is how many nodes should have the shard; 0: as many as the
	// specification says.
	Replicas int
	// Parting is set on the parts of a shard that was cut to divide its watches: the number
	// of watches before the cut. 0: not such a part, or the effect is already known.
	Parting int
	// Whole is the number of watches at which a cut proved not to divide them: they
	// watch the whole shard, and each part would have all of them. 0: a cut may
	// divide them.
	Whole int
}

// IsZero reports whether the home is empty.
func (h Home) IsZero() bool {
	return h.Seat == 0 && len(h.Pins) == 0 && h.Replicas == 0 && !h.marked()
}

// marked reports whether the home records a split for watches.
func (h Home) marked() bool { return h.Parting != 0 || h.Whole != 0 }

func (h Home) clone() Home {
	h.Pins = slices.Clone(h.Pins)
	return h
}

// Seat returns the ID that rendezvous hashing uses for the shard.
func (s *Shard) Seat() ID {
	if s.Home.Seat != 0 {
		return s.Home.Seat
	}
	return s.ID
}

// HomeFor returns the home that places a shard with the ID id where s belongs.
func (s *Shard) HomeFor(id ID) Home {
	h := s.Home.clone()
	if h.Seat = s.Seat(); h.Seat == id {
		h.Seat = 0
	}
	return h
}

// Wanted returns how many replicas the shard should have if there are enough nodes.
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

// Spec holds the settings of the operator: from the founding of the cluster, and later
// from [Configure].
type Spec struct {
	// Ranges are the parts of the key space that are served, ordered and
	// disjoint.
	Ranges []kv.Range
	// Shards is the number of shards to cut them into, as far as the keys allow.
	Shards int
	// Replicas is how many nodes should have each shard.
	Replicas int
	// Owners is how many nodes should own shards, if the replicas allow so few;
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
	// EtcdClusterID is the ID of the served etcd cluster.
	EtcdClusterID uint64
	// Lineage is the history that all revisions belong to. It starts at 1.
	Lineage uint64
	// Origin describes the beginning of the lineage; nil for the first.
	Origin *Origin
	// Generation identifies the raft group that changes the map: it is the version that
	// the group began with. It is 0 for the group that founded the cluster, and greater
	// after each recovery of the voters; see [Map.Recover].
	Generation uint64
	// Version grows with every change: by one, and by more when the voters are recovered.
	Version uint64
	// NextID is the ID of the next new shard.
	NextID ID
	Spec   Spec
	Shards []Shard
	// Drained are the nodes that must not have shards until an operator undrains
	// them, ordered by name. The list also holds stopped nodes, and survives
	// restarts. A node that shuts down drains by gossip (Member.Draining).
	Drained []NodeID
	// Finalized is the feature level that an operator has finalized, or that of the
	// founders; 0: from before LevelSettings. It only grows. See [Map.FinalLevel].
	Finalized int
}

// IsDrained reports whether the node is in Drained.
func (m *Map) IsDrained(n NodeID) bool {
	_, found := slices.BinarySearch(m.Drained, n)
	return found
}

// Origin is the origin of a lineage: the cause that ended the previous history, and
// the evidence. It is not changed once it is in a map.
type Origin struct {
	Cause kv.Cause
	// Reason is the evidence, or the operator's reason, in plain text.
	Reason string
	// Node is the node that proposed the lineage, At the time on its clock.
	Node NodeID
	At   time.Time
	// Was is the last known position of the previous history, Is the position of
	// the new history when it was detected. Either may be zero.
	Was, Is kv.Mark
}
