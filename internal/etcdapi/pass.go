package etcdapi

import (
	"github.com/cespare/xxhash/v2"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// memberID is the ID under which a node is a member of the cluster: it follows
// from its name, so that all nodes say the same.
func memberID(name shard.NodeID) uint64 { return xxhash.Sum64String(string(name)) }
