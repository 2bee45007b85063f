package node_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/history"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/node"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// quickHistory makes nodes save their history all the time.
func quickHistory(c *node.Config) { c.HistoryInterval = 50 * time.Millisecond }

// kept waits until every node has saved some history of each of its shards.
func (c *cluster) kept(shards int) {
	c.t.Helper()
	testkit.Succeeds(c.t, "history is on disk", func() error {
		for _, m := range c.nodes {
			if n := m.onDisk(); n < shards {
				return fmt.Errorf("%s: %d shards", m.name, n)
			}
		}
		return nil
	})
}

// onDisk returns how many shards the node would find on disk if it were killed
// now.
func (m *machine) onDisk() int { return len(m.saved()) }

// saved returns the histories that the node would find on disk if it were killed now.
func (m *machine) saved() map[shard.ID]*cache.Past {
	m.c.t.Helper()
	now := m.node.Map()
	if now == nil {
		return nil
	}
	killed := m.c.t.TempDir()
	if err := os.CopyFS(killed, os.DirFS(filepath.Join(m.dir, "history"))); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		m.c.t.Fatal(err)
	}
	ranges := make(map[shard.ID]kv.Range)
	for i := range now.Shards {
		ranges[now.Shards[i].ID] = now.Shards[i].Range
	}
	s := history.New(history.Config{Dir: killed, MaxBytes: 1 << 30})
	defer s.Close()
	return s.Load(history.Origin{Cluster: now.ClusterID, Etcd: now.EtcdClusterID, Lineage: now.Lineage}, ranges)
}

// savedAs returns the saved value of a key at a revision in the node's history, or nil.
func (m *machine) savedAs(key string, revision int64) []byte {
	m.c.t.Helper()
	h := m.saved()[m.shardOf(key).ID]
	if h == nil {
		return nil
	}
	for _, b := range h.Batches {
		for _, e := range b.Events {
			if string(e.KV.Key()) == key && int64(b.Revision) == revision {
				return e.KV.Value()
			}
		}
	}
	return nil
}

func (c *cluster) startAll() {
	c.t.Helper()
	for _, m := range c.nodes {
		m.start()
	}
	c.ready()
}

// write writes a key at etcd itself and returns the revision.
func (c *cluster) write(key, value string) int64 {
	c.t.Helper()
	r, err := c.etcd.Client().Put(within(c.t), key, value)
	if err != nil {
		c.t.Fatal(err)
	}
	return r.Header.Revision
}

// remove deletes a key at etcd itself.
func (c *cluster) remove(key string) int64 {
	c.t.Helper()
	r, err := c.etcd.Client().Delete(within(c.t), key)
	if err != nil {
		c.t.Fatal(err)
	}
	return r.Header.Revision
}

// events receives the events of a watch after one revision up to another, and
// fails unless they equal want.
func events(t *testing.T, w *client.Watcher, want []string) {
	t.Helper()
	for i := 0; i < len(want); {
		u, err := w.Next(within(t))
		if err != nil {
			t.Fatalf("event %d of %d: %v", i, len(want), err)
		}
		for _, e := range u.Events {
			got := fmt.Sprintf("%d %v %s=%s", u.Revision, e.Type, e.KV.Key, e.KV.Value)
			if e.Prev != nil {
				got += "<" + string(e.Prev.Value)
			}
			if got != want[i] {
				t.Fatalf("event %d: %s, want %s", i, got, want[i])
			}
			i++
		}
	}
}

// After the crash of all nodes, watches resume with every event and every
// previous value: earlier ones from disk, later ones from etcd's log.
func TestPositionsOutliveTheWholeTier(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 3, func(cfg *node.Config) {
		shards(4, 3)(cfg)
		quickHistory(cfg)
	})
	c.ready()
	var want []string // all that ever happens
	value := map[string]string{}
	change := func(key, to string) {
		var line string
		if to == "" {
			line = fmt.Sprintf("%d DELETE %s=<%s", c.remove(key), key, value[key])
			delete(value, key)
		} else {
			line = fmt.Sprintf("%d PUT %s=%s", c.write(key, to), key, to)
			if old, ok := value[key]; ok {
				line += "<" + old
			}
			value[key] = to
		}
		want = append(want, line)
	}
	some := func(round string) {
		for i := range 40 {
			key := fmt.Sprintf("/%02d/k", i%20)
			if _, ok := value[key]; ok && i%7 == 3 {
				change(key, "")
			} else {
				change(key, fmt.Sprint(round, i))
			}
		}
	}
	first := c.write("/00/begin", "")
	some("before")
	c.settled(4, 3)
	some("split")
	cl := c.client()
	all := client.Prefix("/")
	watch := func(from int64) *client.Watcher {
		w := cl.Watch(within(t), all, client.FromRevision(from), client.WithPrevKV(), client.WithoutResync())
		t.Cleanup(w.Close)
		return w
	}
	running := watch(first + 1)
	events(t, running, want)
	seen := len(want)
	token := running.Revision()
	etcds := etcdClient(t, c.nodes[0].clients)
	etcds.SetEndpoints("http://"+c.nodes[0].clients, "http://"+c.nodes[1].clients, "http://"+c.nodes[2].clients)
	through := etcds.Watch(clientv3.WithRequireLeader(within(t)), "/", clientv3.WithPrefix(), clientv3.WithRev(first+1))
	mustSee(t, through, want)
	c.kept(4)

	for round := range 3 {
		c.stopAll()
		some(fmt.Sprintf("down%d", round))
		c.startAll()
		some(fmt.Sprintf("up%d", round))
		events(t, running, want[seen:])
		mustSee(t, through, want[seen:])
		seen = len(want)
		events(t, watch(first+1), want)
		events(t, watch(token+1), want[80:])
		c.kept(4)
	}
	if n := cl.Stats(); n.Lists+n.Resyncs+n.Deltas != 0 {
		t.Errorf("%d lists, %d resyncs, %d deltas", n.Lists, n.Resyncs, n.Deltas)
	}
}

// All nodes are stopped one after the other, and the last one does not return: the others have no
// shard at their start. They keep their saved history, and use it for the shards that they get later.
func TestPositionsOutliveTheWholeTierWithoutItsLastNode(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 3, func(cfg *node.Config) {
		shards(2, 2)(cfg)
		quickHistory(cfg)
	})
	c.ready()
	var want []string
	some := func() {
		for i := range 20 {
			key := fmt.Sprintf("/%02d/k", i)
			value := fmt.Sprint(len(want))
			want = append(want, fmt.Sprintf("%d PUT %s=%s", c.write(key, value), key, value))
		}
	}
	first := c.write("/00/begin", "")
	some()
	c.settled(2, 2)
	c.kept(1)
	if _, err := c.etcd.Client().Compact(within(t), first+int64(len(want))); err != nil { // only the disks have these events
		t.Fatal(err)
	}
	for _, m := range c.nodes {
		m.drain()
		some()
	}
	returned := c.nodes[:2]
	for _, m := range returned {
		m.start()
	}
	c.ready()
	w := c.client(returned...).Watch(within(t), client.Prefix("/"), client.FromRevision(first+1), client.WithoutResync())
	defer w.Close()
	events(t, w, want)
}

// etcd is compacted after the nodes have saved their history for the last time, and all
// nodes crash. A watch that had everything up to the compaction resumes without a resync,
// because etcd's log has the rest. This also holds for a node that has lost its history.
func TestCompactionSinceTheLastSave(t *testing.T) {
	t.Parallel()
	for name, keep := range map[string]bool{"an old history": true, "no history": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startCluster(t, 3, 3, func(cfg *node.Config) {
				shards(4, 3)(cfg)
				quickHistory(cfg)
			})
			c.ready()
			var want []string
			value := map[string]string{}
			some := func(round string) {
				for i := range 40 {
					key := fmt.Sprintf("/%02d/k", i%20)
					var line string
					if old, ok := value[key]; ok && i%7 == 3 {
						line = fmt.Sprintf("%d DELETE %s=<%s", c.remove(key), key, old)
						delete(value, key)
					} else {
						value[key] = round + fmt.Sprint(i)
						line = fmt.Sprintf("%d PUT %s=%s", c.write(key, value[key]), key, value[key])
						if ok {
							line += "<" + old
						}
					}
					want = append(want, line)
				}
			}
			begin := c.write("/00/begin", "")
			some("saved")
			cl := c.client()
			w := cl.Watch(within(t), client.Prefix("/"), client.FromRevision(begin+1), client.WithPrevKV())
			t.Cleanup(w.Close)
			events(t, w, want)
			c.kept(4)
			saved := make([]string, len(c.nodes))
			for i, m := range c.nodes {
				saved[i] = t.TempDir()
				if err := os.CopyFS(saved[i], os.DirFS(filepath.Join(m.dir, "history"))); err != nil {
					t.Fatal(err)
				}
			}
			some("lost")
			events(t, w, want[40:])
			if _, err := c.etcd.Client().Compact(within(t), w.Revision()); err != nil {
				t.Fatal(err)
			}
			c.stopAll()
			for i, m := range c.nodes {
				dir := filepath.Join(m.dir, "history")
				err := os.RemoveAll(dir)
				if err == nil && keep {
					err = os.CopyFS(dir, os.DirFS(saved[i]))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			some("down")
			c.startAll()
			some("up")
			events(t, w, want[80:])
			if n := cl.Stats(); n.Lists+n.Resyncs+n.Deltas != 0 {
				t.Errorf("%d lists, %d resyncs, %d deltas", n.Lists, n.Resyncs, n.Deltas)
			}
		})
	}
}

// mustSee receives events of a watch of etcd's API.
func mustSee(t *testing.T, w clientv3.WatchChan, want []string) {
	t.Helper()
	ctx := within(t)
	for i := 0; i < len(want); {
		select {
		case r, ok := <-w:
			if err := r.Err(); err != nil || !ok {
				t.Fatalf("event %d of %d: %v", i, len(want), err)
			}
			for _, e := range r.Events {
				got := fmt.Sprintf("%d %v %s=%s", e.Kv.ModRevision, e.Type, e.Kv.Key, e.Kv.Value)
				if without, _, _ := strings.Cut(want[i], "<"); got != without {
					t.Fatalf("event %d: %s, want %s", i, got, without)
				}
				i++
			}
		case <-ctx.Done():
			t.Fatalf("%d of %d events", i, len(want))
		}
	}
}

// If etcd was compacted while all nodes were down, the changes are unknown:
// native watches receive the state and continue, watches of etcd's API receive
// the compact revision.
func TestCompactedWhileTheWholeTierWasDown(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 3, func(cfg *node.Config) {
		shards(2, 3)(cfg)
		quickHistory(cfg)
	})
	c.ready()
	for i := range 30 {
		c.write(fmt.Sprintf("/k/%02d", i), "before")
	}
	c.settled(2, 3)
	cl := c.client()
	w := cl.Watch(within(t), client.Prefix("/k/"))
	t.Cleanup(w.Close)
	<-w.Started()
	etcds := etcdClient(t, c.nodes[0].clients)
	ctx, cancel := context.WithCancel(within(t))
	through := etcds.Watch(ctx, "/k/", clientv3.WithPrefix())
	at := c.write("/k/00", "seen")
	mustSee(t, through, []string{fmt.Sprintf("%d PUT /k/00=seen", at)})
	if u, err := w.Next(within(t)); err != nil || u.Revision != at {
		t.Fatalf("%+v, %v", u, err)
	}
	c.kept(2)
	c.stopAll()
	c.remove("/k/01")
	last := c.write("/k/02", "compacted")
	if _, err := c.etcd.Client().Compact(within(t), last); err != nil {
		t.Fatal(err)
	}
	c.startAll()
	u, err := w.Next(within(t))
	if err != nil || u.Kind != client.KindResync || u.Revision < last || len(u.KVs) != 29 {
		t.Errorf("%v at %d with %d keys, %v", u.Kind, u.Revision, len(u.KVs), err)
	}
	next := c.write("/k/03", "after")
	if u, err := w.Next(within(t)); err != nil || u.Kind != client.KindBatch || u.Revision != next {
		t.Errorf("%+v, %v", u, err)
	}
	for r := range through {
		if err := r.Err(); err != nil {
			if !errors.Is(err, rpctypes.ErrCompacted) || r.CompactRevision != last {
				t.Errorf("ended with %v at %d, compacted at %d", err, r.CompactRevision, last)
			}
			break
		}
		if len(r.Events) > 0 {
			t.Fatalf("events %v", r.Events)
		}
	}
	cancel()
}

// A node that detects a wrong record in its memory drops the saved history of the shard,
// which has the record too, and saves its new copy. After a restart of all nodes its
// watches resume without a resync, with the right value.
func TestWrongRecordThatWasSaved(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("flips bits in memory, which the race detector reports")
	}
	c := startCluster(t, 3, 3, func(cfg *node.Config) {
		quiet(2, 3)(cfg)
		cfg.HistoryInterval = 200 * time.Millisecond
	})
	all := keys(40)
	first := c.put(all...)
	c.ready()
	sm := c.settled(2, 3)
	key := all[7]
	of := sm.Overlapping(kv.Single(key))[0]
	bad, good := c.machineOf(of.Replicas[1]), c.machineOf(of.Replicas[0])
	user := c.client(bad)
	w := user.Watch(within(t), client.Prefix("/"), client.FromRevision(first+1))
	t.Cleanup(w.Close)

	var want string
	var at int64
	testkit.Succeeds(t, "the wrong record is saved", func() error {
		want = fmt.Sprintf("value %d", at) // its last byte is a digit
		at = c.write(key, want)
		c.reached(at)
		bad.flip(key)
		testkit.Succeeds(t, "the record is saved", func() error {
			if bad.savedAs(key, at) == nil {
				return errors.New("the record is not saved")
			}
			return nil
		})
		if got := string(bad.savedAs(key, at)); got == want {
			bad.flip(key) // the record was saved before the flip: try again
			return errors.New("the right record was saved")
		}
		return nil
	})
	if err := admin.New(user).Verify(within(t), admin.VerifyRequest{Shards: []uint64{uint64(of.ID)}}, func(admin.VerifiedShard) error { return nil }); err != nil {
		t.Fatal(err)
	}
	bad.heals(key, good)
	testkit.Succeeds(t, "the right record is saved", func() error {
		if got := string(bad.savedAs(key, at)); got != want {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
	c.kept(2)
	c.stopAll()
	last := c.write(key, "after")
	c.startAll()
	for {
		u, err := w.Next(within(t))
		if err != nil {
			t.Fatal(err)
		}
		if u.Kind != client.KindBatch {
			t.Fatalf("%v at revision %d", u.Kind, u.Revision)
		}
		if u.Revision == last {
			break
		}
	}
	if s := user.Stats(); s.Lists > 0 || s.Units != (client.Units{}) {
		t.Errorf("the client listed: %+v", s)
	}
	if n := c.log.count("the saved history is wrong"); n > 0 {
		t.Errorf("%d nodes report that their saved history is wrong", n)
	}
}

// A volume that belongs to another cluster is not used.
func TestHistoryOfAnotherCluster(t *testing.T) {
	t.Parallel()
	one := startCluster(t, 1, 1, func(cfg *node.Config) {
		shards(1, 1)(cfg)
		quickHistory(cfg)
	})
	one.ready()
	for i := range 20 {
		one.write("/k", fmt.Sprint(i))
	}
	one.kept(1)
	copied := filepath.Join(one.nodes[0].dir, "history")
	one.stopAll()

	other := newCluster(t, 1, 1, func(cfg *node.Config) {
		shards(1, 1)(cfg)
		quickHistory(cfg)
	})
	other.etcd = one.etcd
	if err := os.CopyFS(filepath.Join(other.nodes[0].dir, "history"), os.DirFS(copied)); err != nil {
		t.Fatal(err)
	}
	other.startAll()
	if told := other.log.tail(1 << 20); !strings.Contains(told, "history on disk is not used") || !strings.Contains(told, "it belongs to cluster") {
		t.Errorf("the other cluster is not logged: %s", told)
	}
	other.kept(1)
}

// A node whose disk cannot store history serves without it.
func TestNoDiskForHistory(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 1, func(cfg *node.Config) {
		shards(1, 1)(cfg)
		quickHistory(cfg)
		if err := os.WriteFile(filepath.Join(cfg.DataDir, "history"), nil, 0o600); err != nil {
			t.Error(err)
		}
	})
	c.etcd = etcdtest.Start(t)
	c.startAll()
	revision := c.write("/k", "v")
	cl := c.client()
	w := cl.Watch(within(t), client.Prefix("/k"), client.FromRevision(revision))
	t.Cleanup(w.Close)
	if u, err := w.Next(within(t)); err != nil || u.Revision != revision {
		t.Errorf("%+v, %v", u, err)
	}
	testkit.Succeeds(t, "the failed write is logged", func() error {
		if told := strings.Count(c.log.tail(1<<20), "history is not written"); told != 1 {
			return fmt.Errorf("%d times", told)
		}
		return nil
	})
}
