package etcdapi

import (
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/shardwatch/shardwatch/internal/edge/pump"
)

// RegisterWatch registers the Watch service alone.
func (a *API) RegisterWatch(r grpc.ServiceRegistrar, pumps *pump.Pumps) {
	etcdserverpb.RegisterWatchServer(r, a.Service(pumps))
}
