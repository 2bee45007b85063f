package etcdconn

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/metadata"
)

// Status returns the status of one of etcd's members, under the account of this client. The
// alarms are those of the whole cluster.
func (c *Conns) Status(ctx context.Context) (status *etcdserverpb.StatusResponse, err error) {
	err = c.Call(ctx, "read etcd's status", c.cfg.CallTimeout, func(ctx context.Context) (err error) {
		if asked, ok := metadata.FromOutgoingContext(ctx); ok { // a member also reports its status without a leader
			asked = asked.Copy()
			asked.Delete(rpctypes.MetadataRequireLeaderKey)
			ctx = metadata.NewOutgoingContext(ctx, asked)
		}
		status, err = c.Maintenance.Status(ctx, &etcdserverpb.StatusRequest{})
		return err
	})
	return status, err
}
