package etcdapi_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/edge/etcdapi"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
)

// While etcd hangs, a node keeps large requests up to their share of the budget, and refuses
// further ones. Small requests wait. All accepted requests are answered.
func TestRequestsThatWaitForEtcdAreBounded(t *testing.T) {
	t.Parallel()
	for what, call := range map[string]func(context.Context, etcdserverpb.KVClient, string, int) error{
		"put": func(ctx context.Context, kvs etcdserverpb.KVClient, key string, size int) error {
			_, err := kvs.Put(ctx, &etcdserverpb.PutRequest{Key: []byte(key), Value: make([]byte, size)})
			return err
		},
		"range": func(ctx context.Context, kvs etcdserverpb.KVClient, key string, size int) error { // ends before its key: etcd answers
			_, err := kvs.Range(ctx, &etcdserverpb.RangeRequest{Key: append([]byte(key), make([]byte, size/2)...), RangeEnd: []byte("/")})
			return err
		},
	} {
		t.Run(what, func(t *testing.T) { requestsAreBounded(t, call) })
	}
}

// requestsAreBounded makes calls of given sizes. The size counts what the node holds of the request.
func requestsAreBounded(t *testing.T, call func(ctx context.Context, kvs etcdserverpb.KVClient, key string, size int) error) {
	t.Parallel()
	etcd := etcdtest.StartProcess(t)
	b := budget.New(64 << 20) // 8 MiB of it for requests, 4 MiB for one client
	rig := startPass(t, etcd.Endpoint(), func(cfg *etcdapi.Config) { cfg.Budget = b })
	kvs := etcdserverpb.NewKVClient(rig.conn)
	send := func(i, size int) error {
		return call(within(t), kvs, fmt.Sprintf("/k/%d", i), size)
	}
	if err := send(0, 1<<20); err != nil {
		t.Fatal(err)
	}
	if err := etcd.Pause(); err != nil {
		t.Fatal(err)
	}
	const large, small = 20, 5
	done := make(chan error, large+small)
	for i := range large {
		go func() { done <- send(i, 1<<20) }()
	}
	refused := 0
	for ; refused < large-3; refused++ { // 3 requests of slightly more than 1 MiB fit into 4 MiB
		if err := <-done; status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), budget.Flag) {
			t.Errorf("a request beyond the budget: %v", err)
		}
	}
	for i := range small {
		go func() { done <- send(100+i, 1000) }()
	}
	if held := b.Held(budget.Requests); held < 3<<20 || held > 4<<20 {
		t.Errorf("%d bytes are held", held)
	}
	if err := etcd.Cont(); err != nil {
		t.Fatal(err)
	}
	var errs []error
	for range 3 + small {
		errs = append(errs, <-done)
	}
	if err := errors.Join(errs...); err != nil {
		t.Errorf("the accepted requests: %v", err)
	}
	if held := b.Held(budget.Requests); held != 0 {
		t.Errorf("%d bytes are still held", held)
	}
}
