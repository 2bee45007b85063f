package etcdapi

import (
	"cmp"
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// Health answers probes, which have no credentials: it uses the node's own account, and its
// errors do not reveal addresses or accounts.
type Health struct{ api *API }

// HealthOf returns the Health of an API.
func HealthOf(a *API) Health { return Health{a} }

var errNoStatus = errors.New("etcd's status is not available: see the node's log at level debug")

// EtcdStatus returns the status of one of etcd's members.
func (h Health) EtcdStatus(ctx context.Context) (*etcdserverpb.StatusResponse, error) {
	s, err := h.api.cfg.Etcd.Status(ctx)
	if err != nil {
		h.api.cfg.Logger.Debug("probe of etcd's status failed", "error", err)
		return nil, errNoStatus
	}
	return s, nil
}

// probedKey is the key that probes read if it is served.
const probedKey = "health"

var errNotReady = errors.New("this node cannot answer reads now: see /readyz of its HTTP port, and its log at level debug")

// Read fails unless the node itself can answer a read of one key: a serializable read from data not older than
// Config.MaxStaleness, a linearizable read after a read of etcd's revision. Errors are etcd's if it has one for
// the reason.
func (h Health) Read(ctx context.Context, serializable bool) error {
	r := &etcdserverpb.RangeRequest{Serializable: serializable}
	reading, _, err := h.api.read(ctx, r, kv.Single(probedKey))
	var other *kv.NotServedError
	if errors.As(err, &other) && len(other.Served) > 0 {
		reading, _, err = h.api.read(ctx, r, kv.Single(cmp.Or(other.Served[0].Start, "\x00")))
	}
	if err == nil {
		_, err = reading.Count(ctx)
	}
	if err == nil {
		return nil
	}
	if refusal := h.api.refusal(ctx, err); refusal != nil {
		return refusal
	}
	h.api.cfg.Logger.Debug("probe read failed", "error", err)
	return errNotReady
}
