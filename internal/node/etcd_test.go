package node_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/internal/etcd/etcdconn"
	"github.com/shardwatch/shardwatch/internal/node"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// While etcd is down the nodes stay ready and watches stay in place, but reads
// that require fresh data are refused.
func TestEtcdAway(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes long")
	}
	c := startCluster(t, 2, 1, shards(2, 2))
	all := keys(8)
	from := c.put(all...) + 1
	c.ready()
	c.settled(2, 2)
	cl := c.client()
	w := newCrowd(c)
	w.watch(c.patient(), "everything", client.Range{}, from)
	w.reach(c.put(all[0]))
	testkit.Succeeds(t, "all ages known", func() error {
		for _, m := range c.nodes {
			for _, r := range m.node.Status().GetReplicas() {
				if r.GetAge() == nil {
					return fmt.Errorf("%s: shard %d", m.name, r.GetShardId())
				}
			}
		}
		return nil
	})
	c.etcd.Stop() // also ends the etcd client that records the crowd's history
	testkit.Succeeds(t, "stale reads refused", func() error {
		ctx, cancel := context.WithTimeout(within(t), 2*time.Second)
		defer cancel()
		if _, err := cl.Get(ctx, all[0], client.Serializable(time.Second)); err == nil {
			return errors.New("served")
		}
		return nil
	})
	testkit.Succeeds(t, "a read that allows any age", func() error {
		ctx, cancel := context.WithTimeout(within(t), 2*time.Second)
		defer cancel()
		_, err := cl.Get(ctx, all[0], client.Serializable(time.Hour))
		return err
	})
	for _, m := range c.nodes {
		if why := m.node.NotReady(); len(why) > 0 {
			t.Errorf("%s: %v", m.name, why)
		}
		for _, r := range m.node.Status().GetReplicas() {
			if r.GetAge().AsDuration() < time.Second {
				t.Errorf("%s: shard %d is reported as %v old", m.name, r.GetShardId(), r.GetAge().AsDuration())
			}
		}
	}
	c.etcd.Restart()
	testkit.Succeeds(t, "fresh again", func() error {
		ctx, cancel := context.WithTimeout(within(t), 2*time.Second)
		defer cancel()
		_, err := cl.Get(ctx, all[0], client.Serializable(time.Second))
		return err
	})
	revision := c.put(all...)
	one := w.all()[0]
	testkit.Succeeds(t, "the watch continues", func() error {
		one.mu.Lock()
		defer one.mu.Unlock()
		if got := int64(one.checker.Reached()); one.err != nil || got < revision {
			return fmt.Errorf("at %d of %d: %w", got, revision, one.err)
		}
		return nil
	})
	if times, _, reason := one.moved(); times > 0 {
		t.Errorf("the watch moved: %v", reason)
	}
	if n := c.resets(); n > 0 {
		t.Errorf("history was lost %d times", n)
	}
}

// Without etcd no cluster is founded: the nodes report why, and retry.
func TestNoClusterIsFoundedWithoutEtcd(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 1, shards(2, 3))
	c.etcd = etcdtest.Start(t)
	c.etcd.Stop()
	m := c.nodes[0]
	m.start()
	testkit.Succeeds(t, "an explanation", func() error {
		if why := strings.Join(m.node.NotReady(), "; "); !strings.Contains(why, "no shard map yet") || !strings.Contains(why, "etcd: ") {
			return errors.New(why)
		}
		return nil
	})
	if n := c.log.count("level=WARN", "cannot found"); n > 1 {
		t.Errorf("logged %d times, want at most once", n)
	}
	c.etcd.Restart()
	c.ready()
	if r, err := c.client().Get(within(t), "/none"); err != nil || r.KV != nil {
		t.Errorf("%+v, %v", r, err)
	}
}

// old is an etcd of an unsupported version.
type old struct{ node.Etcd }

func (old) Check(context.Context) error {
	return &etcdconn.VersionError{Endpoint: "10.0.0.1:2379", Version: "3.4.2"}
}

func TestOldEtcdIsRefused(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 1, nil)
	c.etcd = etcdtest.Start(t)
	m := c.nodes[0]
	m.wrap = func(e node.Etcd) node.Etcd { return old{e} }
	m.start()
	var version *etcdconn.VersionError
	if err := m.wait(); !errors.As(err, &version) {
		t.Errorf("ended with %v", err)
	}
}

// A node whose --etcd names another cluster receives the map late.
func TestAnotherEtcdIsRefused(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1, 1, shards(1, 3))
	c.ready()
	stranger := c.add("stranger")
	other := etcdtest.Start(t)
	snapshot := other.Snapshot(within(t))
	other.Stop()
	other.Restore(etcdtest.Restore{Snapshot: snapshot, Token: "another"})
	stranger.wrap = func(node.Etcd) node.Etcd { return stranger.dialEtcdAt(other.Endpoint()) }
	stranger.start()
	err := stranger.wait()
	if err == nil || !strings.Contains(err.Error(), "but this cache cluster serves etcd cluster") {
		t.Errorf("ended with %v", err)
	}
	if why := c.nodes[0].node.NotReady(); len(why) > 0 {
		t.Error(why)
	}
}
