package etcdapi

import (
	"context"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// The headers that name the history of a forwarded call's revision. etcd's
// API has no fields for it: the cluster ID in its headers is a hash of etcd's flags,
// and may be the same after etcd was rebuilt.
const (
	clusterHeader = "shardwatch-cluster"
	lineageHeader = "shardwatch-lineage"
)

// tellHistory sets the headers before the call is forwarded: if the lineage ends during
// the call, the revision must not count as one of the next lineage.
func (a *API) tellHistory(ctx context.Context) {
	if a.cfg.Router == nil {
		return
	}
	if h := a.cfg.Router.History(); h.Lineage != 0 {
		// Fails if the call has ended.
		_ = grpc.SetHeader(ctx, metadata.Pairs(clusterHeader, h.Cluster, lineageHeader, strconv.FormatUint(h.Lineage, 10)))
	}
}
