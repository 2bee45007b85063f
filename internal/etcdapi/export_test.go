package etcdapi

import (
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/shardwatch/shardwatch/internal/fair"
	"github.com/shardwatch/shardwatch/internal/pump"
)

// RegisterWatch registers the Watch service alone.
func (d *Door) RegisterWatch(r grpc.ServiceRegistrar, pumps *pump.Pumps) {
	etcdserverpb.RegisterWatchServer(r, &watchService{door: d, pumps: pumps})
}

// BoundOpens sets how many watches are opened at a time, before any is.
func (d *Door) BoundOpens(n int) { d.cfg.Openings = fair.NewGate(n, MaxOpensWaiting) }

// LookForHomes sets how long a home for a watch is looked for, before any is.
func (d *Door) LookForHomes(limit time.Duration) { d.homeFor = limit }
