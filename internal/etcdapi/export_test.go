package etcdapi

import (
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// RegisterWatch registers the Watch service alone.
func (d *Door) RegisterWatch(r grpc.ServiceRegistrar) {
	etcdserverpb.RegisterWatchServer(r, &watchService{door: d})
}
