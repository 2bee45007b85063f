package client

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/client/internal/nodes"
)

// GetResult is the state of one key, which may not exist, at a revision.
type GetResult struct {
	// KV is nil when the key does not exist.
	KV *KeyValue
	// Revision is the revision at which the key was read.
	Revision int64
	// Lineage is the history the revision belongs to, as Cluster counts it.
	Lineage uint64
	Cluster string
	// FreshAt is a time at which etcd had no newer revision; the zero time: not known,
	// or an exact revision was requested.
	FreshAt time.Time
}

// Position returns Revision with the history it belongs to.
func (r *GetResult) Position() Position { return Position{r.Cluster, r.Lineage, r.Revision} }

// Get reads one key. A key that does not exist is no error. It tries one node after
// another for Config.RetryFor, then fails with [ErrUnavailable].
func (c *Client) Get(ctx context.Context, key string, opts ...ReadOption) (GetResult, error) {
	r := Key(key)
	if err := r.validate(); err != nil {
		return GetResult{}, fmt.Errorf("get: %w", err)
	}
	var o readOptions
	for _, opt := range opts {
		opt.list(&o)
	}
	req := &pb.GetRequest{Key: []byte(key), Revision: o.revision, Consistency: o.consistency(), ClusterId: o.history.cluster, Lineage: o.history.lineage}
	if o.maxStaleness > 0 {
		req.MaxStaleness = durationpb.New(o.maxStaleness)
	}
	var out GetResult
	err := c.read(ctx, r, 0, func(ctx context.Context, n *nodes.Node) error {
		resp, err := pb.NewCacheServiceClient(n.Conn).Get(ctx, req)
		if err != nil {
			return err //nolint:wrapcheck // judged and wrapped by read
		}
		out = GetResult{Revision: resp.GetRevision(), Lineage: resp.GetLineage(), Cluster: resp.GetClusterId()}
		if !o.history.fits(out.Position().history()) {
			return o.history.wrong(out.Position().history())
		}
		if age := resp.GetAge(); age != nil {
			out.FreshAt = time.Now().Add(-age.AsDuration())
		}
		if resp.GetKv() != nil {
			kv := keyValueFrom(resp.GetKv())
			out.KV = &kv
		}
		return nil
	})
	if err != nil {
		return GetResult{}, fmt.Errorf("get %q: %w", key, err)
	}
	return out, nil
}

func (o *readOptions) consistency() pb.Consistency {
	switch {
	case o.revision != 0 || o.page != nil:
		return pb.Consistency_CONSISTENCY_UNSPECIFIED
	case o.serializable:
		return pb.Consistency_CONSISTENCY_SERIALIZABLE
	}
	return pb.Consistency_CONSISTENCY_LINEARIZABLE
}
