package shard

import "time"

// State is a member's state by gossip.
type State uint8

// The states of a member.
const (
	Alive State = iota + 1
	Suspect
	Dead
	Left
)

// MaxWeight is the greatest weight of a node.
const MaxWeight = 100

// Member is a node as gossip shows it.
type Member struct {
	// Name is the node's name, unique in the cluster.
	Name NodeID
	// UUID is the node's incarnation, kept in its data directory. With Name it
	// identifies a raft server: a node that lost its disk gets a new UUID.
	UUID string
	// Addresses, each host:port as others reach it.
	ClientAddress, PeerAddress, RaftAddress, HTTPAddress, GossipAddress string
	// Zone is the node's failure domain; empty: none.
	Zone string
	// Weight is the node's share of shards relative to others: with 2, twice as
	// many as with 1; 0: 1.
	Weight int
	// Version is the version of the software, and Level its feature level (see
	// the constant); 0: from before nodes announced levels.
	Version string
	Level   int
	// ClusterID is the cluster the node belongs to; empty while it is not known.
	ClusterID string
	// BootstrapExpect is how many voters the node waits for when it founds a
	// cluster.
	BootstrapExpect int
	// Voter: the node votes on the shard map, and so receives its newest version directly.
	Voter bool
	// Draining: the node asks to be given no shards.
	Draining bool
	// State is the member's state by gossip, and Since the time at which it began.
	State State
	Since time.Time
}
