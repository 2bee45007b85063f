package server_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/edge/server"
	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// follower is a client that keeps a copy of a range from the responses to a watch. It applies only
// complete revisions and complete units, and fails the test if the copy differs from the history at
// its position.
type follower struct {
	tb    testing.TB
	h     *cachetest.Script
	rng   kv.Range
	allow *pb.CreateWatch // the options of its watch, without the start

	at      int64
	lineage uint64
	token   []byte
	state   map[string]string

	// Of the current watch.
	told    uint64
	unit    *pb.Sync // the unit that has begun
	next    map[string]string
	partial map[string]string // state within an incomplete revision

	model map[string]string // the history's state at upTo
	upTo  kv.Revision

	units map[pb.SyncKind]int
	keys  map[pb.SyncKind]int // number of keys in units
	began int                 // number of units
}

func follow(tb testing.TB, h *cachetest.Script, rng kv.Range) *follower {
	return &follower{
		tb: tb, h: h, rng: rng, lineage: 1, at: int64(cachetest.Start), state: map[string]string{},
		allow: &pb.CreateWatch{AllowSync: true},
		units: make(map[pb.SyncKind]int), keys: make(map[pb.SyncKind]int),
	}
}

// on starts a watch on a stream, from the follower's position.
func (f *follower) on(s *stream) *stream {
	f.tb.Helper()
	f.unit, f.partial = nil, nil
	c := &pb.CreateWatch{
		WatchId: 1, AllowSync: true, Conflate: f.allow.GetConflate(), Lineage: f.lineage,
		Start: &pb.CreateWatch_StartRevision{StartRevision: f.at + 1},
	}
	c.Key, c.RangeEnd = f.rng.Etcd()
	if f.token != nil {
		c.Start, c.Lineage = &pb.CreateWatch_ResumeToken{ResumeToken: f.token}, 0
	}
	s.create(c)
	m := s.next()
	for m.GetProgress() != nil { // of the stream, before it has a watch
		m = s.next()
	}
	got := m.GetCreated()
	if got == nil {
		f.tb.Fatalf("got %v, want the watch created", m)
	}
	f.told = got.GetLineage()
	if want := f.at; got.GetRevision() != want && f.told == f.lineage || f.told != f.lineage && got.GetRevision() != 0 {
		f.tb.Fatalf("created at %v, the client is at %d of lineage %d", got, f.at, f.lineage)
	}
	return s
}

// take applies one response.
func (f *follower) take(m *pb.WatchResponse) {
	f.tb.Helper()
	switch {
	case m.GetSync() != nil:
		f.sync(m.GetSync())
	case m.GetProgress() != nil:
		if at := m.GetProgress().GetRevision(); f.unit == nil && f.partial == nil && at > f.at && f.told == f.lineage {
			f.at = at
			f.check("progress")
		}
	case len(m.GetEvents()) > 0:
		if f.unit != nil || f.told != f.lineage {
			f.tb.Fatalf("events in the middle of a unit: %v", m)
		}
		if m.GetRevision() <= f.at {
			f.tb.Fatalf("got revision %d, the client is at %d", m.GetRevision(), f.at)
		}
		if f.partial == nil {
			f.partial = maps.Clone(f.state)
		}
		for _, e := range m.GetEvents() {
			if e.GetType() == pb.EventType_DELETE {
				delete(f.partial, string(e.GetKv().GetKey()))
			} else {
				f.partial[string(e.GetKv().GetKey())] = string(e.GetKv().GetValue())
			}
		}
		if !m.GetFragment() {
			f.state, f.partial, f.at, f.token = f.partial, nil, m.GetRevision(), nil
			f.check("events")
		}
	default:
		f.tb.Fatalf("an unexpected response at revision %d: %v", f.at, m)
	}
}

func (f *follower) sync(y *pb.Sync) {
	f.tb.Helper()
	kind := y.GetKind()
	delta := kind == pb.SyncKind_SYNC_KIND_DELTA || kind == pb.SyncKind_SYNC_KIND_CONFLATED
	switch {
	case f.partial != nil:
		f.tb.Fatalf("a unit in the middle of a revision: %v", y)
	case y.GetBegin():
		if delta && (y.GetFromRevision() != f.at || f.told != f.lineage) {
			f.tb.Fatalf("a delta from revision %d of lineage %d, the client is at %d of lineage %d", y.GetFromRevision(), f.told, f.at, f.lineage)
		}
		f.unit, f.next = y, map[string]string{}
		if delta {
			f.next = maps.Clone(f.state)
		}
		f.began++
	case f.unit == nil || f.unit.GetKind() != kind || f.unit.GetRevision() != y.GetRevision():
		f.tb.Fatalf("got part %v, the current unit is %v", y, f.unit)
	}
	for _, item := range y.GetKvs() {
		if delta && item.GetModRevision() <= f.unit.GetFromRevision() {
			f.tb.Errorf("%s has revision %d, but the delta starts after %d", item.GetKey(), item.GetModRevision(), f.unit.GetFromRevision())
		}
		f.next[string(item.GetKey())] = string(item.GetValue())
	}
	for _, key := range y.GetDeleted() {
		if !delta {
			f.tb.Errorf("a whole state contains the deletion of %s", key)
		}
		delete(f.next, string(key))
	}
	f.keys[kind] += len(y.GetKvs()) + len(y.GetDeleted())
	if !y.GetEnd() {
		return
	}
	f.state, f.at, f.lineage, f.token = f.next, y.GetRevision(), f.told, nil
	f.unit, f.next = nil, nil
	f.units[kind]++
	f.check(kind.String())
}

// check compares the copy with the history.
func (f *follower) check(what string) {
	f.tb.Helper()
	if f.model == nil || f.upTo > kv.Revision(f.at) {
		f.model, f.upTo = map[string]string{}, 0
	}
	for _, b := range f.h.Batches(f.rng, f.upTo, kv.Revision(f.at)) {
		for i := range b.Events {
			if item := b.Events[i].KV; b.Events[i].Type == kv.Delete {
				delete(f.model, string(item.Key()))
			} else {
				f.model[string(item.Key())] = string(item.Value())
			}
		}
	}
	f.upTo = kv.Revision(f.at)
	if !maps.Equal(f.state, f.model) {
		f.tb.Fatalf("%s: at %d the client has %v, the history %v", what, f.at, f.state, f.model)
	}
}

// until applies responses until the follower reaches a revision.
func (f *follower) until(s *stream, revision kv.Revision) {
	f.tb.Helper()
	for f.at < int64(revision) {
		f.take(s.next())
	}
}

// short makes caches keep only one batch in their windows.
func short(c *cache.Config) { c.WindowBytes = 1 }

// brief makes streams report progress often.
func brief(c *server.Config) { c.ProgressInterval, c.FragmentBytes = 100*time.Millisecond, 1<<10 }

// serving waits until the node has all revisions of the history.
func (r *running) serving() {
	r.tb.Helper()
	for i := range r.node.Map().Shards {
		if c := r.node.Replica(r.node.Map().Shards[i].ID); c != nil {
			<-c.Ready()
			if err := c.WaitProgress(r.tb.Context(), r.h.Now()); err != nil {
				r.tb.Fatal(err)
			}
		}
	}
}

// write commits n random transactions, some over several shards, and returns the last revision.
func write(h *cachetest.Script, rng *rand.Rand, n int) kv.Revision {
	var last kv.Revision
	for range n {
		var ops []cachetest.Op
		for _, i := range rng.Perm(26)[:1+rng.IntN(3)] {
			key := fmt.Sprintf("%c/%d", 'a'+i, rng.IntN(4))
			if rng.IntN(3) == 0 {
				ops = append(ops, cachetest.Delete(key))
			} else {
				ops = append(ops, cachetest.Put(key, strings.Repeat("v", rng.IntN(200))+fmt.Sprint(rng.Uint64())))
			}
		}
		last = h.Commit(ops...)
	}
	return last
}

// pairOf is pair with tuned caches and servers of its own.
func pairOf(t *testing.T, h *cachetest.Script, tune func(*cache.Config)) (here, there *running) {
	t.Helper()
	m := cachetest.Map(1, []string{"f", "m", "t"}, "here")
	m.Shards[2].Replicas, m.Shards[3].Replicas = []shard.NodeID{"gone", "there"}, []shard.NodeID{"there"}
	here = start(t, h, options{self: "here", shards: m, server: brief, cache: tune})
	there = start(t, h, options{self: "there", shards: m, server: brief, cache: tune})
	here.node.Connect("there", dial(t, there.peers))
	there.node.Connect("here", dial(t, here.peers))
	here.serving()
	there.serving()
	return here, there
}

// The serve modes work for one key, one shard, several shards, and shards at other nodes. Events in
// the window are replayed, evicted events arrive as a delta, and the whole state is sent if the
// deletions are unknown. Later events follow.
func TestServeModes(t *testing.T) {
	const replay, delta, resync = pb.SyncKind_SYNC_KIND_UNSPECIFIED, pb.SyncKind_SYNC_KIND_DELTA, pb.SyncKind_SYNC_KIND_RESYNC
	for _, x := range []struct {
		name  string
		tune  func(*cache.Config)
		mode  pb.SyncKind
		forgt bool
	}{
		{"window", func(*cache.Config) {}, replay, false},
		{"delta", short, delta, false},
		{"resync", func(c *cache.Config) { short(c); c.TombstoneBytes = 1 }, resync, false},
		{"resync, for a cache that is new", short, resync, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			rng := testseed.Rand(t)
			h := cachetest.New()
			if x.forgt {
				h.Forget(cachetest.Start + 1 + kv.Revision(len(h.State(kv.Range{}, h.Now()))) + 150)
				write(h, rng, 150)
			}
			here, there := pairOf(t, h, x.tune)
			if !x.forgt {
				h.Commit(cachetest.Put("a/gone", "1"), cachetest.Put("g/gone", "1"), cachetest.Put("n/gone", "1"), cachetest.Put("u/gone", "1"))
				h.Commit(cachetest.Delete("a/gone"), cachetest.Delete("u/gone"))
				write(h, rng, 100)
				h.Commit(cachetest.Delete("g/gone"), cachetest.Delete("n/gone"))
			}
			h.Commit(cachetest.Put("a/whole", "1"), cachetest.Put("g/whole", "1"), cachetest.Put("n/whole", "1"), cachetest.Put("u/whole", "1"))
			here.serving()
			there.serving()
			for _, r := range []kv.Range{{}, kv.Single("a/whole"), {Start: "a", End: "c"}, {Start: "b", End: "p"}, {Start: "n", End: "p"}, {Start: "v"}} {
				f := follow(t, h, r)
				s := f.on(here.watch())
				f.until(s, h.Now())
				if x.mode == replay && f.began != 0 || x.mode != replay && f.units[x.mode] != 1 {
					t.Errorf("%v: %v", r, f.units)
				}
				last := h.Commit(cachetest.Put("a/0", "x"), cachetest.Put("g/0", "x"), cachetest.Put("n/0", "x"), cachetest.Put("v/0", "x"), cachetest.Put("a/whole", "2"))
				f.until(s, last)
				if x.mode != replay && f.began != 1 {
					t.Errorf("%v: %d units, want exactly one", r, f.began)
				}
				s.end()
			}
		})
	}
}

// If a watch is canceled while the events after its initial state are being opened, nothing is left
// when they are open.
func TestCanceledWhileItsStateEnds(t *testing.T) {
	h := cachetest.New()
	h.Commit(cachetest.Put("v/1", "1"))
	here, _ := pairOf(t, h, nil)
	release := here.node.HoldRelays()
	defer release()
	s := here.watch()
	s.create(&pb.CreateWatch{WatchId: 1, Key: []byte("v"), RangeEnd: []byte("w"), AllowSync: true, Start: &pb.CreateWatch_StateFirst{StateFirst: true}})
	s.created(1)
	for !s.next().GetSync().GetEnd() {
	}
	s.cancel(1)
	s.ended(1)
	if err := here.node.Idle(); err != nil {
		t.Errorf("before the relay is open: %v", err)
	}
	release()
	_ = s.rpc.CloseSend()
	if m, err := s.rpc.Recv(); !errors.Is(err, io.EOF) { // the stream has waited until everything is open
		t.Fatalf("got %v, %v", m, err)
	}
	if err := here.node.Idle(); err != nil {
		t.Error(err)
	}
}

// A position of another history allows a resync, and nothing else. The client keeps its position
// until the resync ends.
func TestAnotherLineageResyncs(t *testing.T) {
	h := cachetest.New()
	write(h, testseed.Rand(t), 100)
	r := start(t, h, options{server: brief})
	r.serving()
	for _, byToken := range []bool{false, true} {
		f := follow(t, h, kv.Range{})
		f.lineage, f.at = 7, 5000
		if byToken {
			f.token = wire.ResumeToken(wire.Position{Cluster: wire.ClusterKey("test"), Lineage: 7, Revision: 5000})
		}
		s := f.on(r.watch())
		for f.lineage != 1 {
			f.take(s.next())
		}
		if f.units[pb.SyncKind_SYNC_KIND_RESYNC] != 1 || f.began != 1 {
			t.Errorf("%v", f.units)
		}
		f.until(s, h.Commit(cachetest.Put("a", "1")))
		s.end()
	}
}

// When etcd's history ends while a watch runs, the watch ends at its position, even in the middle
// of a unit. A watch that is created from that position is resynced.
func TestLineageEndsWhileWatching(t *testing.T) {
	h := cachetest.New()
	write(h, testseed.Rand(t), 50)
	r := start(t, h, options{server: brief})
	r.serving()
	f := follow(t, h, kv.Range{})
	s := f.on(r.watch())
	f.until(s, h.Now())
	next := cachetest.Map(2, []string{"h"}, "here")
	next.Lineage = 2
	r.node.Use(next)
	r.serving()
	for {
		m := s.next()
		if m.GetEnded() == nil {
			f.take(m)
			continue
		}
		if e := m.GetEnded(); e.GetReason() != pb.EndReason_END_REASON_LINEAGE || e.GetResumeRevision() != f.at+1 {
			t.Fatalf("got %v, the client is at %d", e, f.at)
		}
		f.token = m.GetEnded().GetResumeToken()
		break
	}
	f.on(s)
	for f.lineage != 2 {
		f.take(s.next())
	}
	f.until(s, h.Commit(cachetest.Put("a", "1")))
}

// A reader that is slower than the window is not cut off. It gets the missed changes in one delta,
// and its copy is right at all times.
func TestSlowReaderGetsDeltas(t *testing.T) {
	rng := testseed.Rand(t)
	h := cachetest.New()
	here, _ := pairOf(t, h, func(c *cache.Config) { c.WindowBytes = 16 << 10 })
	f := follow(t, h, kv.Range{})
	s := f.on(here.watch())
	big := strings.Repeat("v", 16<<10)
	for range 5 {
		// More than the connection buffers, so that the watch stops.
		for i := range 30 {
			h.Commit(cachetest.Put(fmt.Sprintf("%c/big", 'a'+i%26), big+fmt.Sprint(i)))
		}
		f.until(s, write(h, rng, 20))
	}
	if f.units[pb.SyncKind_SYNC_KIND_DELTA] == 0 {
		t.Errorf("the client got no delta: %v", f.units)
	}
}

// A client that loses its node in the middle of a unit gets the unit again from another node,
// starting from its position before the unit.
func TestUnitBeginsAgainOnAnotherNode(t *testing.T) {
	rng := testseed.Rand(t)
	h := cachetest.New()
	here, there := pairOf(t, h, short)
	f := follow(t, h, kv.Range{})
	for round, nodes := 0, []*running{here, there}; round < 6; round++ {
		write(h, rng, 300)
		here.serving()
		there.serving()
		s := f.on(nodes[round%2].watch())
		was := f.at
		for f.unit == nil {
			f.take(s.next())
		}
		for range 2 {
			f.take(s.next())
		}
		if f.at != was {
			t.Fatalf("the position moved from %d to %d before the unit's end", was, f.at)
		}
		s.end()
	}
	f.until(f.on(here.watch()), h.Now())
}

// For random histories, ranges, windows, readers and nodes, a client's copy always equals the state
// at its position.
func TestServeModesAgainstModel(t *testing.T) {
	rng := testseed.Rand(t)
	h := cachetest.New()
	here, there := pairOf(t, h, func(c *cache.Config) { c.WindowBytes = 2 << 10; c.TombstoneBytes = 8 << 10 })
	nodes := []*running{here, there}
	stop, stopped := make(chan struct{}), make(chan struct{})
	seed := rng.Uint64()
	go func() {
		defer close(stopped)
		rng := rand.New(rand.NewPCG(seed, 1))
		for {
			select {
			case <-stop:
				return
			default:
				write(h, rng, 1+rng.IntN(20))
				time.Sleep(time.Duration(rng.IntN(5)) * time.Millisecond)
			}
		}
	}()
	done := make(chan map[pb.SyncKind]int)
	const clients = 8
	for i := range clients {
		rng := rand.New(rand.NewPCG(rng.Uint64(), 2))
		go func() {
			a, b := string(rune('a'+rng.IntN(26))), string(rune('a'+rng.IntN(26)))
			f := follow(t, h, kv.Range{Start: min(a, b), End: max(a, b) + "z"})
			if i%2 == 1 {
				f.allow.Conflate = durationpb.New(10 * time.Millisecond)
			}
			defer func() { done <- f.units }()
			for range 6 {
				conn, err := grpcDial(nodes[rng.IntN(2)].clients)
				if err != nil {
					t.Error(err)
					return
				}
				s := f.on(watchOn(t, conn))
				for range rng.IntN(150) {
					m, err := s.rpc.Recv()
					if err != nil {
						t.Error(err)
						break
					}
					f.take(m)
					switch rng.IntN(40) {
					case 0:
						s.requestProgress()
					case 1:
						time.Sleep(time.Duration(rng.IntN(50)) * time.Millisecond) // a slow reader
					}
				}
				s.end()
				_ = conn.Close()
			}
		}()
	}
	all := make(map[pb.SyncKind]int)
	for range clients {
		for kind, n := range <-done {
			all[kind] += n
		}
	}
	close(stop)
	<-stopped
	t.Log(all)
	for _, kind := range []pb.SyncKind{pb.SyncKind_SYNC_KIND_DELTA, pb.SyncKind_SYNC_KIND_CONFLATED} {
		if all[kind] == 0 {
			t.Errorf("no %v", kind)
		}
	}
	testkit.Eventually(t, "all watches are gone", func() bool {
		return here.node.Idle() == nil && there.node.Idle() == nil && here.server.Status().GetWatches()+there.server.Status().GetWatches() == 0
	})
}

func grpcDial(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
}
