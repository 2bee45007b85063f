package node

import (
	"context"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// Recheck is the verifier's.
func (n *Node) Recheck(id shard.ID, from shard.NodeID, etcd bool) { n.verifier.Recheck(id, from, etcd) }

// BumpLineage is that of the keeper of the lineage.
func (n *Node) BumpLineage(ctx context.Context, ended uint64, reason string, accept uint64) (uint64, error) {
	return n.lineage.BumpLineage(ctx, ended, reason, accept)
}

// Permits returns how many permits to read much at etcd this node has given
// out, and how many are waited for here.
func (n *Node) Permits() (out, waiting int) { return n.permits.grants.count() }
