package etcdapi_test

import (
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
	etcd := etcdtest.StartProcess(t)
	b := budget.New(64 << 20) // 8 MiB of it for requests, 4 MiB for one client
	rig := startPass(t, etcd.Endpoint(), func(cfg *etcdapi.Config) { cfg.Budget = b })
	kvs := etcdserverpb.NewKVClient(rig.conn)
	put := func(i, size int) error {
		_, err := kvs.Put(within(t), &etcdserverpb.PutRequest{Key: fmt.Appendf(nil, "/k/%d", i), Value: make([]byte, size)})
		return err
	}
	if err := put(0, 1<<20); err != nil {
		t.Fatal(err)
	}
	if err := etcd.Pause(); err != nil {
		t.Fatal(err)
	}
	const large, small = 20, 5
	done := make(chan error, large+small)
	for i := range large {
		go func() { done <- put(i, 1<<20) }()
	}
	refused := 0
	for ; refused < large-3; refused++ { // 3 requests of slightly more than 1 MiB fit into 4 MiB
		if err := <-done; status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), budget.Flag) {
			t.Errorf("a request beyond the budget: %v", err)
		}
	}
	for i := range small {
		go func() { done <- put(100+i, 1000) }()
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
