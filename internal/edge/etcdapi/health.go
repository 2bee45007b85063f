package etcdapi

import (
	"cmp"
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/shardwatch/shardwatch/internal/kv"
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

// probedKey is the key that probes read if it is served.
const probedKey = "health"

var errNotReady = errors.New("this node cannot answer reads now: see /readyz of its HTTP port, and its log at level debug")

// Read fails unless the node answers a read of one key itself: a serializable one from data that is not older than
// Config.MaxStaleness, another one after a read of etcd's revision. Errors are etcd's where it has one for
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
	h.api.cfg.Logger.Debug("a probe's read fails", "error", err)
	return errNotReady
}
