package etcdapi_test

import (
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/metadata"

	"github.com/shardwatch/shardwatch/internal/edge/etcdapi"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
)

// While etcd's authentication is on, a call without a token is not forwarded: etcd could
// authenticate it by the name in the node's certificate. The exceptions are the login and the
// status of authentication. etcd checks the tokens.
func TestCallsWithoutATokenAreNotForwarded(t *testing.T) {
	e := etcdtest.Start(t) // accepts every call, like an etcd that accepts the node's certificate
	g := &rights{changed: make(chan struct{})}
	r := startPass(t, e.Endpoint(), func(c *etcdapi.Config) { c.Guard = g })
	kv, lease := etcdserverpb.NewKVClient(r.conn), etcdserverpb.NewLeaseClient(r.conn)
	stream := func(r *etcdserverpb.RangeRequest) error {
		s, err := kv.RangeStream(within(t), r)
		if err == nil {
			_, err = s.Recv()
		}
		return err
	}
	for what, err := range map[string]error{
		"range, of no keys": func() error {
			_, err := kv.Range(within(t), &etcdserverpb.RangeRequest{Key: []byte("b"), RangeEnd: []byte("a")})
			return err
		}(),
		"range stream, of no keys": stream(&etcdserverpb.RangeRequest{Key: []byte("b"), RangeEnd: []byte("a")}),
		"range stream, sorted by etcd": stream(&etcdserverpb.RangeRequest{
			Key: []byte{0}, RangeEnd: []byte{0}, SortTarget: etcdserverpb.RangeRequest_VALUE,
		}),
		"put": func() error {
			_, err := kv.Put(within(t), &etcdserverpb.PutRequest{Key: []byte("a")})
			return err
		}(),
		"txn": func() error {
			_, err := kv.Txn(within(t), &etcdserverpb.TxnRequest{})
			return err
		}(),
		"user add": func() error {
			_, err := etcdserverpb.NewAuthClient(r.conn).UserAdd(within(t), &etcdserverpb.AuthUserAddRequest{Name: "eve"})
			return err
		}(),
		"grant": func() error {
			_, err := lease.LeaseGrant(within(t), &etcdserverpb.LeaseGrantRequest{TTL: 60})
			return err
		}(),
		"status": func() error {
			_, err := etcdserverpb.NewMaintenanceClient(r.conn).Status(within(t), &etcdserverpb.StatusRequest{})
			return err
		}(),
		"revoke": func() error {
			_, err := lease.LeaseRevoke(within(t), &etcdserverpb.LeaseRevokeRequest{ID: 7})
			return err
		}(),
	} {
		if !errors.Is(rpctypes.Error(err), rpctypes.ErrUserEmpty) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := etcdserverpb.NewAuthClient(r.conn).AuthStatus(within(t), &etcdserverpb.AuthStatusRequest{}); err != nil {
		t.Errorf("status of authentication: %v", err)
	}
	named := metadata.AppendToOutgoingContext(within(t), rpctypes.TokenFieldNameGRPC, "a.1")
	if _, err := kv.Put(named, &etcdserverpb.PutRequest{Key: []byte("a")}); err != nil {
		t.Errorf("put with a token: %v", err)
	}
}
