package client

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/shardwatch/shardwatch/client/internal/nodes"
)

// Count returns how many keys a range has, and at which revision. It transfers no keys.
// It uses etcd's API, which supports neither [AtPosition] nor the age of [Serializable].
// It tries one node after another for Config.RetryFor, then fails with [ErrUnavailable].
func (c *Client) Count(ctx context.Context, r Range, opts ...ReadOption) (keys, revision int64, err error) {
	if err := r.validate(); err != nil {
		return 0, 0, fmt.Errorf("count: %w", err)
	}
	var o readOptions
	for _, opt := range opts {
		opt.list(&o)
	}
	if o.history != (history{}) || o.maxStaleness != 0 {
		return 0, 0, fmt.Errorf("count: %w: AtPosition and the age of Serializable are not supported: use AtRevision and Serializable(0)", ErrInvalid)
	}
	request := &etcdserverpb.RangeRequest{CountOnly: true, Revision: o.revision, Serializable: o.serializable}
	request.Key, request.RangeEnd = r.wire()
	err = c.read(ctx, r, 0, func(ctx context.Context, n *nodes.Node) error {
		response, err := etcdserverpb.NewKVClient(n.Conn).Range(ctx, request)
		keys, revision = response.GetCount(), response.GetHeader().GetRevision()
		return err //nolint:wrapcheck // judged and wrapped by read
	})
	switch { // etcd's API does not report the available revisions
	case errors.Is(err, rpctypes.ErrGRPCCompacted):
		err = &CompactedError{Requested: o.revision}
	case errors.Is(err, rpctypes.ErrGRPCFutureRev):
		err = &FutureRevisionError{Requested: o.revision}
	}
	if err != nil {
		return 0, 0, fmt.Errorf("count %v: %w", r, err)
	}
	if o.revision != 0 {
		revision = o.revision
	}
	return keys, revision, nil
}
