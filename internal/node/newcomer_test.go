package node_test

import (
	"fmt"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
)

// Clients of etcd that connect while nodes start are served from their revision: etcd
// has not compacted, so no revision may be reported as compacted. The nodes found a
// cluster, then one is restarted, then one loses its disk.
func TestClientsOfEtcdThatConnectWhileNodesStart(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 3, shards(4, 2))
	c.etcd = etcdtest.Start(t)
	all := keys(16)
	from := c.put(all[0])
	c.put(all[1:]...)
	for _, m := range c.nodes {
		m.start()
	}
	c.watchedFrom(from, all, c.nodes...)
	c.ready()
	m := c.nodes[2]
	m.crash()
	m.start()
	c.watchedFrom(from, all, m)
	c.ready()
	m.crash()
	m.dir = t.TempDir()
	m.start()
	c.watchedFrom(from, all, m)
	c.ready()
}

// watchedFrom opens watches at each machine with etcd's own client, and waits
// until each has the first event of every key.
func (c *cluster) watchedFrom(revision int64, keys []string, machines ...*machine) {
	c.t.Helper()
	const watches = 10
	ctx := within(c.t)
	var all sync.WaitGroup
	failed := make(chan error, watches*len(machines))
	for _, m := range machines {
		for range watches {
			cli := etcdClient(c.t.(*testing.T), m.clients)
			all.Go(func() {
				missing := make(map[string]bool)
				for _, key := range keys {
					missing[key] = true
				}
				for r := range cli.Watch(ctx, "/", clientv3.WithPrefix(), clientv3.WithRev(revision)) {
					if err := r.Err(); err != nil {
						failed <- fmt.Errorf("%s: a watch from revision %d was cancelled: %w (compact revision %d)", m.name, revision, err, r.CompactRevision)
						return
					}
					for _, e := range r.Events {
						delete(missing, string(e.Kv.Key))
					}
					if len(missing) == 0 {
						return
					}
				}
				failed <- fmt.Errorf("%s: a watch from revision %d ended; %d keys are missing: %w", m.name, revision, len(missing), ctx.Err())
			})
		}
	}
	all.Wait()
	close(failed)
	for err := range failed {
		c.t.Error(err)
	}
}
