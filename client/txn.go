package client

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/shardwatch/shardwatch/client/internal/outcome"
)

// Condition is true if a key has a given mod revision.
type Condition struct {
	Key string
	// ModRevision is the revision of the key's last change; 0: it does not exist.
	ModRevision int64
}

// Op is one change of [Client.Txn].
type Op struct {
	Key   string
	Value []byte
	// Lease is the lease that the key is attached to; 0: none.
	Lease int64
	// Delete deletes the key: Value and Lease are ignored.
	Delete bool
}

// ConflictError reports that a condition of [Client.Txn] is false, and that nothing was
// changed.
type ConflictError struct {
	Condition
	// Current is the key's mod revision; 0: it does not exist.
	Current int64
}

func (e *ConflictError) Error() string {
	want, is := "be missing", "is missing"
	if e.ModRevision != 0 {
		want = fmt.Sprintf("have mod revision %d", e.ModRevision)
	}
	if e.Current != 0 {
		is = fmt.Sprintf("has %d", e.Current)
	}
	return fmt.Sprintf("key %q should %s and %s: nothing was changed", e.Key, want, is)
}

// PutIf writes a key if the revision of its last change is modRevision, or for 0 if the key
// does not exist. Otherwise it fails with [*ConflictError]. For other errors, see [Client.Put].
func (c *Client) PutIf(ctx context.Context, key string, value []byte, modRevision int64) (Position, error) {
	return c.Txn(ctx, []Condition{{Key: key, ModRevision: modRevision}}, Op{Key: key, Value: value})
}

// Txn makes all changes in one revision if all conditions are true, and returns its
// position. Otherwise it fails with [*ConflictError]. etcd limits a transaction, by
// default to 128 conditions, 128 changes and 1.5 MiB. For other errors, see [Client.Put].
func (c *Client) Txn(ctx context.Context, conditions []Condition, ops ...Op) (Position, error) {
	if len(ops) == 0 {
		return Position{}, fmt.Errorf("transaction: %w: it changes nothing", ErrInvalid)
	}
	request := &etcdserverpb.TxnRequest{}
	for _, o := range ops {
		if err := Key(o.Key).validate(); err != nil {
			return Position{}, fmt.Errorf("transaction: %w", err)
		}
		request.Success = append(request.Success, o.request())
	}
	for _, i := range conditions {
		request.Compare = append(request.Compare, &etcdserverpb.Compare{
			Key: []byte(i.Key), Target: etcdserverpb.Compare_MOD, Result: etcdserverpb.Compare_EQUAL,
			TargetUnion: &etcdserverpb.Compare_ModRevision{ModRevision: i.ModRevision},
		})
		request.Failure = append(request.Failure, &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestRange{
			RequestRange: &etcdserverpb.RangeRequest{Key: []byte(i.Key), KeysOnly: true},
		}})
	}
	var at Position
	var response *etcdserverpb.TxnResponse
	err := c.write(ctx, Key(ops[0].Key), func(ctx context.Context, kv etcdserverpb.KVClient) error {
		var header metadata.MD
		var err error
		response, err = kv.Txn(ctx, request, grpc.Header(&header))
		at = positionFrom(header, response.GetHeader().GetRevision())
		return err //nolint:wrapcheck // wrapped below
	})
	if err == nil && !response.GetSucceeded() {
		err = conflict(conditions, response)
	}
	if err != nil {
		return Position{}, fmt.Errorf("transaction: %w", err)
	}
	return at, nil
}

func (o Op) request() *etcdserverpb.RequestOp {
	if o.Delete {
		return &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestDeleteRange{
			RequestDeleteRange: &etcdserverpb.DeleteRangeRequest{Key: []byte(o.Key)},
		}}
	}
	return &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestPut{
		RequestPut: &etcdserverpb.PutRequest{Key: []byte(o.Key), Value: o.Value, Lease: o.Lease},
	}}
}

// conflict returns the error of a transaction that changed nothing. The answer has the
// key of each condition.
func conflict(conditions []Condition, response *etcdserverpb.TxnResponse) error {
	for i, r := range response.GetResponses() {
		var current int64
		for _, kv := range r.GetResponseRange().GetKvs() {
			current = kv.GetModRevision()
		}
		if i < len(conditions) && current != conditions[i].ModRevision {
			return &ConflictError{conditions[i], current}
		}
	}
	return fmt.Errorf("%w: etcd refused the transaction although all conditions are true", outcome.ErrProtocol)
}
