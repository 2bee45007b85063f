package admin

import (
	"context"
	"fmt"
	"time"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
)

// LineageOrigin is how a lineage came about: etcd was restored or replaced.
type LineageOrigin struct {
	// Cause is by what that was recognised: "cluster", "revision", "term",
	// "index", "content" or "operator".
	Cause string
	// Reason is what was found, or what the operator gave as reason.
	Reason string
	// Node is the node that found it, At the time there.
	Node string
	At   time.Time
	// RevisionBefore is the newest revision known of the history before, Revision
	// where the new one was; 0: not known.
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

// BumpLineage begins a new lineage in the place of ended: all nodes load
// everything again, etcd's watches end as compacted and those of this API are
// sent the whole state. It returns the new one, and fails with [client.ErrLineage] when
// ended is not the present one. reason is for logs.
//
// etcdClusterID, in hex as etcdctl prints it, is needed when etcd's cluster has
// another ID than before, and else empty.
func (c *Client) BumpLineage(ctx context.Context, ended uint64, reason, etcdClusterID string) (uint64, error) {
	var out uint64
	// Repeated, it is refused: the lineage that ends is named.
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
