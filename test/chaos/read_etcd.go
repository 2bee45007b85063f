package chaos

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// rangeRequest requests a range in etcd's default order. The explicit order distinguishes the run's
// requests from the nodes' own in etcd's log: nodes forward requests that they cannot answer.
func rangeRequest(r kv.Range) *etcdserverpb.RangeRequest {
	key, end := r.Etcd()
	return &etcdserverpb.RangeRequest{Key: key, RangeEnd: end, SortOrder: etcdserverpb.RangeRequest_ASCEND}
}

// askEtcd sends a question by etcd's API.
func (r *reader) askEtcd(ctx context.Context, q question, out *answer) error {
	req := rangeRequest(q.r)
	req.Revision, req.Serializable = int64(q.at), q.stale > 0
	req.Limit, req.CountOnly = int64(q.limit), q.countOnly
	c := etcdserverpb.NewKVClient(r.conn)
	var a *etcdserverpb.RangeResponse
	var err error
	if q.streamed {
		out.Name += ", streamed"
		a, err = streamed(ctx, c, req)
	} else {
		a, err = c.Range(ctx, req, grpc.WaitForReady(true))
	}
	if err != nil {
		return err
	}
	out.Revision = kv.Revision(a.GetHeader().GetRevision())
	if q.at > 0 {
		// The header has etcd's current revision; the keys are of q.at.
		out.now, out.Revision = out.Revision, q.at
	}
	out.Items = itemsFromEtcd(a.GetKvs())
	out.counted, out.count, out.more, out.countOnly = true, a.GetCount(), a.GetMore(), q.countOnly
	return nil
}

// streamed combines the chunks of a streamed answer.
func streamed(ctx context.Context, c etcdserverpb.KVClient, req *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	s, err := c.RangeStream(ctx, req, grpc.WaitForReady(true))
	if err != nil {
		return nil, err
	}
	all := &etcdserverpb.RangeResponse{}
	for {
		chunk, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		proto.Merge(all, chunk.GetRangeResponse())
	}
}

// asOfEtcd adds options that only etcd's API has.
func (q *question) asOfEtcd(keys keyspace, rng *rand.Rand) {
	if q.stale > 0 {
		q.stale = etcdStaleness // a request cannot set its own
	}
	if q.r.IsSingle() {
		return
	}
	switch rng.IntN(6) {
	case 0:
		q.limit = 1 + rng.IntN(keys.keys)
	case 1:
		q.countOnly = true
	case 2:
		q.streamed = true
	case 3: // across several shards
		p := rng.IntN(keys.prefixes - 1)
		q.r = kv.Range{Start: keys.key(p, keys.keys/2), End: keys.key(p+1, keys.keys/2)}
	}
}
