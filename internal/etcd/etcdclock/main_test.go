package etcdclock

import (
	"context"
	"log/slog"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/shardwatch/shardwatch/internal/etcd/etcdconn"
	"github.com/shardwatch/shardwatch/internal/kv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scripted is an etcd that can be read from the revision floor up to now.
type scripted struct {
	etcdserverpb.KVClient
	floor, now int64
}

func (s scripted) Range(ctx context.Context, r *etcdserverpb.RangeRequest, _ ...grpc.CallOption) (*etcdserverpb.RangeResponse, error) {
	switch at := r.GetRevision(); {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case at > s.now:
		return nil, rpctypes.ErrGRPCFutureRev
	case at != 0 && at < s.floor:
		return nil, rpctypes.ErrGRPCCompacted
	}
	return &etcdserverpb.RangeResponse{Header: &etcdserverpb.ResponseHeader{Revision: s.now, RaftTerm: 7, ClusterId: 3}}, nil
}

// newReader returns a Reader of an etcd that answers its reads.
func newReader(t *testing.T, reads etcdserverpb.KVClient) *Reader {
	t.Helper()
	cfg := etcdconn.Defaults()
	cfg.Endpoints, cfg.Logger = []string{"127.0.0.1:1"}, slog.New(slog.DiscardHandler)
	conns, err := etcdconn.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conns.Close(); err != nil {
			t.Error(err)
		}
	})
	conns.Reads = reads
	return New(conns, func(context.Context, kv.Revision) error { return nil }, cfg.Logger)
}
