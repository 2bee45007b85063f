package node

import (
	"context"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// Recheck exports the verifier's Recheck.
func (n *Node) Recheck(id shard.ID, from shard.NodeID, etcd bool) { n.verifier.Recheck(id, from, etcd) }

// BumpLineage exports the lineage keeper's.
func (n *Node) BumpLineage(ctx context.Context, ended uint64, reason string, accept uint64) (uint64, error) {
	return n.lineage.BumpLineage(ctx, ended, reason, accept)
}

// Permits returns how many permits for large reads of etcd this node has
// granted, and how many requests wait for one.
func (n *Node) Permits() (out, waiting int) { return n.permits.grants.count() }
