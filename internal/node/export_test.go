package node

import (
	"github.com/shardwatch/shardwatch/internal/shard"
)

// Recheck is the verifier's.
func (n *Node) Recheck(id shard.ID, from shard.NodeID, etcd bool) { n.verifier.Recheck(id, from, etcd) }
