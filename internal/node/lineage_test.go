package node_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/internal/etcd"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/node"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// dialEtcdAt connects to another etcd than the cluster's, until the test ends.
func (m *machine) dialEtcdAt(endpoint string) *etcd.Client {
	m.c.t.Helper()
	ec := etcd.Defaults()
	ec.Endpoints, ec.Logger = []string{"http://" + endpoint}, slog.New(slog.NewTextHandler(m.c.log, nil))
	store, err := etcd.New(ec)
	if err != nil {
		m.c.t.Fatal(err)
	}
	m.c.t.Cleanup(func() { _ = store.Close() })
	return store
}

// oldWatches are watches of everything that began in the lineage that will end, by
// both APIs.
type oldWatches struct {
	t      *testing.T
	etcd   clientv3.WatchChan
	native grpc.BidiStreamingClient[pb.WatchRequest, pb.WatchResponse]
	token  []byte
	seen   int64 // the newest revision that both have received
}

func native(t *testing.T, m *machine) pb.CacheServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(m.clients, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return pb.NewCacheServiceClient(conn)
}

func create(c *pb.CreateWatch) *pb.WatchRequest {
	c.WatchId, c.RangeEnd = 1, []byte{0}
	c.Key = []byte{0}
	return &pb.WatchRequest{Request: &pb.WatchRequest_Create{Create: c}}
}

// watchAll starts them at m, and waits until they have brought revision.
func watchAll(t *testing.T, m *machine, from, revision int64) *oldWatches {
	t.Helper()
	w := &oldWatches{t: t, seen: revision}
	w.etcd = etcdClient(t, m.clients).Watch(within(t), "\x00", clientv3.WithFromKey(), clientv3.WithRev(from))
	var err error
	if w.native, err = native(t, m).Watch(within(t)); err != nil {
		t.Fatal(err)
	}
	if err := w.native.Send(create(&pb.CreateWatch{Start: &pb.CreateWatch_StartRevision{StartRevision: from}, Lineage: 1})); err != nil {
		t.Fatal(err)
	}
	for at := int64(0); at < revision; {
		r, err := w.native.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if c := r.GetCreated(); c != nil {
			w.token = c.GetResumeToken()
		}
		if r.GetEnded() != nil {
			t.Fatalf("%s: %v", m.name, r.GetEnded())
		}
		at = max(at, r.GetRevision())
	}
	for at := int64(0); at < revision; {
		r := <-w.etcd
		if r.Err() != nil {
			t.Fatal(r.Err())
		}
		for _, e := range r.Events {
			at = e.Kv.ModRevision
		}
	}
	return w
}

// ended waits until etcd's watch has ended as compacted and the native watch
// because of its lineage. Neither may receive events before that.
func (w *oldWatches) ended(m *machine) {
	w.t.Helper()
	r, open := <-w.etcd
	if !open || r.CompactRevision <= w.seen || len(r.Events) > 0 {
		w.t.Errorf("%s: etcd's watch ended with %+v", m.name, r)
	}
	for {
		r, err := w.native.Recv()
		if err != nil {
			w.t.Errorf("%s: the native watch: %v", m.name, err)
			return
		}
		if e := r.GetEnded(); e != nil {
			if e.GetReason() != pb.EndReason_END_REASON_LINEAGE {
				w.t.Errorf("%s: the native watch ended with %v", m.name, e)
			}
			return
		}
		if len(r.GetEvents()) > 0 {
			w.t.Errorf("%s: the native watch brings %v", m.name, r)
		}
	}
}

// lineage waits until all nodes that run are at a lineage, and ready.
func (c *cluster) lineage(want uint64) *shard.Map {
	c.t.Helper()
	var out *shard.Map
	testkit.Succeeds(c.t, fmt.Sprintf("lineage %d", want), func() error {
		for _, m := range c.nodes {
			if m.node == nil {
				continue
			}
			sm := m.node.Map()
			if sm == nil || sm.Lineage != want {
				return fmt.Errorf("%s has another lineage: %+v", m.name, sm)
			}
			out = sm
			if why := m.node.Status().GetRefusal(); why != "" {
				return fmt.Errorf("%s refuses: %s", m.name, why)
			}
		}
		return nil
	})
	return out
}

// same fails unless every node answers, by both APIs, like etcd. It retries
// nodes that report that they have not loaded everything yet.
func (c *cluster) same() {
	c.t.Helper()
	want, err := c.etcd.Client().Get(within(c.t), "\x00", clientv3.WithFromKey())
	if err != nil {
		c.t.Fatal(err)
	}
	show := func(kvs []*mvccpb.KeyValue) string { return fmt.Sprint(kvs) }
	for _, m := range c.nodes {
		if m.node == nil {
			continue
		}
		cli := etcdClient(c.t.(*testing.T), m.clients)
		testkit.Succeeds(c.t, m.name+" answers by etcd's API", func() error {
			got, err := cli.Get(within(c.t), "\x00", clientv3.WithFromKey())
			if err == nil && (show(got.Kvs) != show(want.Kvs) || got.Header.ClusterId != want.Header.ClusterId) {
				c.t.Errorf("%s: %v; want %v", m.name, got, want)
			}
			return err
		})
		testkit.Succeeds(c.t, m.name+" answers by the native API", func() error { return c.sameList(m, want.Kvs) })
	}
}

// sameList compares the node's list with etcd's. It returns the error of a list that fails.
func (c *cluster) sameList(m *machine, want []*mvccpb.KeyValue) error {
	list, err := native(c.t.(*testing.T), m).List(within(c.t), &pb.ListRequest{Key: []byte{0}, RangeEnd: []byte{0}})
	if err != nil {
		return err
	}
	for n := 0; ; {
		part, err := list.Recv()
		switch {
		case errors.Is(err, io.EOF) && n != len(want):
			c.t.Errorf("%s lists %d keys, etcd has %d", m.name, n, len(want))
			return nil
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		n += len(part.GetKvs())
		for _, k := range part.GetKvs() {
			found := false
			for _, w := range want {
				found = found || string(w.Key) == string(k.GetKey()) && string(w.Value) == string(k.GetValue()) && w.ModRevision == k.GetModRevision()
			}
			if !found {
				c.t.Errorf("%s has %v, which etcd does not have", m.name, k)
			}
		}
	}
}

// looked waits until every node has read etcd at a revision of at least revision.
func (c *cluster) looked(revision int64) {
	c.t.Helper()
	testkit.Succeeds(c.t, "all nodes have looked at etcd", func() error {
		for _, m := range c.nodes {
			if m.node != nil && m.node.Status().GetEtcdRevision() < revision {
				return fmt.Errorf("%s has read revision %d", m.name, m.node.Status().GetEtcdRevision())
			}
		}
		return nil
	})
}

// indexed waits until every node has read an index of raft's log that is not below
// revision. A node reads the index when it looks at etcd, every two seconds; its other
// reads return the revision only. Without an index it cannot detect a restore by the
// index: see docs/adr/0012-lineage.md.
func (c *cluster) indexed(revision int64) {
	c.t.Helper()
	testkit.Succeeds(c.t, "all nodes have read the index of etcd's raft log", func() error {
		for _, m := range c.nodes {
			if _, mark := m.store.Known(); mark.Index < uint64(revision) {
				return fmt.Errorf("%s has read %+v", m.name, mark)
			}
		}
		return nil
	})
}

// etcd is restored from a snapshot behind the same address, in each of the four ways.
// From then on a watch of the old history receives events of neither history and
// ends, and reads return the new history.
func TestRestore(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]struct {
		etcdtest.Restore
		writes int // at once
	}{
		"another cluster ID":         {Restore: etcdtest.Restore{Token: "another"}},
		"an older state":             {},
		"a bumped revision":          {Restore: etcdtest.Restore{BumpRevision: 1000}},
		"an older state, written to": {writes: 20}, // beyond the old revision
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && how.writes == 0 {
				t.Skip("one way will do")
			}
			c := startCluster(t, 2, 1, shards(2, 2))
			all := keys(16)
			c.put(all...)
			c.ready()
			c.settled(2, 2)
			how.Snapshot = c.etcd.Snapshot(within(t))
			newest := c.put(append(all, "/gone")...) // into the window
			c.looked(newest)
			c.indexed(newest)
			watches := map[*machine]*oldWatches{}
			for _, m := range c.nodes {
				watches[m] = watchAll(t, m, c.floor(), newest)
			}
			c.etcd.Stop()
			c.etcd.Restore(how.Restore)
			up := time.Now()
			for range how.writes {
				c.put(all[0])
			}
			for m, w := range watches {
				w.ended(m)
			}
			sm := c.lineage(2)
			t.Logf("found by %s after %v: %s", sm.Origin.Node, time.Since(up), sm.Origin.Reason)
			c.settled(2, 2)
			c.looked(c.put(all...))
			c.same()

			// Positions of the old lineage lead to no events, and to a new start
			// for clients that ask for one.
			for m, w := range watches {
				s, err := native(t, m).Watch(within(t))
				if err == nil {
					err = s.Send(create(&pb.CreateWatch{Start: &pb.CreateWatch_ResumeToken{ResumeToken: w.token}}))
				}
				if err != nil {
					t.Fatal(err)
				}
				if r, err := s.Recv(); err != nil || r.GetEnded().GetReason() != pb.EndReason_END_REASON_LINEAGE {
					t.Errorf("%s: resumed with an old token: %v, %v", m.name, r, err)
				}
			}
			if sm := c.lineage(2); sm.Lineage != 2 {
				t.Errorf("lineage %d", sm.Lineage)
			}
			status, err := admin.New(c.client()).ClusterStatus(within(t), 10*time.Second)
			if err != nil || status.Map.Lineage != 2 {
				t.Errorf("%+v, %v", status.Map, err)
			}
		})
	}
}

// floor returns the oldest revision from which all nodes can watch everything.
func (c *cluster) floor() (floor int64) {
	for _, m := range c.nodes {
		if m.node == nil {
			continue
		}
		for _, r := range m.node.Status().GetReplicas() {
			floor = max(floor, r.GetFloor())
		}
	}
	return floor
}

// A restore of etcd while no node runs is detected: the nodes have its last position
// on disk.
func TestRestoreWhileNoNodeRuns(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes long")
	}
	for name, how := range map[string]etcdtest.Restore{"the same cluster ID": {BumpRevision: 1000}, "another one": {Token: "another"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startCluster(t, 2, 1, shards(2, 2))
			how.Snapshot = c.etcd.Snapshot(within(t))
			newest := c.put(keys(16)...)
			c.ready()
			c.looked(newest)
			c.indexed(newest)
			for _, m := range c.nodes {
				m.drain() // an orderly stop, so that the last known position is saved
			}
			c.etcd.Stop()
			c.etcd.Restore(how)
			for _, m := range c.nodes {
				m.start()
			}
			c.lineage(2)
			c.ready()
			c.same()
		})
	}
}

// Without a majority of the voters there is no new lineage. The remaining nodes
// serve no data of the old lineage meanwhile, and report why.
func TestRestoreWithoutQuorum(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes long")
	}
	c := startCluster(t, 3, 3, shards(2, 3))
	all := keys(8)
	c.put(all...)
	c.ready()
	c.settled(2, 3)
	snapshot := c.etcd.Snapshot(within(t))
	newest := c.put(all...)
	c.looked(newest)
	last := c.nodes[2]
	c.nodes[0].crash()
	c.nodes[1].crash()
	w := watchAll(t, last, c.floor(), newest)
	c.etcd.Stop()
	c.etcd.Restore(etcdtest.Restore{Snapshot: snapshot})
	testkit.Succeeds(t, "the last node refuses", func() error {
		_, err := native(t, last).Get(within(t), &pb.GetRequest{Key: []byte(all[0]), Consistency: pb.Consistency_CONSISTENCY_SERIALIZABLE})
		if err == nil || !strings.Contains(err.Error(), "etcd has a different history") {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	if r := <-w.etcd; r.CompactRevision <= w.seen {
		t.Errorf("etcd's watch ended with %+v", r)
	}
	c.nodes[0].start()
	c.lineage(2)
	c.nodes[1].start()
	c.lineage(2)
	c.settled(2, 3)
	c.same()
}

// An operator begins a lineage once: a repetition fails and names the current lineage.
func TestOperatorBeginsALineage(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 2, 1, shards(2, 2))
	c.put(keys(8)...)
	c.ready()
	c.settled(2, 2)
	w := watchAll(t, c.nodes[1], c.floor(), c.put("/a/00"))
	got, err := c.nodes[1].node.BumpLineage(within(t), 1, "to be sure", 0)
	if got != 2 || err != nil {
		t.Fatal(got, err)
	}
	w.ended(c.nodes[1])
	if o := c.lineage(2).Origin; o.Cause != kv.CauseOperator || o.Reason != "to be sure" || o.Node != "node-2" {
		t.Errorf("%+v", o)
	}
	var lineage *kv.LineageError
	if _, err := c.nodes[0].node.BumpLineage(within(t), 1, "again", 0); !errors.As(err, &lineage) || lineage.Current != 2 {
		t.Error(err)
	}
	c.same()
}

// A lineage that began long ago is not reported again by a node that restarts,
// nor by a node that joins later.
func TestRestartReportsNoNewLineage(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 2, 1, shards(1, 2))
	again := c.nodes[1]
	c.ready()
	if _, err := c.nodes[0].node.BumpLineage(within(t), 1, "to be sure", 0); err != nil {
		t.Fatal(err)
	}
	c.lineage(2)
	testkit.Succeeds(t, "the lineage is on disk", func() error {
		b, err := os.ReadFile(filepath.Join(again.dir, "etcdmark"))
		if err == nil && !strings.Contains(string(b), `"lineage":2`) {
			err = fmt.Errorf("%q", b)
		}
		return err
	})
	again.drain()
	again.start()
	c.ready()
	c.add("node-3").start()
	c.lineage(2)
	c.ready()
	if n := c.log.count("level=WARN", "a new lineage has begun"); n != 2 {
		t.Errorf("%d nodes warn of a new lineage, want the 2 that ran when it began", n)
	}
	if n := c.log.count("level=INFO", "the lineage is not the first one"); n != 2 {
		t.Errorf("%d nodes log the lineage that they join, want 2", n)
	}
}

// detour is a connection to etcd that can be redirected.
type detour struct {
	mu    sync.Mutex
	to    string
	conns []net.Conn
}

func (d *detour) dial(ctx context.Context, addr string) (net.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.to != "" {
		addr = d.to
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err == nil {
		d.conns = append(d.conns, conn)
	}
	return conn, err
}

func (d *detour) lead(to string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.to = to
	for _, c := range d.conns {
		_ = c.Close()
	}
	d.conns = nil
}

// A single node that is redirected to another etcd serves nothing, and does not
// affect the others. Redirected back, it continues.
func TestOneNodeIsRedirectedToAnotherEtcd(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes long")
	}
	c := newCluster(t, 3, 1, shards(2, 3))
	c.etcd = etcdtest.Start(t)
	other := etcdtest.Start(t)
	snapshot := other.Snapshot(within(t))
	other.Stop()
	other.Restore(etcdtest.Restore{Snapshot: snapshot, Token: "another"})
	way, astray := &detour{}, c.nodes[2]
	astray.wrap = func(node.Etcd) node.Etcd {
		ec := etcd.Defaults()
		ec.Endpoints, ec.Logger = []string{"http://" + c.etcd.Endpoint()}, slog.New(slog.NewTextHandler(c.log, nil))
		ec.Dialer = way.dial
		e, err := etcd.New(ec)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.Close() })
		return e
	}
	all := keys(8)
	newest := c.put(all...)
	for _, m := range c.nodes {
		m.start()
	}
	c.ready()
	c.settled(2, 3)
	c.looked(newest)
	way.lead(other.Endpoint())
	testkit.Succeeds(t, "the redirected node refuses", func() error {
		if astray.node.Status().GetRefusal() == "" || c.log.count("not for most of the 3 nodes") == 0 {
			return errors.New("no refusal")
		}
		return nil
	})
	for _, m := range c.nodes[:2] {
		if why := m.node.Status().GetRefusal(); why != "" || m.node.Map().Lineage != 1 {
			t.Errorf("%s was affected: %q", m.name, why)
		}
	}
	way.lead("")
	testkit.Succeeds(t, "the node serves again", func() error {
		if why := astray.node.Status().GetRefusal(); why != "" {
			return errors.New(why)
		}
		return nil
	})
	c.settled(2, 3)
	c.same()
	if l := c.nodes[0].node.Map().Lineage; l != 1 {
		t.Errorf("lineage %d", l)
	}
}
