package admin

import (
	"context"
	"fmt"
	"time"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
)

// LineageOrigin describes the start of a lineage: etcd was restored or replaced.
type LineageOrigin struct {
	// Cause is the evidence: "cluster", "revision", "term", "index", "content" or "operator".
	Cause string
	// Reason describes the finding, or is the reason that the operator gave.
	Reason string
	// Node is the node that detected it, At the time there.
	Node string
	At   time.Time
	// RevisionBefore is the newest known revision of the previous history, Revision the
	// one at which the new history was found; 0: not known.
	RevisionBefore, Revision int64
}

func originFrom(o *pb.LineageOrigin) *LineageOrigin {
	if o == nil {
		return nil
	}
	return &LineageOrigin{
		Cause: o.GetCause(), Reason: o.GetReason(), Node: o.GetNode(), At: o.GetAt().AsTime(),
		RevisionBefore: o.GetRevisionBefore(), Revision: o.GetRevision(),
	}
}

// BumpLineage begins a new lineage that replaces ended: all nodes reload everything,
// watches of etcd's API end as compacted, and those of the native API receive the full
// state. It returns the new lineage, and fails with [client.ErrLineage] if ended is not
// the current one. reason is for logs.
//
// etcdClusterID, in hex as etcdctl prints it, is required if the ID of the etcd cluster
// has changed, and empty otherwise.
func (c *Client) BumpLineage(ctx context.Context, ended uint64, reason, etcdClusterID string) (uint64, error) {
	var out uint64
	// A repetition is rejected, because ended is no longer current.
	err := c.anyNode(ctx, 0, func(ctx context.Context, node pb.AdminServiceClient) error {
		r, err := node.BumpLineage(ctx, &pb.BumpLineageRequest{Lineage: ended, Reason: reason, EtcdClusterId: etcdClusterID})
		out = r.GetLineage()
		return err //nolint:wrapcheck // judged by Call, wrapped below
	})
	if err != nil {
		return 0, fmt.Errorf("begin a new lineage: %w", err)
	}
	return out, nil
}
