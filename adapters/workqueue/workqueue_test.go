package workqueue_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	queues "k8s.io/client-go/util/workqueue"

	"github.com/shardwatch/shardwatch/adapters/workqueue"
	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/clienttest"
	"github.com/shardwatch/shardwatch/client/mirror"
)

// A worker that copies each key of the queue ends up with the keys of the cluster: the state,
// changes and deletes, also those made while nodes were killed and history was lost.
func TestWorkerHasEveryChange(t *testing.T) {
	cluster, err := clienttest.Start(clienttest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	c, err := client.New(client.Config{Endpoints: cluster.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i := range 20 {
		cluster.Put(fmt.Sprintf("/jobs/%02d", i), "first")
	}
	ctx, stop := context.WithCancel(t.Context())
	local := mirror.New(ctx, c, client.Prefix("/jobs/"))
	queue := queues.NewTyped[string]()
	fed := make(chan error, 1)
	go func() {
		fed <- workqueue.Feed(ctx, local, queue, func(key string) string { return key })
		queue.ShutDown()
	}()

	done := map[string]string{}
	work := func(until func() bool) {
		for !until() {
			key, ended := queue.Get()
			if ended {
				t.Fatal("the queue has ended")
			}
			if kv, ok := local.Get(key); ok {
				done[key] = string(kv.Value)
			} else {
				delete(done, key)
			}
			queue.Done(key)
		}
	}
	work(func() bool { return len(done) == 20 })

	cluster.Put("/jobs/00", "second")
	cluster.Delete("/jobs/01")
	for _, n := range cluster.Nodes() {
		n.Kill()
	}
	cluster.Put("/jobs/02", "second")
	rev := cluster.Delete("/jobs/03")
	cluster.Compact(rev)
	cluster.ForgetDeletes(rev)
	for _, n := range cluster.Nodes() {
		if err := n.Restart(); err != nil {
			t.Fatal(err)
		}
	}
	work(func() bool { return len(done) == 18 && done["/jobs/00"] == "second" && done["/jobs/02"] == "second" })

	stop()
	if err := <-fed; !errors.Is(err, context.Canceled) {
		t.Errorf("Feed returned %v", err)
	}
}
