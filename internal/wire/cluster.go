package wire

import (
	"context"

	"google.golang.org/grpc/metadata"
)

// clusterHeader has the ID of the caller's cluster in calls between nodes.
const clusterHeader = "shardwatch-cluster"

// NameCluster returns ctx for a call to another node, with the ID of the caller's
// cluster; "": not known, and not sent.
func NameCluster(ctx context.Context, clusterID string) context.Context {
	if clusterID == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, clusterHeader, clusterID)
}

// NamedCluster returns the cluster ID that the caller has sent; "": none.
func NamedCluster(ctx context.Context) string {
	if ids := metadata.ValueFromIncomingContext(ctx, clusterHeader); len(ids) == 1 {
		return ids[0]
	}
	return ""
}
