package etcdapi

import (
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/shardwatch/shardwatch/internal/pump"
)

// RegisterWatch registers the Watch service alone.
func (d *Door) RegisterWatch(r grpc.ServiceRegistrar, pumps *pump.Connections) {
	etcdserverpb.RegisterWatchServer(r, &watchService{door: d, pumps: pumps})
}

// BoundOpens sets how many watches are opened at a time, before any is.
func (d *Door) BoundOpens(n int) { d.opens = make(chan struct{}, n) }
