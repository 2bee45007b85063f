package node_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/node"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// gated is an etcd that sends a node nothing while it is shut.
type gated struct {
	node.Etcd
	mu   sync.Mutex
	shut bool                 // guarded by mu
	open []context.CancelFunc // guarded by mu; of the open watches
}

func (g *gated) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = shut
	for _, cancel := range g.open {
		cancel()
	}
	g.open = nil
}

func (g *gated) Follow(ctx context.Context, req kv.FollowRequest) iter.Seq2[kv.Update, error] {
	away := &kv.UnavailableError{Why: kv.EtcdUnavailable, Detail: "etcd is cut off"}
	return func(yield func(kv.Update, error) bool) {
		within, cancel := context.WithCancel(ctx)
		defer cancel()
		g.mu.Lock()
		g.open = append(g.open, cancel)
		shut := g.shut
		g.mu.Unlock()
		if shut {
			yield(kv.Update{}, away)
			return
		}
		for u, err := range g.Etcd.Follow(within, req) {
			if !yield(u, err) {
				return
			}
		}
		if ctx.Err() == nil {
			yield(kv.Update{}, away)
		}
	}
}

// flipVersion flips a bit of a key's version in the node's memory.
func (m *machine) flipVersion(key string) {
	m.c.t.Helper()
	b, err := m.encoded(key)
	if err != nil {
		m.c.t.Fatal(err)
	}
	k, err := kv.DecodeKeyValue(bytes.Clone(b))
	if err != nil {
		m.c.t.Fatal(err)
	}
	head := kv.NewKeyValue(kv.Fields{Key: k.Key(), CreateRevision: k.CreateRevision(), ModRevision: k.ModRevision(), Version: k.Version()})
	b[len(head.Encoded())-1] ^= 2
}

// bystanders are watches at nodes with correct copies.
type bystanders struct {
	c      *cluster
	key    string
	native []*client.Watcher
	users  []*client.Client
	etcd   []clientv3.WatchChan
}

func (c *cluster) bystanders(key string, at ...*machine) *bystanders {
	c.t.Helper()
	b := &bystanders{c: c, key: key}
	from := c.put(key) + 1
	c.reached(from - 1)
	for _, m := range at {
		user := c.client(m)
		w := user.Watch(within(c.t), client.Key(key), client.FromRevision(from))
		c.t.Cleanup(func() { w.Close() })
		b.users, b.native = append(b.users, user), append(b.native, w)
		b.etcd = append(b.etcd, etcdClient(c.t.(*testing.T), m.clients).Watch(within(c.t), key, clientv3.WithRev(from)))
	}
	b.undisturbed()
	return b
}

// undisturbed fails unless every watch is still open and receives the next event.
func (b *bystanders) undisturbed() {
	b.c.t.Helper()
	want := b.c.put(b.key)
	for i, w := range b.native {
		if u, err := w.Next(within(b.c.t)); err != nil || u.Kind != client.KindBatch || u.Revision != want {
			b.c.t.Errorf("native watch %d: %v at %d, %v; want revision %d", i, u.Kind, u.Revision, err, want)
		}
		if s := b.users[i].Stats(); s.Lists > 0 || s.Units != (client.Units{}) {
			b.c.t.Errorf("the client of native watch %d listed: %+v", i, s)
		}
		r, open := <-b.etcd[i]
		if !open || r.Err() != nil || len(r.Events) != 1 || r.Events[0].Kv.ModRevision != want {
			b.c.t.Errorf("etcd watch %d: %+v", i, r)
		}
	}
	for _, m := range b.c.nodes {
		if sm := m.node.Map(); sm == nil || sm.Lineage != 1 {
			b.c.t.Errorf("%s is in another lineage: %+v", m.name, sm)
		}
	}
}

// elsewhere returns a key of which a machine has no copy.
func (m *machine) elsewhere(keys []string) string {
	for _, key := range keys {
		if m.c.owner(key) != m {
			return key
		}
	}
	m.c.t.Fatal("the node has copies of all keys")
	return ""
}

func quiet(shards, replicas int) func(*node.Config) {
	return func(c *node.Config) {
		c.Spec.Shards, c.Spec.Replicas = shards, replicas
		c.VerifyInterval, c.VerifyEtcdInterval = 0, 0 // comparisons find nothing
	}
}

// overCompaction makes the owner of a key catch up past compacted revisions after bits of
// key versions in its memory have flipped, so that it finds differences to etcd.
func overCompaction(t *testing.T, flipped func(all []string) (first string, others []string)) (c *cluster, bad *machine, calm *bystanders) {
	t.Helper()
	c = newCluster(t, 3, 3, quiet(6, 1))
	c.etcd = etcdtest.Start(t)
	gates := make(map[*machine]*gated)
	for _, m := range c.nodes {
		g := &gated{}
		gates[m] = g
		m.wrap = func(e node.Etcd) node.Etcd { g.Etcd = e; return g }
		m.start()
	}
	all := keys(60)
	c.put(all...)
	c.ready()
	c.settled(6, 1)
	first, others := flipped(all)
	bad = c.owner(first)
	var calmer []*machine
	for _, m := range c.nodes {
		if m != bad {
			calmer = append(calmer, m)
		}
	}
	calm = c.bystanders(bad.elsewhere(all), calmer...)
	c.reached(c.put(append(others, first)...)) // the most recent changes
	gates[bad].set(true)
	for _, key := range append(others, first) {
		bad.flipVersion(key)
	}
	away := c.put("/zz/elsewhere") // at any owner
	if _, err := c.etcd.Client().Compact(within(t), max(away, c.put("/zz/elsewhere"))); err != nil {
		t.Fatal(err)
	}
	calm.undisturbed()
	gates[bad].set(false)
	return c, bad, calm
}

// A bit flips in one node's memory, and the node finds that etcd's version of the key
// differs. This is no restore: the node reloads the shard, and other nodes are not
// affected.
func TestWrongCopyIsNoRestore(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("flips bits in memory, which the race detector reports")
	}
	c, bad, calm := overCompaction(t, func(all []string) (string, []string) { return all[17], nil })
	testkit.Succeeds(t, "the wrong copy is found", func() error {
		if c.log.count("is wrong here", "node="+bad.name) == 0 {
			return errors.New("the wrong copy is not logged")
		}
		return nil
	})
	c.settled(6, 1)
	c.same()
	calm.undisturbed()
}

// Several keys differ between etcd and a node, which one wrong byte cannot cause.
// This counts as a restore, although no revision has gone back.
func TestSeveralContradictedKeysAreARestore(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("flips bits in memory, which the race detector reports")
	}
	c, _, _ := overCompaction(t, func(all []string) (string, []string) { return all[17], []string{all[18]} })
	m := c.lineage(2)
	if m.Origin.Cause != kv.CauseContent {
		t.Errorf("found by %v: %s", m.Origin.Cause, m.Origin.Reason)
	}
	c.settled(6, 1)
	c.same()
}

// A starting node receives a wrong value from another node, which contradicts its data
// on disk. This is no restore: the starting node does not use the data and notifies the
// other node, which reloads the shard.
func TestWrongPeerIsNoRestore(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("flips bits in memory, which the race detector reports")
	}
	c := startCluster(t, 3, 3, func(c *node.Config) { quiet(2, 3)(c); quickHistory(c) })
	all := keys(60)
	c.put(all...)
	c.ready()
	sm := c.settled(2, 3)
	c.put(all...)
	replicas := sm.Overlapping(kv.Single(all[17]))[0].Replicas
	wrong, calm, starts := c.machineOf(replicas[0]), c.machineOf(replicas[1]), c.machineOf(replicas[2])
	watches := c.bystanders(all[3], calm)
	testkit.Succeeds(t, "the node has the right value on disk", func() error {
		return starts.remembers([]byte("value of " + all[17]))
	})
	starts.crash()
	wrong.flip(all[17])
	starts.start()
	testkit.Succeeds(t, "the wrong copy is found", func() error {
		if c.log.count("a node has sent data that etcd contradicts", "node="+starts.name, "source="+wrong.name) == 0 {
			return errors.New("the wrong copy is not logged")
		}
		return nil
	})
	c.ready()
	wrong.heals(all[17], calm)
	c.same()
	watches.undisturbed()
}

// remembers fails unless the node has saved the bytes in its history.
func (m *machine) remembers(want []byte) error {
	missing := errors.New("the bytes are not in the saved history")
	err := filepath.WalkDir(m.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.Contains(path, "history") {
			return nil //nolint:nilerr // the node is writing
		}
		if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, want) {
			missing = nil
		}
		return nil
	})
	return errors.Join(err, missing)
}

// One node's view of etcd is wrong: etcd's raft index, term or revision seem to have
// gone back. The other nodes have read etcd, too, and no key proves a restore: the node
// continues, and other nodes are not affected.
func TestWrongMarkIsNoRestore(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 3, quiet(2, 2))
	all := keys(30)
	c.put(all...)
	c.ready()
	c.settled(2, 2)
	bad := c.nodes[2]
	watches := c.bystanders(all[3], c.nodes[0], c.nodes[1])
	for i, mark := range []kv.Mark{{Index: 1 << 40}, {Term: 1 << 40}, {Revision: 1 << 40}} {
		bad.store.Adopt(1, mark)
		testkit.Succeeds(t, "the node detects its wrong view", func() error {
			if n := c.log.count("this node's view of etcd was wrong", "node="+bad.name); n != i+1 {
				return fmt.Errorf("%d times", n)
			}
			return nil
		})
		c.lineage(1)
		watches.undisturbed()
	}
	c.settled(2, 2)
	c.same()
	watches.undisturbed()
}

// A byte has changed in each history file of a node. The node starts without its
// history, and other nodes are not affected.
func TestWrongHistoryOnDiskIsNoRestore(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 3, quiet(2, 3))
	all := keys(60)
	c.put(all...)
	c.ready()
	c.settled(2, 3)
	bad := c.nodes[2]
	watches := c.bystanders(all[3], c.nodes[0], c.nodes[1])
	bad.drain()
	flipped := 0
	for _, place := range []string{"history", "etcdmark"} {
		err := filepath.WalkDir(filepath.Join(bad.dir, place), func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) || err == nil && d.IsDir() {
				return nil
			}
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			b[len(b)*2/3] ^= 1
			flipped++
			return os.WriteFile(path, b, 0o600)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if flipped < 2 {
		t.Fatalf("the node has saved %d files, want at least 2", flipped)
	}
	bad.start()
	c.ready()
	c.settled(2, 3)
	c.same()
	watches.undisturbed()
}
