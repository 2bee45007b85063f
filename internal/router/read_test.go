package router_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
	"github.com/shardwatch/shardwatch/internal/wait"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// remote is a connection to a node whose answers are scripted by a test.
type remote struct {
	grpc.ClientConnInterface
	// asked are the requests. Each is answered with messages, then with the error, or with
	// the end of the stream if it is nil.
	asked  []*shardwatchv1.ListRequest
	answer func(n int, req *shardwatchv1.ListRequest) ([]*wire.Encoded, error)
	// refuses is the error of each new stream, sends the error of each request.
	refuses, sends error
	// delay is the time before each message and before the end of an answer.
	delay time.Duration
}

func (r *remote) NewStream(ctx context.Context, _ *grpc.StreamDesc, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	if r.refuses != nil {
		return nil, r.refuses
	}
	return &answering{ctx: ctx, r: r}, nil
}

type answering struct {
	grpc.ClientStream
	ctx    context.Context
	r      *remote
	left   []*wire.Encoded
	err    error
	closed bool // the request is complete
}

func (a *answering) CloseSend() error { a.closed = true; return nil }

func (a *answering) SendMsg(m any) error {
	req := proto.CloneOf(m.(*shardwatchv1.ListRequest))
	a.r.asked = append(a.r.asked, req)
	a.left, a.err = a.r.answer(len(a.r.asked), req)
	return a.r.sends
}

func (a *answering) RecvMsg(m any) error {
	if a.r.delay > 0 && !wait.Sleep(a.ctx, a.r.delay) {
		return status.FromContextError(a.ctx.Err()).Err()
	}
	switch {
	case !a.closed:
		return errors.New("the node waits for the rest of the request")
	case len(a.left) > 0:
		m.(*wire.Encoded).Buffers, a.left = a.left[0].Buffers, a.left[1:]
		return nil
	case a.err != nil:
		return a.err
	}
	return io.EOF
}

// reads is a node "here" with the shards 1 and 3 of the keys a to j, which were put one by
// one. Shard 2 is on the nodes "x" and "y".
type reads struct {
	*cachetest.Node
	h     *cachetest.Script
	r     *router.Router
	x, y  *remote
	clock *clock
	// pretend is the map that the router sees instead of the node's map.
	pretend *shard.Map
	loading *cache.Cache // instead of all copies; may be nil
}

func (n *reads) Replica(id shard.ID) *cache.Cache {
	if n.loading != nil {
		return n.loading
	}
	return n.Node.Replica(id)
}

func (n *reads) Map() *shard.Map {
	if n.pretend != nil {
		return n.pretend
	}
	return n.Node.Map()
}

// clock is the clock of etcd, which can hang.
type clock struct {
	h     *cachetest.Script
	hangs bool
	asked int
}

func (c *clock) Revision(ctx context.Context) (kv.Revision, error) {
	if c.asked++; c.hangs {
		return 0, context.DeadlineExceeded // as after its own time limit
	}
	return c.h.Revision(ctx)
}

const bound = 10 * time.Second

// reading runs f with a reads and a router over it.
func reading(t *testing.T, f func(t *testing.T, n *reads)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := cachetest.New()
		for i := range 10 {
			h.Commit(cachetest.Put(string(rune('a'+i)), fmt.Sprint(i)))
		}
		m := cachetest.Map(1, []string{"d", "h"}, "here")
		m.Shards[1].Replicas = []shard.NodeID{"here", "x", "y"}
		m.Shards[1].Epoch = 7
		n := &reads{Node: cachetest.NewNode("here", h, nil), h: h, x: &remote{}, y: &remote{}, clock: &clock{h: h}}
		defer n.Stop()
		n.Connect("x", n.x)
		n.Connect("y", n.y)
		h.Forget(h.Now() + 1) // the caches keep no earlier states
		there := cachetest.Map(1, []string{"d", "h"}, "here")
		there.Shards[1].Replicas = []shard.NodeID{"x", "y"}
		n.Use(there)
		n.pretend = m
		<-n.Replica(1).Ready()
		<-n.Replica(3).Ready()
		n.r = router.New(router.Config{Shards: n, Clock: n.clock, Self: "here", MaxStaleness: bound})
		n.x.answer = func(int, *shardwatchv1.ListRequest) ([]*wire.Encoded, error) {
			return nil, status.Error(codes.Unavailable, "x is away")
		}
		n.y.answer = n.lists(1, -1)
		f(t, n)
	})
}

// lists answers with the keys of the history, two per message, as a node of a lineage whose
// data has an age; below 0: unreported. Without a revision it chooses the newest.
func (n *reads) lists(of uint64, age time.Duration) func(int, *shardwatchv1.ListRequest) ([]*wire.Encoded, error) {
	return func(_ int, req *shardwatchv1.ListRequest) (out []*wire.Encoded, err error) {
		rng, err := kv.RangeFromEtcd(req.GetKey(), req.GetRangeEnd())
		if err != nil {
			return nil, err
		}
		at := kv.Revision(req.GetRevision())
		if at == 0 {
			at = n.h.Now()
		}
		items := n.h.State(rng, at)
		count := int64(len(items))
		for chunk := range slices.Chunk(items, 2) {
			out = append(out, wire.ListChunk(at, lineage(of), chunk))
		}
		return append(out, wire.ListEnd(at, lineage(of), nil, count, age)), nil
	}
}

// clone returns a copy of a map with separate shards.
func clone(m *shard.Map) *shard.Map {
	next := *m
	next.Shards = slices.Clone(m.Shards)
	return &next
}

// lineage returns a history ID of the test cluster.
func lineage(n uint64) kv.HistoryID { return kv.HistoryID{Cluster: "test", Lineage: n} }

// Ranges in one shard each.
var (
	inFirst = kv.Range{Start: "a", End: "d"}
	inThird = kv.Range{Start: "h"}
	away    = kv.Range{Start: "d", End: "h"}
	nothing = router.Options{}
)

// keys reads a list, and returns its keys.
func keys(t *testing.T, g *router.Reading, o router.Options) (out string, err error) {
	t.Helper()
	err = g.Each(t.Context(), o, func(chunk []*kv.KeyValue) error {
		if len(chunk) == 0 {
			t.Error("a chunk without keys")
		}
		for _, item := range chunk {
			out += string(item.Key())
		}
		return nil
	})
	return out, err
}

func unavailable(t *testing.T, what string, err error, why kv.Unavailable, says string) {
	t.Helper()
	var u *kv.UnavailableError
	if !errors.As(err, &u) || u.Why != why || u.RetryAfter <= 0 || !strings.Contains(u.Detail, says) {
		t.Errorf("%s: got %#v, want %v that says %q", what, err, why, says)
	}
}

// A linearizable read is at etcd's revision, waits for the shards, and fails if
// they do not reach it.
func TestALinearizableReadSeesEveryWrite(t *testing.T) {
	reading(t, func(t *testing.T, n *reads) {
		local := kv.Range{Start: "a", End: "d"}
		n.Gate(1).Limit(n.h.Now())
		at := n.h.Commit(cachetest.Put("b", "new"))
		go func() {
			time.Sleep(time.Second)
			n.Gate(1).Limit(0)
		}()
		g, err := n.r.Read(t.Context(), router.ReadRequest{Range: local})
		if err != nil || g.Revision != at {
			t.Fatalf("at %+v, %v, want revision %d", g, err, at)
		}
		if err := g.Each(t.Context(), nothing, func(chunk []*kv.KeyValue) error {
			for _, item := range chunk {
				if string(item.Key()) == "b" && string(item.Value()) != "new" {
					t.Errorf("b is %s", item.Value())
				}
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		if age, known := g.Age(); !known || age != time.Second {
			t.Errorf("age %v, %v; want that of the start of the read, a second", age, known)
		}
		n.Gate(3).Limit(n.h.Now())
		n.h.Commit(cachetest.Put("i", "new"))
		began := time.Now()
		_, err = n.r.Read(t.Context(), router.ReadRequest{Range: inThird})
		unavailable(t, "of a shard that is late", err, kv.NotReady, "shard 3 is at revision 21 and did not reach 22 within 3s")
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("gave up after %v", took)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err = n.r.Read(gone, router.ReadRequest{Range: inThird}); !errors.Is(err, context.Canceled) {
			t.Errorf("of a canceled caller: %v", err)
		}
		n.clock.hangs = true
		_, err = n.r.Read(t.Context(), router.ReadRequest{Range: local})
		unavailable(t, "without etcd", err, kv.EtcdUnavailable, "deadline exceeded")
	})
}

// A read at a revision that no shard has reached asks etcd whether the revision exists, and
// is refused if not. Other reads at a revision do not ask etcd.
func TestAReadAtARevision(t *testing.T) {
	reading(t, func(t *testing.T, n *reads) {
		n.Gate(1).Limit(n.h.Now())
		n.Gate(3).Limit(n.h.Now())
		old := n.h.Now()
		now := n.h.Commit(cachetest.Put("b", "2"))
		n.Gate(1).Limit(0)
		synctest.Wait()
		if g, err := n.r.Read(t.Context(), router.ReadRequest{Range: inFirst, Revision: old}); err != nil || g.Revision != old || n.clock.asked != 0 {
			t.Errorf("in the past: %+v, %v, etcd asked %d times", g, err, n.clock.asked)
		} else if _, known := g.Age(); known {
			t.Error("a read of a past revision reports an age")
		}
		if _, err := n.r.Read(t.Context(), router.ReadRequest{Range: inFirst, Revision: now}); err != nil || n.clock.asked != 0 {
			t.Errorf("at the shard's own revision: %v, etcd asked %d times", err, n.clock.asked)
		}
		_, err := n.r.Read(t.Context(), router.ReadRequest{Range: inThird, Revision: now})
		unavailable(t, "at etcd's revision, by a shard that is late", err, kv.NotReady, "did not reach")
		if n.clock.asked != 1 {
			t.Errorf("etcd asked %d times", n.clock.asked)
		}
		var future *kv.FutureError
		if _, err := n.r.Read(t.Context(), router.ReadRequest{Range: inThird, Revision: now + 1}); !errors.As(err, &future) || future.Requested != now+1 || future.Current != now {
			t.Errorf("in the future: %v", err)
		}
		n.clock.asked = 0
		_, err = n.r.Read(t.Context(), router.ReadRequest{Range: inThird, Revision: now + 1, Exists: true})
		unavailable(t, "at one that the caller knows", err, kv.NotReady, "did not reach")
		if n.clock.asked != 0 {
			t.Error("etcd was asked about a revision that the caller knows")
		}
		n.h.Fail(errors.New("etcd is away"))
		_, err = n.r.Read(t.Context(), router.ReadRequest{Range: inThird, Revision: now})
		unavailable(t, "etcd is away", err, kv.EtcdUnavailable, "etcd is away")
	})
}

// A serializable read refuses data of unknown age, or older than the read allows, and
// reports the age of its data.
func TestASerializableReadIsNotOlderThanItAllows(t *testing.T) {
	reading(t, func(t *testing.T, n *reads) {
		read := func(rng kv.Range, bound time.Duration) (*router.Reading, error) {
			return n.r.Read(t.Context(), router.ReadRequest{Range: rng, Serializable: true, MaxStaleness: bound})
		}
		_, err := read(inFirst, time.Hour)
		unavailable(t, "of an age that is not known", err, kv.Stale, "shard 1: the age of the data is not known yet")
		if g, err := read(inFirst, router.AnyAge); err != nil || g.Revision != n.h.Now() {
			t.Errorf("of any age: %+v, %v", g, err)
		} else if _, known := g.Age(); known {
			t.Error("the age is known")
		}
		fresh := func(id shard.ID) { n.Replica(id).Observe(time.Now(), n.Replica(id).Progress()) }
		fresh(1)
		if g, err := read(kv.Range{}, router.AnyAge); err != nil {
			t.Error(err)
		} else if _, known := g.Age(); known {
			t.Error("the age is known, though the age of one shard is not")
		}
		time.Sleep(3 * time.Second)
		fresh(3)
		time.Sleep(bound - 3*time.Second)
		g, err := read(kv.Range{}, 0)
		if err != nil {
			t.Fatalf("of exactly the allowed age: %v", err)
		}
		if age, known := g.Age(); !known || age != bound {
			t.Errorf("age %v, %v: want that of the older shard, %v", age, known, bound)
		}
		time.Sleep(time.Nanosecond)
		_, err = read(kv.Range{}, 0)
		unavailable(t, "too old", err, kv.Stale, "shard 1: the data may be 10s old, the read allows 10s")
		_, err = read(kv.Range{}, bound-1)
		unavailable(t, "too old for the request", err, kv.Stale, "shard 1")
		if _, err := read(inThird, 0); err != nil {
			t.Errorf("the younger shard: %v", err)
		}
		if _, err := read(kv.Range{}, bound+1); err != nil {
			t.Errorf("a longer bound: %v", err)
		}
		// The revision is the highest that all local shards have.
		old := n.h.Now()
		n.Gate(3).Limit(old)
		n.h.Commit(cachetest.Put("a", "new"))
		synctest.Wait()
		if g, err := read(kv.Range{}, router.AnyAge); err != nil || g.Revision != old {
			t.Errorf("of shards at two revisions: %+v, %v", g, err)
		}
		n.Gate(3).Limit(0)
		n.Gate(1).Limit(n.h.Now())
		n.h.Commit(cachetest.Put("a", "newer"), cachetest.Put("j", "newer"))
		synctest.Wait()
		if g, err := read(kv.Range{}, router.AnyAge); err != nil || g.Revision != n.Replica(1).Progress() || g.Revision >= n.Replica(3).Progress() {
			t.Errorf("of shards at two revisions, the first of which is behind: %+v, %v", g, err)
		}
	})
}

// A caller that is a node gets the nodes of a remote shard. A copy of another lineage or
// range, or a copy that is still loading, is not served.
func TestACopyThatDoesNotFitIsNotServed(t *testing.T) {
	reading(t, func(t *testing.T, n *reads) {
		local := func(rng kv.Range) error {
			_, err := n.r.Read(t.Context(), router.ReadRequest{Range: rng, Local: true, Revision: n.h.Now(), Exists: true})
			return err
		}
		refused := func(what string, id, epoch uint64, err error) {
			t.Helper()
			var elsewhere *kv.NotHereError
			if !errors.As(err, &elsewhere) || elsewhere.Shard != id || elsewhere.Epoch != epoch {
				t.Errorf("%s: %v", what, err)
			}
		}
		if err := local(inFirst); err != nil || !n.r.Here(inFirst) {
			t.Errorf("a matching copy: %v", err)
		}
		var elsewhere *kv.NotHereError
		if err := local(away); !errors.As(err, &elsewhere) || elsewhere.Shard != 2 || elsewhere.Epoch != 7 || !slices.Equal(elsewhere.Endpoints, []string{"x:7400", "y:7400"}) {
			t.Errorf("of a remote shard: %v", err)
		}
		sound := n.pretend
		changed := func(change func(m *shard.Map)) {
			n.pretend = clone(sound)
			change(n.pretend)
		}
		changed(func(m *shard.Map) { m.Lineage = 2 })
		refused("of another lineage", 1, 1, local(inFirst))
		if n.r.Here(inFirst) {
			t.Error("a copy of another lineage counts as local")
		}
		if at, err := n.r.Present(t.Context(), inFirst); err != nil || at != n.h.Now() || n.clock.asked != 1 {
			t.Errorf("present: %d, %v, etcd asked %d times", at, err, n.clock.asked)
		}
		changed(func(m *shard.Map) { m.Shards[0].Range.End, m.Shards[1].Range.Start = "e", "e" })
		refused("of another range", 1, 1, local(kv.Range{Start: "a", End: "e"}))
		if err := local(inFirst); err != nil {
			t.Errorf("of a range that the copy covers: %v", err)
		}
		n.pretend = sound
		cfg := cache.Defaults()
		cfg.Range, cfg.Lineage, cfg.Source = kv.Range{}, 1, n.h.Source(&cachetest.Gate{})
		n.loading = cache.New(cfg) // it is not running
		refused("still loading", 1, 1, local(inFirst))
	})
}

// The nodes of a remote shard are asked in turn, until one of them has begun to answer.
func TestARemoteShardIsReadFromItsNodes(t *testing.T) {
	reading(t, func(t *testing.T, n *reads) {
		var req router.ReadRequest
		list := func() (string, error) {
			n.x.asked, n.y.asked = nil, nil
			g, err := n.r.Read(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			return keys(t, g, nothing)
		}
		counts := func(what string, x, y int) {
			t.Helper()
			if len(n.x.asked) != x || len(n.y.asked) != y {
				t.Errorf("%s: x was asked %d times and y %d times, want %d and %d", what, len(n.x.asked), len(n.y.asked), x, y)
			}
		}
		if got, err := list(); err != nil || got != "abcdefghij" {
			t.Errorf("%s, %v", got, err)
		}
		counts("x is away", 1, 1)
		if req := n.y.asked[0]; req.GetRevision() != int64(n.h.Now()) || req.GetConsistency() != 0 || req.GetMaxStaleness() != nil || req.GetClusterId() != "test" || req.GetLineage() != 1 || req.GetLimit() != 0 {
			t.Errorf("y was asked for %v", req)
		}
		n.x.answer = n.lists(1, -1)
		if got, err := list(); err != nil || got != "abcdefghij" {
			t.Errorf("%s, %v", got, err)
		}
		counts("x answers", 1, 0)
		half := func(err error) func(int, *shardwatchv1.ListRequest) ([]*wire.Encoded, error) {
			return func(_ int, req *shardwatchv1.ListRequest) ([]*wire.Encoded, error) {
				out, _ := n.lists(1, -1)(0, req)
				return out[:1], err
			}
		}
		n.x.answer = half(status.Error(codes.Unavailable, "x breaks off"))
		got, err := list()
		unavailable(t, "x breaks off", err, kv.NotReady, "node x does not answer: ")
		if got != "abcde" {
			t.Errorf("got %s before the answer broke off", got)
		}
		counts("x breaks off", 1, 0)
		n.x.answer = n.lists(1, -1)
		n.pretend.Shards[1].Replicas = []shard.NodeID{"unknown", "x"}
		if got, err := list(); err != nil || got != "abcdefghij" {
			t.Errorf("with an unknown first node: %s, %v", got, err)
		}
		if g, err := n.r.Read(t.Context(), router.ReadRequest{Revision: n.h.Now(), Range: away}); err != nil || g.Here() {
			t.Errorf("at a revision, without local shards: %v", err)
		}
		n.pretend.Shards[1].Replicas = []shard.NodeID{"x", "y"}
		stop := errors.New("enough")
		g, err := n.r.Read(t.Context(), router.ReadRequest{Range: away})
		if err != nil {
			t.Fatal(err)
		}
		calls := 0
		if err := g.Each(t.Context(), nothing, func([]*kv.KeyValue) error { calls++; return stop }); !errors.Is(err, stop) || calls != 1 {
			t.Errorf("the reader stops: %v after %d calls", err, calls)
		}
		// A compacted revision takes precedence over a node that is away, in either order. A client that
		// named no revision may retry.
		compacted := wire.Status(&kv.CompactedError{Requested: 3, Floor: 12})
		fail := func(err error) func(int, *shardwatchv1.ListRequest) ([]*wire.Encoded, error) {
			return func(int, *shardwatchv1.ListRequest) ([]*wire.Encoded, error) { return nil, err }
		}
		down := status.Error(codes.Unavailable, "down")
		for what, both := range map[string][2]error{"x has compacted": {compacted, down}, "y has compacted": {down, compacted}} {
			n.x.answer, n.y.answer = fail(both[0]), fail(both[1])
			var c *kv.CompactedError
			req.Revision = n.h.Now()
			if _, err := list(); !errors.As(err, &c) || c.Floor != 12 {
				t.Errorf("%s: %v", what, err)
			}
			counts(what, 1, 1)
			req.Revision = 0
			_, err := list()
			unavailable(t, what+", list", err, kv.NotReady, "revision 3 is gone")
			counts(what, 1, 1)
			if g, err = n.r.Read(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			_, err = g.Count(t.Context())
			unavailable(t, what+", count", err, kv.NotReady, "revision 3 is gone")
			if _, err = g.Hold(t.Context()); !errors.As(err, &c) || c.Floor != 12 {
				t.Errorf("%s, hold: %v", what, err)
			}
			_, err = g.Changes(t.Context(), 7)
			unavailable(t, what+", changes", err, kv.NotReady, "revision 3 is gone")
		}
		n.x.answer, n.y.answer = fail(down), fail(down)
		_, err = list()
		unavailable(t, "both are away", err, kv.NotReady, "node y does not answer")
		n.pretend.Shards[1].Replicas = []shard.NodeID{"here"}
		_, err = list()
		unavailable(t, "no other node", err, kv.NotReady, "shard 2 has no node that can answer")
	})
}

// A node that does not have the shard yet is asked again for a second.
func TestANodeThatLearnsOfItsShardIsAskedAgain(t *testing.T) {
	reading(t, func(t *testing.T, n *reads) {
		n.pretend.Shards[1].Replicas = []shard.NodeID{"y"}
		not := wire.Status(&kv.NotHereError{Shard: 2, Epoch: 7})
		n.y.answer = func(i int, req *shardwatchv1.ListRequest) ([]*wire.Encoded, error) {
			if i < 3 {
				return nil, not
			}
			return n.lists(1, -1)(i, req)
		}
		g, err := n.r.Read(t.Context(), router.ReadRequest{Range: away})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := keys(t, g, nothing); err != nil || got != "defg" || len(n.y.asked) != 3 {
			t.Errorf("%s, %v after %d requests", got, err, len(n.y.asked))
		}
		n.y.answer = func(int, *shardwatchv1.ListRequest) ([]*wire.Encoded, error) { return nil, not }
		began := time.Now()
		var elsewhere *kv.NotHereError
		if _, err := keys(t, g, nothing); !errors.As(err, &elsewhere) {
			t.Errorf("from a node that never has the shard: %v", err)
		}
		if took := time.Since(began); took > time.Second || took < time.Second/2 {
			t.Errorf("gave up after %v", took)
		}
		gone, cancel := context.WithCancel(t.Context())
		n.y.answer = func(int, *shardwatchv1.ListRequest) ([]*wire.Encoded, error) { cancel(); return nil, not }
		began = time.Now()
		if err := g.Each(gone, nothing, func([]*kv.KeyValue) error { return nil }); err == nil || time.Since(began) > 0 {
			t.Errorf("a canceled caller waited %v: %v", time.Since(began), err)
		}
	})
}

// An answer of another lineage is rejected, at the beginning of the stream and later.
func TestAnAnswerOfAnotherLineageIsRefused(t *testing.T) {
	reading(t, func(t *testing.T, n *reads) {
		n.pretend.Shards[1].Replicas = []shard.NodeID{"y"}
		first := true
		n.y.answer = func(_ int, req *shardwatchv1.ListRequest) ([]*wire.Encoded, error) {
			other, _ := n.lists(2, -1)(0, req)
			if first {
				return other, nil
			}
			own, _ := n.lists(1, -1)(0, req)
			return append(own[:1], other[1:]...), nil
		}
		for what, want := range map[string]string{"from the start": "", "in the middle": "de"} {
			first = want == ""
			g, err := n.r.Read(t.Context(), router.ReadRequest{Range: away})
			if err != nil {
				t.Fatal(err)
			}
			got, err := keys(t, g, nothing)
			var other *kv.LineageError
			if !errors.As(err, &other) || other.Requested != 1 || other.Current != 2 || got != want {
				t.Errorf("%s: accepted %q, %v", what, got, err)
			}
		}
	})
}

// An answer of another cluster is rejected, even if its lineage has the same number: a rebuilt tier at
// the same addresses counts from 1 again. Another node of the shard is asked instead.
func TestAnAnswerOfAnotherClusterIsRefused(t *testing.T) {
	reading(t, func(t *testing.T, n *reads) {
		foreign := kv.HistoryID{Cluster: "rebuilt", Lineage: 1}
		n.y.answer = func(_ int, req *shardwatchv1.ListRequest) ([]*wire.Encoded, error) {
			at := kv.Revision(req.GetRevision())
			return []*wire.Encoded{
				wire.ListChunk(at, foreign, []*kv.KeyValue{kv.NewKeyValue(kv.Fields{Key: []byte("e"), CreateRevision: 1, ModRevision: 1, Version: 1})}),
				wire.ListEnd(at, foreign, nil, 1, -1),
			}, nil
		}
		n.x.answer = n.lists(1, -1)
		for _, c := range []struct {
			replicas []shard.NodeID
			want     string
			fails    bool
		}{{[]shard.NodeID{"y"}, "", true}, {[]shard.NodeID{"y", "x"}, "defg", false}} {
			n.pretend.Shards[1].Replicas = c.replicas
			g, err := n.r.Read(t.Context(), router.ReadRequest{Range: away})
			if err != nil {
				t.Fatal(err)
			}
			got, err := keys(t, g, nothing)
			var refused *kv.UnavailableError
			if got != c.want || errors.As(err, &refused) != c.fails {
				t.Errorf("from %v: got %q, %v, want %q", c.replicas, got, err, c.want)
			}
			if c.fails && !strings.Contains(fmt.Sprint(err), `cluster "rebuilt"`) {
				t.Errorf("from %v: %v", c.replicas, err)
			}
		}
	})
}

// If all shards are remote, the first node chooses the revision and reports its age; the
// others answer at the same revision.
func TestAnotherNodeChoosesTheRevision(t *testing.T) {
	reading(t, func(t *testing.T, n *reads) {
		both := cachetest.Map(1, []string{"d"}, "y", "x")
		n.pretend = both
		n.pretend.Shards[1].Replicas = []shard.NodeID{"x"}
		n.pretend.Shards[0].ID, n.pretend.Shards[1].ID = 21, 22
		ages := n.lists(1, 4*time.Second)
		chosen := n.h.Now()
		n.y.answer = func(i int, req *shardwatchv1.ListRequest) ([]*wire.Encoded, error) {
			defer n.h.Commit(cachetest.Put("e", "later"))
			return ages(i, req)
		}
		n.x.answer = n.lists(1, 9*time.Second)
		g, err := n.r.Read(t.Context(), router.ReadRequest{Serializable: true, MaxStaleness: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if _, known := g.Age(); known || g.Revision != 0 {
			t.Errorf("at revision %d before the first request", g.Revision)
		}
		if got, err := keys(t, g, nothing); err != nil || got != "abcdefghij" || g.Revision != chosen {
			t.Errorf("%s at %d, %v", got, g.Revision, err)
		}
		req := n.y.asked[0]
		if req.GetRevision() != 0 || req.GetConsistency() != shardwatchv1.Consistency_CONSISTENCY_SERIALIZABLE || req.GetMaxStaleness().AsDuration() != 5*time.Second || req.GetClusterId() != "" || req.GetLineage() != 0 {
			t.Errorf("the first node was asked for %v", req)
		}
		if req := n.x.asked[0]; req.GetRevision() != int64(chosen) || req.GetConsistency() != 0 {
			t.Errorf("the second node was asked for %v", req)
		}
		if age, known := g.Age(); !known || age != 4*time.Second {
			t.Errorf("age %v, %v", age, known)
		}
		ages = n.lists(1, 0)
		if g, err = n.r.Read(t.Context(), router.ReadRequest{Range: kv.Single("a"), Serializable: true}); err != nil {
			t.Fatal(err)
		}
		if _, err := keys(t, g, nothing); err != nil {
			t.Error(err)
		}
		if age, known := g.Age(); !known || age != 0 {
			t.Errorf("age %v, %v, from a node with fresh data", age, known)
		}
		n.y.asked = n.y.asked[:1]
		ages = n.lists(1, -1)
		g, err = n.r.Read(t.Context(), router.ReadRequest{Range: kv.Single("a"), Serializable: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := keys(t, g, nothing); err != nil {
			t.Error(err)
		}
		if age, known := g.Age(); known {
			t.Errorf("age %v, from a node that does not report it", age)
		}
		if n.y.asked[1].GetMaxStaleness() != nil {
			t.Error("the node got a bound that the request does not have")
		}
		// At a fixed revision, the age that a node reports is not the age of the read.
		n.y.answer = n.lists(1, 4*time.Second)
		if g, err = n.r.Read(t.Context(), router.ReadRequest{Range: kv.Single("a"), Revision: chosen, Exists: true}); err != nil {
			t.Fatal(err)
		}
		if _, err := keys(t, g, nothing); err != nil {
			t.Error(err)
		}
		if age, known := g.Age(); known {
			t.Errorf("age %v at a fixed revision", age)
		}
	})
}

// Each obeys its options over local and remote shards.
func TestEachNarrows(t *testing.T) {
	reading(t, func(t *testing.T, n *reads) {
		n.y.answer = func(_ int, req *shardwatchv1.ListRequest) ([]*wire.Encoded, error) {
			rng, _ := kv.RangeFromEtcd(req.GetKey(), req.GetRangeEnd())
			items := n.h.State(rng, kv.Revision(req.GetRevision()))
			if l := req.GetLimit(); l > 0 && l < int64(len(items)) {
				items = items[:l]
			}
			return []*wire.Encoded{wire.ListChunk(n.h.Now(), lineage(1), items), wire.ListEnd(n.h.Now(), lineage(1), nil, 0, -1)}, nil
		}
		for _, c := range []struct {
			o    router.Options
			want string
		}{
			{router.Options{Limit: 1}, "a"},
			{router.Options{Limit: 3}, "abc"},
			{router.Options{Limit: 4}, "abcd"},
			{router.Options{Limit: 8}, "abcdefgh"},
			{router.Options{Limit: 10}, "abcdefghij"},
			{router.Options{Limit: 11}, "abcdefghij"},
			{router.Options{From: "c"}, "cdefghij"},
			{router.Options{From: "d"}, "defghij"},
			{router.Options{From: "f", Limit: 3}, "fgh"},
			{router.Options{From: "z"}, ""},
			{router.Options{ChunkBytes: 1 << 20}, "abcdefghij"},
		} {
			g, err := n.r.Read(t.Context(), router.ReadRequest{})
			if err != nil {
				t.Fatal(err)
			}
			n.y.asked = nil
			if got, err := keys(t, g, c.o); err != nil || got != c.want {
				t.Errorf("%+v: %s, %v, want %s", c.o, got, err, c.want)
			}
			if c.o.Limit == 3 && c.o.From == "" && len(n.y.asked) > 0 {
				t.Error("a node was asked though the limit was reached")
			}
		}
		g, err := n.r.Read(t.Context(), router.ReadRequest{Range: inFirst})
		if err != nil {
			t.Fatal(err)
		}
		chunks := func(o router.Options) (sizes []int) {
			if err := g.Each(t.Context(), o, func(chunk []*kv.KeyValue) error {
				for _, item := range chunk {
					if (len(item.Value()) == 0) != o.KeysOnly || item.ModRevision() == 0 || item.Version() != 1 || item.CreateRevision() == 0 {
						t.Errorf("%+v: %s=%s", o, item.Key(), item.Value())
					}
				}
				sizes = append(sizes, len(chunk))
				return nil
			}); err != nil {
				t.Error(err)
			}
			return sizes
		}
		one := len(n.h.State(kv.Single("a"), n.h.Now())[0].Encoded())
		for bytes, want := range map[int][]int{0: {1, 1, 1}, one: {1, 1, 1}, one + 1: {2, 1}, 2 * one: {2, 1}, 3*one + 1: {3}} {
			if got := chunks(router.Options{ChunkBytes: bytes}); !slices.Equal(got, want) {
				t.Errorf("%d bytes a chunk: %v, want %v", bytes, got, want)
			}
		}
		chunks(router.Options{KeysOnly: true})
		stop := errors.New("enough")
		calls := 0
		if err := g.Each(t.Context(), nothing, func([]*kv.KeyValue) error { calls++; return stop }); !errors.Is(err, stop) || calls != 1 {
			t.Errorf("%v after %d calls", err, calls)
		}
	})
}

// A shard that is split while a read waits for it is read from both halves.
func TestAReadSurvivesASplit(t *testing.T) {
	reading(t, func(t *testing.T, n *reads) {
		n.pretend = nil
		n.Gate(1).Limit(n.h.Now())
		at := n.h.Commit(cachetest.Put("b", "new"))
		next := clone(n.Node.Map())
		next.Shards = append([]shard.Shard{
			{ID: 31, Epoch: 1, Range: kv.Range{End: "b"}, Replicas: []shard.NodeID{"here"}},
			{ID: 32, Epoch: 1, Range: kv.Range{Start: "b", End: "d"}, Replicas: []shard.NodeID{"here"}},
		}, next.Shards[1:]...)
		go func() {
			time.Sleep(time.Second)
			n.Use(next)
		}()
		g, err := n.r.Read(t.Context(), router.ReadRequest{Range: inFirst, Revision: at, Exists: true})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := keys(t, g, nothing); err != nil || got != "abc" || g.Revision != at {
			t.Errorf("%s at %d, %v", got, g.Revision, err)
		}
	})
}

// deletesOf are the deletes of 20,000 keys with a prefix. A cache that has applied them keeps
// no earlier state: the replaced nodes of its tree exceed RootsBytes.
func deletesOf(prefix string) (ops []cachetest.Op) {
	for i := range 20_000 {
		ops = append(ops, cachetest.Delete(fmt.Sprintf("%s/%05d", prefix, i)))
	}
	return ops
}

// A read that names no revision chooses one before a large transaction. A shard receives that revision
// together with the transaction, which drops the state at it: the read then gets a later revision. No
// other node is asked, because it has also applied the transaction.
func TestAReadOutlivesALargeTransaction(t *testing.T) {
	for what, replicas := range map[string][]shard.NodeID{"without another node": {"here"}, "with another node": {"here", "y"}} {
		t.Run(what, func(t *testing.T) {
			reading(t, func(t *testing.T, n *reads) {
				n.pretend.Shards[0].Replicas, n.pretend.Shards[2].Replicas = replicas, replicas
				n.Gate(1).Limit(n.h.Now())
				chosen := n.h.Commit(cachetest.Put("i", "new")) // in shard 3
				go func() {
					time.Sleep(2 * time.Second)
					n.h.Commit(deletesOf("a")...)
					n.Gate(1).Limit(0)
				}()
				g, err := n.r.Read(t.Context(), router.ReadRequest{Range: inFirst})
				if err != nil {
					t.Fatal(err)
				}
				if got, err := keys(t, g, nothing); err != nil || got != "abc" || g.Revision != chosen+1 || !g.Here() {
					t.Errorf("%s at %d, local %v, %v; want revision %d", got, g.Revision, g.Here(), err, chosen+1)
				}
				if _, err := n.r.Read(t.Context(), router.ReadRequest{Range: inFirst, Revision: chosen, Local: true}); !errors.As(err, new(*kv.CompactedError)) {
					t.Errorf("at revision %d itself: %v; the test needs its state to be dropped", chosen, err)
				}
				// A serializable read is at the revision of the shard that is furthest behind. That shard is
				// asked to advance.
				at := n.h.Commit(deletesOf("i")...)
				synctest.Wait()
				if first, third := n.Replica(1).Progress(), n.Replica(3).Progress(); first >= at || third != at {
					t.Fatalf("the shards are at %d and %d, want the third alone at %d", first, third, at)
				}
				if g, err = n.r.Read(t.Context(), router.ReadRequest{Serializable: true, MaxStaleness: router.AnyAge}); err != nil {
					t.Fatal(err)
				}
				if got, err := keys(t, g, nothing); err != nil || got != "abcdefghij" || g.Revision != at {
					t.Errorf("%s at %d, %v; want revision %d", got, g.Revision, err, at)
				}
				for _, req := range n.y.asked {
					if rng, err := kv.RangeFromEtcd(req.GetKey(), req.GetRangeEnd()); err != nil || rng != away {
						t.Errorf("y was asked for %v, %v", rng, err)
					}
				}
			})
		})
	}
}

// stopped is a clock that always returns the same revision.
type stopped kv.Revision

func (c stopped) Revision(context.Context) (kv.Revision, error) { return kv.Revision(c), nil }

// A read that names no revision, and whose chosen revisions are all dropped, fails after a second with
// a retryable error, not with a compaction of the client's revision.
func TestAReadThatFindsNoKeptRevisionCanBeTriedAgain(t *testing.T) {
	reading(t, func(t *testing.T, n *reads) {
		old := n.h.Now() - 1
		n.h.Commit(cachetest.Put("a", "new"))
		synctest.Wait()
		r := router.New(router.Config{Shards: n, Clock: stopped(old), Self: "here"})
		began := time.Now()
		_, err := r.Read(t.Context(), router.ReadRequest{Range: inFirst})
		unavailable(t, "of a revision that is gone each time", err, kv.NotReady, "was dropped before it was read")
		if errors.As(err, new(*kv.CompactedError)) {
			t.Errorf("final for the client: %v", err)
		}
		if took := time.Since(began); took < time.Second || took > 2*time.Second {
			t.Errorf("gave up after %v", took)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		began = time.Now()
		if _, err := r.Read(gone, router.ReadRequest{Range: inFirst}); err == nil || time.Since(began) > 0 {
			t.Errorf("a canceled caller waited %v: %v", time.Since(began), err)
		}
	})
}

// While no shard advances, for example without etcd, a serializable read takes the shard that has
// dropped the revision of the others from another node, which may have kept it.
func TestASerializableReadTakesADroppedRevisionFromAnotherNode(t *testing.T) {
	reading(t, func(t *testing.T, n *reads) {
		n.pretend.Shards[2].Replicas = []shard.NodeID{"here", "y"}
		n.x.answer, n.y.answer = n.lists(1, -1), n.lists(1, -1)
		old := n.h.Now()
		n.Gate(1).Limit(old)
		n.h.Commit(deletesOf("i")...)
		synctest.Wait()
		g, err := n.r.Read(t.Context(), router.ReadRequest{Serializable: true, MaxStaleness: router.AnyAge})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := keys(t, g, nothing); err != nil || got != "abcdefghij" || g.Revision != old {
			t.Errorf("%s at %d, %v; want revision %d", got, g.Revision, err, old)
		}
		if len(n.y.asked) != 1 || n.y.asked[0].GetRevision() != int64(old) {
			t.Errorf("y was asked for %v", n.y.asked)
		}
	})
}

// A revision that the local copy of a shard no longer has is read from another node, unless
// the caller is a node or there is no other node.
func TestARevisionThatIsGoneLocallyIsReadRemotely(t *testing.T) {
	reading(t, func(t *testing.T, n *reads) {
		old := n.h.Now() - 1
		n.h.Commit(cachetest.Put("a", "new"))
		synctest.Wait()
		read := func(local bool) (string, error) {
			g, err := n.r.Read(t.Context(), router.ReadRequest{Range: inFirst, Revision: old, Local: local})
			if err != nil {
				return "", err
			}
			return keys(t, g, nothing)
		}
		var compacted *kv.CompactedError
		if _, err := read(false); !errors.As(err, &compacted) || compacted.Requested != old {
			t.Errorf("without another node: %v", err)
		}
		n.pretend.Shards[0].Replicas = []shard.NodeID{"here", "y"}
		if got, err := read(false); err != nil || got != "abc" || n.y.asked[0].GetRevision() != int64(old) {
			t.Errorf("%s, %v", got, err)
		}
		n.y.asked = nil
		if _, err := read(true); !errors.As(err, &compacted) || len(n.y.asked) > 0 {
			t.Errorf("for a node: %v, y was asked %d times", err, len(n.y.asked))
		}
	})
}

// The router reports its state without a map, for ranges that are not served, and for local shards.
func TestRouterReportsItsState(t *testing.T) {
	reading(t, func(t *testing.T, n *reads) {
		if at := n.r.Newest(); at != n.h.Now() {
			t.Errorf("newest %d", at)
		}
		if got := n.r.History(); got != lineage(1) {
			t.Errorf("history %+v", got)
		}
		if got := n.r.Elsewhere(away); !slices.Equal(got, []string{"x:7400", "y:7400"}) {
			t.Errorf("elsewhere: %v", got)
		}
		old := n.h.Now()
		n.Gate(1).Limit(old)
		now := n.h.Commit(cachetest.Put("a", "1"), cachetest.Put("i", "1"))
		synctest.Wait()
		for rng, want := range map[kv.Range]kv.Revision{inFirst: old, inThird: now, {}: now} {
			if got, err := n.r.Present(t.Context(), rng); err != nil || got != want || n.clock.asked > 0 {
				t.Errorf("present in %v: %d, %v", rng, got, err)
			}
		}
		if got, err := n.r.Present(t.Context(), away); err != nil || got != now || n.clock.asked != 1 {
			t.Errorf("present on another node: %d, %v", got, err)
		}
		n.Gate(1).Limit(0)
		small := n.r.RevisionSize()
		now = n.h.Commit(cachetest.Put("a", strings.Repeat("v", 1<<20)))
		synctest.Wait()
		if large := n.r.RevisionSize(); small <= 0 || small > 1<<10 || large < 1<<15 {
			t.Errorf("revisions have %d bytes, and %d after one of 1 MiB", small, large)
		}
		n.Gate(3).Limit(now)
		ahead := n.h.Commit(cachetest.Put("a", "2"))
		synctest.Wait()
		if got, err := n.r.Present(t.Context(), kv.Range{}); err != nil || got != ahead || n.r.Newest() != ahead {
			t.Errorf("present: %d, %v, newest %d; shard 1 is at %d", got, err, n.r.Newest(), ahead)
		}
		if n.r.Here(away) || n.r.Here(kv.Range{}) || !n.r.Here(inFirst) {
			t.Error("Here reports the wrong ranges")
		}
		n.h.Fail(errors.New("etcd is away"))
		_, err := n.r.Present(t.Context(), away)
		unavailable(t, "present elsewhere, without etcd", err, kv.EtcdUnavailable, "etcd is away")
		n.pretend.Shards = n.pretend.Shards[:2]
		if got := n.r.Elsewhere(inThird); got != nil {
			t.Errorf("Elsewhere of a range without a shard: %v", got)
		}
		n.pretend.Spec.Ranges = []kv.Range{{Start: "b"}}
		var not *kv.NotServedError
		if _, err := n.r.Read(t.Context(), router.ReadRequest{Range: inFirst}); !errors.As(err, &not) || !slices.Equal(not.Served, n.pretend.Spec.Ranges) || n.r.Here(inFirst) {
			t.Errorf("a range that is not served: %v", err)
		}
	})
	r := router.New(router.Config{Shards: cachetest.NewNode("here", cachetest.New(), nil), Clock: cachetest.New(), Self: "here"})
	if r.Newest() != 0 || r.RevisionSize() != 0 || r.History() != (kv.HistoryID{}) || r.Elsewhere(kv.Range{}) != nil || r.Here(kv.Range{}) {
		t.Error("a router without a map reports state")
	}
	_, err := r.Read(t.Context(), router.ReadRequest{})
	unavailable(t, "without a map", err, kv.NotReady, "this node has no shard map yet")
	_, err = r.Present(t.Context(), kv.Range{})
	unavailable(t, "without a map", err, kv.NotReady, "this node has no shard map yet")
}
