package node_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// etcdClient returns etcd's own client of a node.
func etcdClient(t *testing.T, address string) *clientv3.Client {
	t.Helper()
	cli, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + address}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cli.Close(); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return cli
}

// etcd's own client works with a node as with etcd, and finds the nodes that run
// as nodes start and stop.
func TestClientsOfEtcd(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 2, 1, shards(2, 2))
	c.ready()
	cli := etcdClient(t, c.nodes[0].clients)
	urls := func(nodes ...*machine) (want []string) {
		for _, m := range nodes {
			want = append(want, "http://"+m.clients)
		}
		return want
	}
	follows := func(what string, nodes ...*machine) {
		t.Helper()
		testkit.Succeeds(t, what, func() error {
			if err := cli.Sync(within(t)); err != nil {
				return err
			}
			if got := cli.Endpoints(); !slices.Equal(got, urls(nodes...)) {
				return fmt.Errorf("%q", got)
			}
			return nil
		})
	}
	follows("both nodes are members", c.nodes...)

	put, err := cli.Put(within(t), "/a", "1")
	if err != nil {
		t.Fatal(err)
	}
	got, err := cli.Get(within(t), "/a")
	if err != nil || got.Count != 1 || got.Header.Revision < put.Header.Revision || got.Header.ClusterId != put.Header.ClusterId {
		t.Errorf("%v, %v", got, err)
	}
	session, err := concurrency.NewSession(cli, concurrency.WithTTL(30))
	if err != nil {
		t.Fatal(err)
	}
	mutex := concurrency.NewMutex(session, "/lock")
	if err := mutex.Lock(within(t)); err != nil {
		t.Error(err)
	}
	other, err := concurrency.NewSession(etcdClient(t, c.nodes[1].clients))
	if err != nil {
		t.Fatal(err)
	}
	if err := concurrency.NewMutex(other, "/lock").TryLock(within(t)); !errors.Is(err, concurrency.ErrLocked) {
		t.Errorf("locked twice: %v", err)
	}
	if err := errors.Join(mutex.Unlock(within(t)), session.Close(), other.Close()); err != nil {
		t.Error(err)
	}
	if s, err := cli.Status(within(t), "http://"+c.nodes[1].clients); err != nil || s.Version == "" {
		t.Errorf("%v, %v", s, err)
	}

	c.nodes[1].crash()
	follows("the dead node is no member", c.nodes[0])
	c.nodes[1].start()
	follows("the restarted node is a member", c.nodes...)
}
