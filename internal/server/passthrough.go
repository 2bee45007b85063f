package server

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/shardwatch/shardwatch/internal/wire"
)

// writes is the part of etcd's own KV service that changes things. It is
// passed on to etcd as it is, with the caller's credentials; the answers are
// etcd's.
type writes struct {
	etcdserverpb.UnimplementedKVServer
	Writer
}

// Range implements etcdserverpb.KVServer.
func (w *writes) Range(context.Context, *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	return nil, wire.Unimplemented("etcd's Range is not served here: read with shardwatch.v1.CacheService, or at etcd")
}

// Put implements etcdserverpb.KVServer.
func (w *writes) Put(ctx context.Context, r *etcdserverpb.PutRequest) (*etcdserverpb.PutResponse, error) {
	return w.Writer.Put(ctx, r)
}

// DeleteRange implements etcdserverpb.KVServer.
func (w *writes) DeleteRange(ctx context.Context, r *etcdserverpb.DeleteRangeRequest) (*etcdserverpb.DeleteRangeResponse, error) {
	return w.Writer.DeleteRange(ctx, r)
}

// Txn implements etcdserverpb.KVServer.
func (w *writes) Txn(ctx context.Context, r *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
	return w.Writer.Txn(ctx, r)
}

// Compact implements etcdserverpb.KVServer.
func (w *writes) Compact(ctx context.Context, r *etcdserverpb.CompactionRequest) (*etcdserverpb.CompactionResponse, error) {
	return w.Writer.Compact(ctx, r)
}
