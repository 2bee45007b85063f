package etcdconn

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Status returns the status of one of etcd's members, under the account of this client. Alarms
// are those of the cluster.
func (c *Conns) Status(ctx context.Context) (status *etcdserverpb.StatusResponse, err error) {
	err = c.Call(ctx, "read etcd's status", c.cfg.CallTimeout, func(ctx context.Context) (err error) {
		status, err = c.Maintenance.Status(ctx, &etcdserverpb.StatusRequest{})
		return err
	})
	return status, err
}
