package node_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/node"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// shardOf returns the shard that has a key.
func (m *machine) shardOf(key string) shard.Shard { return m.node.Map().Overlapping(kv.Single(key))[0] }

// encoded returns a node's bytes of a key.
func (m *machine) encoded(key string) ([]byte, error) {
	c := m.node.Replica(m.shardOf(key).ID)
	if c == nil {
		return nil, errors.New("the node does not serve the shard")
	}
	state, err := c.At(within(m.c.t), 0)
	if err != nil {
		return nil, err
	}
	k := state.Get(key)
	if k == nil {
		return nil, fmt.Errorf("%s is not in the shard", key)
	}
	return k.Encoded(), nil
}

// flip flips a bit of a value in the node's memory, as a cosmic ray does.
func (m *machine) flip(key string) {
	m.c.t.Helper()
	b, err := m.encoded(key)
	if err != nil {
		m.c.t.Fatal(err)
	}
	b[len(b)-1] ^= 1
}

// heals waits until the node has detected its wrong copy of the key's shard, and
// serves the same as the others.
func (m *machine) heals(key string, from *machine) {
	m.c.t.Helper()
	testkit.Succeeds(m.c.t, m.name+" heals", func() error {
		if m.c.log.count("is wrong here", "node="+m.name) == 0 {
			return errors.New("the wrong copy is not logged")
		}
		got, err := m.encoded(key)
		if err != nil {
			return err
		}
		want, err := from.encoded(key)
		if err != nil {
			return err
		}
		if !bytes.Equal(got, want) {
			return fmt.Errorf("the node has %q", got)
		}
		return nil
	})
}

// A bit flips in the memory of a replica, of an owner, and of a replica while etcd is
// down. Each time the node detects it and reloads the shard from a good copy, and a
// watch of the wrong copy misses no event and does not list.
func TestFlippedByteIsFoundAndHealed(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("flips bits in memory, which the race detector reports")
	}
	c := startCluster(t, 3, 3, func(c *node.Config) {
		c.Spec.Shards, c.Spec.Replicas = 4, 3
		c.VerifyInterval = 2 * time.Second
	})
	all := keys(200)
	from := c.put(all...) + 1
	c.ready()
	m := c.settled(4, 3)
	key := all[17]
	replicas := m.Overlapping(kv.Single(key))[0].Replicas
	owner, second, third := c.machineOf(replicas[0]), c.machineOf(replicas[1]), c.machineOf(replicas[2])

	user := c.client(third, second, owner)
	w := user.Watch(within(t), client.Prefix("/"), client.FromRevision(from))
	defer w.Close()
	next := func(want int64) {
		t.Helper()
		u, err := w.Next(within(t))
		if err != nil || u.Kind != client.KindBatch || u.Revision != want {
			t.Fatalf("%+v, %v, want the events of revision %d", u, err, want)
		}
	}
	next(c.put(all[3]))
	lists := c.lists()

	third.flip(key)
	third.heals(key, owner)
	next(c.put(key))

	owner.flip(key)
	owner.heals(key, second)
	last := c.put(key)
	next(last)

	if n := c.lists() - lists; n > 0 {
		t.Errorf("%d lists at etcd", n)
	}
	// Copies at different revisions when etcd goes down cannot be compared until it is back.
	c.reached(last)
	c.etcd.Stop()
	second.flip(key)
	second.heals(key, third)
	c.etcd.Restart()
	next(c.put(key))

	if s := user.Stats(); s.Lists > 0 || s.Units != (client.Units{}) {
		t.Errorf("the client listed: %+v", s)
	}
	for _, m := range c.nodes {
		if n := c.log.count("is wrong here", "node="+m.name); n != 1 {
			t.Errorf("%d findings about %s, want one", n, m.name)
		}
	}
	if text := c.log.tail(1 << 30); strings.Contains(text, "value of "+key) {
		t.Error("the log contains a value")
	}
}

// An operator's verify request finds the wrong copy, compares it with etcd, and makes
// the node reload it, without background comparisons.
func TestVerifyFindsTheWrongCopy(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("flips bits in memory, which the race detector reports")
	}
	c := startCluster(t, 3, 3, func(c *node.Config) {
		c.Spec.Shards, c.Spec.Replicas = 2, 2
		c.VerifyInterval, c.VerifyEtcdInterval = 0, 0
	})
	all := keys(200)
	c.put(all...)
	c.ready()
	sm := c.settled(2, 2)
	user := c.client()
	verify := func(etcd bool, shards ...uint64) (out []admin.VerifiedShard) {
		t.Helper()
		testkit.Succeeds(t, "every copy can be compared", func() error {
			out = nil
			err := admin.New(user).Verify(within(t), admin.VerifyRequest{Shards: shards, Etcd: etcd}, func(s admin.VerifiedShard) error {
				out = append(out, s)
				return nil
			})
			for _, s := range out {
				for _, copied := range s.Copies {
					err = errors.Join(err, copied.Err())
				}
			}
			return err
		})
		return out
	}
	for _, etcd := range []bool{false, true} {
		got := verify(etcd)
		if len(got) != 2 {
			t.Fatalf("%d shards: %+v", len(got), got)
		}
		n := int64(0)
		for _, s := range got {
			n += s.Copies[0].Keys
			if s.Differs() || s.Etcd != etcd || s.EtcdError != "" || s.Copies[0].Digest != s.Copies[1].Digest {
				t.Errorf("%+v", s)
			}
		}
		if n != int64(len(all)) {
			t.Errorf("%d keys in all shards, want %d", n, len(all))
		}
	}
	sh := sm.Overlapping(kv.Single(all[5]))[0]
	bad := c.machineOf(sh.Replicas[1])
	bad.flip(all[5])
	got := verify(false, uint64(sh.ID))
	if len(got) != 1 || !got[0].Differs() || len(got[0].Differences) != 1 {
		t.Fatalf("%+v", got)
	}
	if d := got[0].Differences[0]; string(d.Key) != all[5] || d.Node != bad.name || !got[0].Copies[1].Wrong || got[0].Copies[0].Wrong {
		t.Errorf("%+v", got[0])
	}
	bad.heals(all[5], c.machineOf(sh.Replicas[0]))
	// Both copies are wrong in the same way: only etcd can prove it.
	served, err := bad.encoded(all[5])
	if err != nil {
		t.Fatal(err)
	}
	right := bytes.Clone(served) // the flip affects the node's memory
	for _, name := range sh.Replicas {
		c.machineOf(name).flip(all[5])
	}
	if got := verify(false, uint64(sh.ID)); got[0].Differs() {
		t.Errorf("equal wrong copies are reported without etcd: %+v", got[0])
	}
	if got := verify(true, uint64(sh.ID)); !got[0].Differs() || !slices.ContainsFunc(got[0].Differences, func(d admin.KeyDifference) bool { return string(d.Key) == all[5] }) {
		t.Errorf("%+v", got[0])
	}
	// The notified node does not load the other wrong copy, which is then compared with its
	// new copy.
	testkit.Succeeds(t, "both copies are right", func() error {
		verify(false, uint64(sh.ID))
		for _, name := range sh.Replicas {
			if got, err := c.machineOf(name).encoded(all[5]); err != nil || !bytes.Equal(got, right) {
				return fmt.Errorf("%s has %q, %w", name, got, err)
			}
		}
		return nil
	})
	if err := admin.New(user).Verify(within(t), admin.VerifyRequest{Shards: []uint64{99}}, func(admin.VerifiedShard) error { return nil }); err == nil || !strings.Contains(err.Error(), "there is no shard 99") {
		t.Errorf("an unknown shard: %v", err)
	}
}

// A node that has just started, without a shard map, accepts a notice about a copy of its
// previous run.
func TestRecheckBeforeTheMapIsKnown(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, 1, shards(2, 2))
	c.etcd = etcdtest.Start(t)
	c.nodes[1].start() // does not vote, and waits for the voter
	c.nodes[1].node.Recheck(1, "node-1", false)
	c.nodes[0].start()
	c.ready()
}
