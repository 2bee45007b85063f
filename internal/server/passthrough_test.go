package server_test

import (
	"context"
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/shardwatch/shardwatch/internal/cachetest"
	"github.com/shardwatch/shardwatch/internal/server"
)

// etcdWriter stands for etcd: it answers a caller with a token, and refuses
// others with etcd's own error.
type etcdWriter struct {
	server.Writer
}

func (etcdWriter) Put(ctx context.Context, r *etcdserverpb.PutRequest) (*etcdserverpb.PutResponse, error) {
	m, _ := metadata.FromIncomingContext(ctx)
	if token := m.Get(rpctypes.TokenFieldNameGRPC); len(token) != 1 || token[0] != "secret" {
		return nil, rpctypes.ErrGRPCInvalidAuthToken
	}
	return &etcdserverpb.PutResponse{Header: &etcdserverpb.ResponseHeader{Revision: int64(len(r.Key))}}, nil
}

func (etcdWriter) Txn(context.Context, *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
	return nil, rpctypes.ErrGRPCDuplicateKey
}

// Writes are etcd's: its answers and its errors, by the caller's own rights.
func TestWritesAreEtcds(t *testing.T) {
	r := start(t, cachetest.New(), options{server: func(c *server.Config) { c.Writer = etcdWriter{} }})
	client := etcdserverpb.NewKVClient(r.conn)
	put := &etcdserverpb.PutRequest{Key: []byte("key")}
	if _, err := client.Put(t.Context(), put); !errors.Is(rpctypes.Error(err), rpctypes.ErrInvalidAuthToken) || status.Code(err) != codes.Unauthenticated {
		t.Errorf("without a token: %v", err)
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), rpctypes.TokenFieldNameGRPC, "secret")
	if got, err := client.Put(ctx, put); err != nil || got.GetHeader().GetRevision() != 3 {
		t.Errorf("with a token: %v, %v", got, err)
	}
	if _, err := client.Txn(ctx, &etcdserverpb.TxnRequest{}); !errors.Is(rpctypes.Error(err), rpctypes.ErrDuplicateKey) {
		t.Errorf("txn: %v", err)
	}
	if _, err := client.Range(ctx, &etcdserverpb.RangeRequest{Key: []byte("key")}); status.Code(err) != codes.Unimplemented {
		t.Errorf("range: %v", err)
	}
}
