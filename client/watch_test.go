package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/client/clienttest"
	"github.com/shardwatch/shardwatch/client/mirror"
)

var demo = client.Prefix("/demo/")

// serving returns the node that serves w.
func serving(t testing.TB, cluster *clienttest.Cluster, w *client.Watcher) *clienttest.Node {
	t.Helper()
	eventually(t, "the watch is attached", func() bool { return w.Stats().Attached })
	return cluster.Node(w.Stats().Node)
}

func TestWatchFromNowDeliversLaterWrites(t *testing.T) {
	cluster := start(t, clienttest.Config{})
	cluster.Put("/demo/old", "0")
	c := connect(t, cluster)
	w := c.Watch(t.Context(), demo)
	waitStarted(t, w)
	from := w.Revision()
	if from != 2 {
		t.Errorf("a watch from now stands at revision %d, want 2", from)
	}
	cluster.Put("/other", "x")
	rev := cluster.Txn(clienttest.Op{Key: "/demo/a", Value: "1"}, clienttest.Op{Key: "/demo/b", Value: "2"}, clienttest.Op{Key: "/x"})
	follow(t, cluster, w, &seen{rng: demo}, rev, from)
}

func TestWatchStateThenEvents(t *testing.T) {
	cluster := start(t, clienttest.Config{ChunkKeys: 3})
	for i := range 10 {
		cluster.Put(fmt.Sprintf("/demo/%d", i), "x")
	}
	cluster.Delete("/demo/4")
	c := connect(t, cluster)
	w := c.Watch(t.Context(), demo, client.WithState(), client.WithPrevKV())
	s := seen{rng: demo}
	if err := s.read(deadline(t), w, 12); err != nil {
		t.Fatal(err)
	}
	rev := cluster.Delete("/demo/1", "/demo/2")
	if err := s.read(deadline(t), w, rev); err != nil {
		t.Fatal(err)
	}
	if s.state == nil || len(s.state.KVs) != 9 {
		t.Fatalf("state: %+v", s.state)
	}
	if err := s.check(cluster.History(), 0, true); err != nil {
		t.Fatal(err)
	}
}

func TestWatchFromAFutureRevisionDeliversNothingBelowIt(t *testing.T) {
	cluster := start(t, clienttest.Config{})
	c := connect(t, cluster)
	w := c.Watch(t.Context(), demo, client.FromRevision(5), client.WithProgress())
	waitStarted(t, w)
	for range 6 {
		cluster.Put("/demo/a", "x")
	}
	follow(t, cluster, w, &seen{rng: demo}, 7, 4)
}

// etcd's first revision has no events: a watch from there gets all of them.
func TestWatchFromTheFirstRevision(t *testing.T) {
	cluster := start(t, clienttest.Config{})
	cluster.Put("/demo/a", "1")
	rev := cluster.Put("/demo/b", "2")
	c := connect(t, cluster)
	follow(t, cluster, c.Watch(t.Context(), demo, client.FromRevision(1)), &seen{rng: demo}, rev, 0)
}

// A watch continues after any failure of its node: no event is delivered twice, none is
// missing, and nothing is listed.
func TestWatchSurvives(t *testing.T) {
	for name, fault := range map[string]func(*clienttest.Node){
		"a killed node":   (*clienttest.Node).Kill,
		"a stopped node":  (*clienttest.Node).Stall,
		"a draining node": (*clienttest.Node).Drain,
		"a cut stream":    func(n *clienttest.Node) { n.CutAfter(1) },
	} {
		t.Run(name, func(t *testing.T) {
			cluster := start(t, clienttest.Config{FragmentEvents: 2, Cuts: []string{"/m"}})
			c := connect(t, cluster)
			var resumed atomic.Int64
			w := c.Watch(t.Context(), demo, client.FromRevision(2), client.OnResume(func(r client.Resume) {
				resumed.Add(1)
				t.Logf("from %s to %s at %d: %v", r.From, r.To, r.Revision, r.Reason)
			}))
			other := c.Watch(t.Context(), client.Key("/demo/b"), client.FromRevision(2))
			s, so := seen{rng: demo}, seen{rng: client.Key("/demo/b")}
			cluster.Put("/demo/a", "1")
			follow(t, cluster, w, &s, 2, 1)
			fault(serving(t, cluster, w))
			var rev int64
			for range 10 {
				rev = cluster.Txn(clienttest.Op{Key: "/demo/a", Value: "2"}, clienttest.Op{Key: "/demo/b", Value: "2"}, clienttest.Op{Key: "/demo/c", Value: "2"})
			}
			follow(t, cluster, w, &s, rev, 1)
			follow(t, cluster, other, &so, rev, 1)
			if got := int64(w.Stats().Resumes); got == 0 || resumed.Load() == 0 || resumed.Load() > got {
				t.Errorf("resumes: %d counted, %d reported to OnResume", got, resumed.Load())
			}
			if n := cluster.Lists(); n != 0 {
				t.Errorf("%d lists", n)
			}
		})
	}
}

// A stopped node that wakes up again has no watches that get stale events.
func TestAResumedNodeHasNoStaleWatches(t *testing.T) {
	cluster := start(t, clienttest.Config{})
	c := connect(t, cluster)
	w := c.Watch(t.Context(), demo, client.FromRevision(2))
	s := seen{rng: demo}
	for round := range 3 {
		n := serving(t, cluster, w)
		n.Stall()
		rev := cluster.Put("/demo/a", fmt.Sprint(round))
		follow(t, cluster, w, &s, rev, 1)
		n.Continue()
	}
	eventually(t, "one watch is left", func() bool {
		var sum int64
		for _, n := range cluster.Nodes() {
			sum += n.Watches()
		}
		return sum == 1
	})
}

// A revision in fragments that is cut after any of them arrives whole, once.
func TestFragmentedRevisionCutInTheMiddle(t *testing.T) {
	for after := int64(1); after <= 6; after++ {
		cluster := start(t, clienttest.Config{FragmentEvents: 2})
		c := connect(t, cluster)
		w := c.Watch(t.Context(), demo, client.FromRevision(2), client.WithProgress())
		serving(t, cluster, w).CutAfter(after)
		var ops []clienttest.Op
		for i := range 9 {
			ops = append(ops, clienttest.Op{Key: fmt.Sprintf("/demo/%d", i), Value: "x"})
		}
		rev := cluster.Txn(ops...)
		rev = max(rev, cluster.Put("/demo/0", "y"))
		follow(t, cluster, w, &seen{rng: demo}, rev, 1)
	}
}

// A state in chunks that is cut between any of them arrives whole, once.
func TestStateCutInTheMiddle(t *testing.T) {
	for after := int64(1); after <= 5; after++ {
		cluster := start(t, clienttest.Config{ChunkKeys: 2})
		for i := range 9 {
			cluster.Put(fmt.Sprintf("/demo/%d", i), "x")
		}
		for _, n := range cluster.Nodes()[:2] {
			n.CutAfter(after)
		}
		c := connect(t, cluster)
		w := c.Watch(t.Context(), demo, client.WithState())
		rev := cluster.Put("/demo/0", "y")
		s := seen{rng: demo}
		follow(t, cluster, w, &s, rev, 0)
		if s.state == nil {
			t.Fatal("no state")
		}
	}
}

// A lagging node sends no old events to a watch with a newer revision.
func TestResumeAtANodeThatLags(t *testing.T) {
	cluster := start(t, clienttest.Config{Nodes: 2})
	c := connect(t, cluster)
	w := c.Watch(t.Context(), demo, client.FromRevision(2), client.WithProgress())
	s := seen{rng: demo}
	here := serving(t, cluster, w)
	for _, n := range cluster.Nodes() {
		if n != here {
			n.Hold(3)
		}
	}
	var rev int64
	for range 5 {
		rev = cluster.Put("/demo/a", "x")
	}
	follow(t, cluster, w, &s, rev, 1)
	here.Kill()
	rev = cluster.Put("/demo/a", "y")
	eventually(t, "the watch moved", func() bool { return w.Stats().Attached && w.Stats().Node != here.Name })
	there := serving(t, cluster, w)
	there.Hold(5)
	there.Hold(0)
	follow(t, cluster, w, &s, rev, 1)
}

func TestWatchIsRefused(t *testing.T) {
	for name, e := range map[string]*pb.Ended{
		"unavailable": {Reason: pb.EndReason_END_REASON_UNAVAILABLE, Message: "the shard is not here"},
		"limit":       {Reason: pb.EndReason_END_REASON_LIMIT, Message: "too many watches", RetryAfter: durationpb.New(10 * time.Millisecond)},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := start(t, clienttest.Config{})
			e.Endpoints = cluster.Endpoints()[2:]
			for _, n := range cluster.Nodes()[:2] {
				n.RefuseWatches(e)
			}
			c := connect(t, cluster)
			w := c.Watch(t.Context(), demo)
			if n := serving(t, cluster, w); n.Name != "n3" {
				t.Errorf("served by %s", n.Name)
			}
		})
	}
}

// A node that has reloaded its data has less history than the others: if it lacks the
// revisions of a watch, other nodes are tried.
func TestWatchFindsTheNodeThatStillHasTheHistory(t *testing.T) {
	cluster := start(t, clienttest.Config{Nodes: 3})
	for range 10 {
		cluster.Put("/demo/a", "x")
	}
	for _, n := range cluster.Nodes()[:2] {
		n.RefuseWatches(&pb.Ended{Reason: pb.EndReason_END_REASON_COMPACTED, Floor: 9, Message: "gone"})
	}
	c := connect(t, cluster)
	for range 5 { // with different first nodes
		w := c.Watch(t.Context(), demo, client.FromRevision(3))
		if u, err := w.Next(deadline(t)); err != nil || u.Revision != 3 {
			t.Fatalf("got %+v, %v", u, err)
		}
		w.Close()
	}
	// A node that does not answer is tried once, so that the watch does not wait for it.
	cluster.Nodes()[1].Kill()
	cluster.Nodes()[2].RefuseWatches(&pb.Ended{Reason: pb.EndReason_END_REASON_COMPACTED, Floor: 7, Message: "gone"})
	var compacted *client.CompactedError
	if _, err := c.Watch(t.Context(), demo, client.FromRevision(3), client.WithoutResync()).Next(deadline(t)); !errors.As(err, &compacted) || compacted.Floor != 7 {
		t.Fatalf("gone everywhere: %v", err)
	}
}

func TestWatchEndsWithAReason(t *testing.T) {
	cluster := start(t, clienttest.Config{Nodes: 2})
	for range 10 {
		cluster.Put("/demo/a", "x")
	}
	c := connect(t, cluster)
	next := func(opts ...client.WatchOption) error {
		_, err := c.Watch(t.Context(), demo, opts...).Next(deadline(t))
		return err
	}

	cluster.Compact(6)
	err := next(client.FromRevision(5), client.WithoutResync())
	var compacted *client.CompactedError
	if !errors.As(err, &compacted) || compacted.Requested != 5 || compacted.Floor != 6 {
		t.Errorf("below the floor: %v", err)
	}
	if !strings.Contains(err.Error(), "read the state again") {
		t.Errorf("the error does not name the remedy: %v", err)
	}
	if err := next(client.FromPosition(client.Position{Cluster: cluster.ID(), Lineage: 7, Revision: 5}), client.WithoutResync()); !errors.Is(err, client.ErrLineage) || errors.Is(err, client.ErrCluster) {
		t.Errorf("another lineage: %v", err)
	}
	for _, opts := range [][]client.WatchOption{
		{client.FromRevision(5), client.WithState()},
		{client.FromRevision(-1)},
		{client.WithBuffer(-1)},
		{client.WithConflation(time.Millisecond)},
		{client.WithConflation(2 * time.Hour)},
		{client.WithMaxStaleness(time.Millisecond)},
		{client.WithConflation(time.Second), client.WithPrevKV()},
		{client.WithConflation(time.Second), client.WithoutResync()},
	} {
		if err := next(opts...); !errors.Is(err, client.ErrInvalid) {
			t.Errorf("got %v", err)
		}
	}
	for _, r := range []client.Range{client.Key(""), client.Between("b", "a")} {
		if _, err := c.Watch(t.Context(), r).Next(deadline(t)); !errors.Is(err, client.ErrInvalid) {
			t.Errorf("range %v: %v", r, err)
		}
	}
	for _, n := range cluster.Nodes() {
		n.RefuseWatches(&pb.Ended{Reason: pb.EndReason_END_REASON_INVALID, Message: "not like this"})
	}
	if err := next(); !errors.Is(err, client.ErrInvalid) || !strings.Contains(err.Error(), "not like this") {
		t.Errorf("invalid: %v", err)
	}
}

func TestRestoreEndsAWatchWithoutUnits(t *testing.T) {
	cluster := start(t, clienttest.Config{})
	for range 10 {
		cluster.Put("/demo/a", "x")
	}
	c := connect(t, cluster)
	w := c.Watch(t.Context(), demo, client.FromRevision(2), client.WithoutResync())
	follow(t, cluster, w, &seen{rng: demo}, 11, 1)
	cluster.Restore(5)
	cluster.Put("/demo/a", "of another history")
	if u, err := w.Next(deadline(t)); !errors.Is(err, client.ErrLineage) || errors.Is(err, client.ErrCluster) {
		t.Errorf("got %+v, %v", u, err)
	}
}

func TestWatchEndsWithItsContext(t *testing.T) {
	cluster := start(t, clienttest.Config{Nodes: 1})
	c := connect(t, cluster)
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	w := c.Watch(ctx, demo)
	waitStarted(t, w)
	cancel(why)
	var got error
	for _, err := range w.Updates() {
		got = err
	}
	if !errors.Is(got, why) {
		t.Errorf("got %v", got)
	}
	eventually(t, "the node has no watch", func() bool { return cluster.Nodes()[0].Watches() == 0 })

	w = c.Watch(t.Context(), demo)
	w.Close()
	w.Close()
	for u, err := range w.Updates() {
		t.Errorf("after Close: %v, %v", u, err)
	}
	if s := c.Stats(); s.Watchers != 0 {
		t.Errorf("%+v", s)
	}
}

func TestCloseEndsEverything(t *testing.T) {
	cluster := start(t, clienttest.Config{})
	c := connect(t, cluster)
	w := c.Watch(context.Background(), demo)
	m := mirror.New(context.Background(), c, demo)
	waitStarted(t, w)
	if err := errors.Join(c.Close(), c.Close()); err != nil {
		t.Error(err)
	}
	if _, err := w.Next(deadline(t)); !errors.Is(err, client.ErrClosed) {
		t.Errorf("watch: %v", err)
	}
	<-m.Done()
	for name, err := range map[string]error{
		"mirror":     m.Err(),
		"late watch": func() error { _, err := c.Watch(context.Background(), demo).Next(deadline(t)); return err }(),
		"late get":   func() error { _, err := c.Get(context.Background(), "a"); return err }(),
		"late put":   func() error { _, err := c.Put(context.Background(), "a", nil); return err }(),
		"late mirror": func() error {
			m := mirror.New(context.Background(), c, demo)
			<-m.Done()
			return m.Err()
		}(),
	} {
		if !errors.Is(err, client.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A consumer that does not read costs at most its buffer, delays no other watch on the
// stream, and misses no events.
func TestSlowConsumer(t *testing.T) {
	cluster := start(t, clienttest.Config{Nodes: 1})
	c := connect(t, cluster)
	const buffer = 64 << 10
	slow := c.Watch(t.Context(), demo, client.FromRevision(2), client.WithBuffer(buffer))
	quick := c.Watch(t.Context(), demo, client.FromRevision(2))
	waitStarted(t, slow)
	value := strings.Repeat("x", 4<<10)
	var rev int64
	s := seen{rng: demo}
	for range 100 {
		rev = cluster.Put("/demo/a", value)
	}
	follow(t, cluster, quick, &s, rev, 1)
	eventually(t, "the slow watch left the stream", func() bool { return !slow.Stats().Attached && cluster.Nodes()[0].Watches() == 1 })
	if st := slow.Stats(); st.Bytes > buffer+8<<10 {
		t.Errorf("the slow watch: %+v", st)
	}
	follow(t, cluster, slow, &seen{rng: demo}, rev, 1)
}

// A single unit may exceed the buffer.
func TestUnitBiggerThanTheBuffer(t *testing.T) {
	cluster := start(t, clienttest.Config{FragmentEvents: 100, ChunkKeys: 100})
	c := connect(t, cluster)
	var puts, deletes []clienttest.Op
	for i := range 1000 {
		puts = append(puts, clienttest.Op{Key: fmt.Sprintf("/demo/%04d", i), Value: "x"})
		deletes = append(deletes, clienttest.Op{Key: fmt.Sprintf("/demo/%04d", i), Delete: true})
	}
	cluster.Put("/demo/a", "x")
	cluster.Txn(puts...)
	w := c.Watch(t.Context(), demo, client.WithState(), client.WithBuffer(1000))
	from := c.Watch(t.Context(), demo, client.FromRevision(2), client.WithBuffer(1000))
	waitStarted(t, w)
	cluster.Put("/demo/a", "x")
	rev := cluster.Txn(deletes...)
	follow(t, cluster, w, &seen{rng: demo}, rev, 0)
	follow(t, cluster, from, &seen{rng: demo}, rev, 1)
}

func TestProgressOfAQuietRange(t *testing.T) {
	cluster := start(t, clienttest.Config{})
	c := connect(t, cluster)
	w := c.Watch(t.Context(), demo, client.WithProgress())
	waitStarted(t, w)
	rev := cluster.Put("/elsewhere", "x")
	w.RequestProgress()
	s := seen{rng: demo}
	if err := s.read(deadline(t), w, rev); err != nil {
		t.Fatal(err)
	}
	// It resumes from this revision, not from the one of the last event.
	serving(t, cluster, w).Kill()
	cluster.Compact(rev)
	rev = cluster.Put("/demo/a", "x")
	if err := s.read(deadline(t), w, rev); err != nil {
		t.Fatal(err)
	}
}

// While all nodes are down, watches retry, and continue once one is back.
func TestWatchesRetryWhileAllNodesAreDown(t *testing.T) {
	cluster := start(t, clienttest.Config{})
	c := connect(t, cluster)
	w := c.Watch(t.Context(), demo, client.FromRevision(2))
	waitStarted(t, w)
	for _, n := range cluster.Nodes() {
		n.Kill()
	}
	rev := cluster.Put("/demo/a", "x")
	if err := cluster.Nodes()[1].Restart(); err != nil {
		t.Fatal(err)
	}
	follow(t, cluster, w, &seen{rng: demo}, rev, 1)
}

// Watches of one client share a connection and a stream per node. If they exceed the limit
// of a stream, they share a second one.
func TestWatchesShareStreams(t *testing.T) {
	cluster := start(t, clienttest.Config{})
	c := connect(t, cluster)
	var ws []*client.Watcher
	for i := range 1500 {
		ws = append(ws, c.Watch(t.Context(), client.Key(fmt.Sprintf("/demo/%d", i)), client.FromRevision(2)))
	}
	for _, w := range ws {
		waitStarted(t, w)
	}
	if s := c.Stats(); s.Streams != 2 || s.Connections > 2 || s.Watchers != len(ws) {
		t.Errorf("%+v", s)
	}
	serving(t, cluster, ws[0]).Stall()
	rev := cluster.Put("/demo/1234", "x")
	follow(t, cluster, ws[1234], &seen{rng: client.Key("/demo/1234")}, rev, 1)
	for _, w := range ws {
		eventually(t, "all moved", func() bool { return w.Stats().Resumes >= 1 })
	}
}

func TestWatchConnectsToAReplicaOfItsShard(t *testing.T) {
	cluster := start(t, clienttest.Config{Nodes: 5, Replicas: 2, Cuts: []string{"/b", "/c", "/d", "/e"}})
	c := connect(t, cluster)
	waitStarted(t, c.Watch(t.Context(), client.Range{}))
	m, err := admin.New(c).ShardMap(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	at := func(key string) string {
		w := c.Watch(t.Context(), client.Key(key))
		defer w.Close()
		return serving(t, cluster, w).Name
	}
	replicas := func(key string) string {
		for _, s := range m.Shards {
			if s.Range.Contains(key) {
				return strings.Join(s.Replicas, " ")
			}
		}
		return ""
	}
	for _, key := range []string{"/a", "/b/1", "/c/1", "/d", "/e"} {
		if n := at(key); !strings.Contains(replicas(key), n) {
			t.Errorf("%s is watched at %s, its shard is on %s", key, n, replicas(key))
		}
	}
	cluster.SetReplicas(1, "n4", "n5")
	eventually(t, "the new map is followed", func() bool { return c.Follows(1, "n4") })
	if n := at("/a"); n != "n4" && n != "n5" {
		t.Errorf("after the map changed /a is watched at %s", n)
	}
}
