package wire

import (
	"context"

	"google.golang.org/grpc/metadata"
)

// clusterHeader names the caller's cluster in calls between nodes.
const clusterHeader = "shardwatch-cluster"

// NameCluster returns ctx for a call to another node, which names the caller's
// cluster; "" is not known, and not named.
func NameCluster(ctx context.Context, clusterID string) context.Context {
	if clusterID == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, clusterHeader, clusterID)
}

// NamedCluster returns the cluster that the caller has named; "": none.
func NamedCluster(ctx context.Context) string {
	if ids := metadata.ValueFromIncomingContext(ctx, clusterHeader); len(ids) == 1 {
		return ids[0]
	}
	return ""
}
