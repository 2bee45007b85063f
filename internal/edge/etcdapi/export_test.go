package etcdapi

import (
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/shardwatch/shardwatch/internal/edge/pump"
)

// RegisterWatch registers the Watch service alone.
func (d *Door) RegisterWatch(r grpc.ServiceRegistrar, pumps *pump.Pumps) {
	etcdserverpb.RegisterWatchServer(r, d.Service(pumps))
}
