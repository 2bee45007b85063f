package etcd

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Writes passes writes on to etcd as they are: the part of etcd's KV service
// that changes things. Answers and errors are etcd's own. Nothing is tried
// twice, because nobody could tell whether the first attempt was applied.
//
// The caller's token, and only that, goes with the write: a caller without one
// has no more rights at etcd than it would have there, whatever ours are. (With
// client certificates as identities, etcd sees ours.)
type Writes struct {
	kv etcdserverpb.KVClient
}

// Writes returns the way for passed-through writes.
func (c *Client) Writes() *Writes { return &Writes{kv: etcdserverpb.NewKVClient(c.passage)} }

// Put stores a key; see etcdserverpb.KV.
func (w *Writes) Put(ctx context.Context, r *etcdserverpb.PutRequest) (*etcdserverpb.PutResponse, error) {
	return w.kv.Put(asCaller(ctx), r)
}

// DeleteRange deletes keys; see etcdserverpb.KV.
func (w *Writes) DeleteRange(ctx context.Context, r *etcdserverpb.DeleteRangeRequest) (*etcdserverpb.DeleteRangeResponse, error) {
	return w.kv.DeleteRange(asCaller(ctx), r)
}

// Txn compares, then changes or reads, as one revision; see etcdserverpb.KV.
func (w *Writes) Txn(ctx context.Context, r *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
	return w.kv.Txn(asCaller(ctx), r)
}

// Compact drops etcd's history below a revision; see etcdserverpb.KV.
func (w *Writes) Compact(ctx context.Context, r *etcdserverpb.CompactionRequest) (*etcdserverpb.CompactionResponse, error) {
	return w.kv.Compact(asCaller(ctx), r)
}
