package etcdapi

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Health answers probes, which come without credentials: it asks as the node itself, and its
// errors tell nothing of addresses and accounts.
type Health struct{ api *API }

// HealthOf returns the Health of an API.
func HealthOf(a *API) Health { return Health{a} }

var errNoStatus = errors.New("etcd does not tell this node its status: the node's log says why")

// EtcdStatus returns the status of one of etcd's members.
func (h Health) EtcdStatus(ctx context.Context) (*etcdserverpb.StatusResponse, error) {
	s, err := h.api.cfg.Etcd.Status(ctx)
	if err != nil {
		h.api.cfg.Logger.Debug("a probe does not learn etcd's status", "error", err)
		return nil, errNoStatus
	}
	return s, nil
}
