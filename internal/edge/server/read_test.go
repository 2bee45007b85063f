package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
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

// listed is the complete answer to a list.
type listed struct {
	revision int64
	keys     []string
	values   map[string]string
	token    []byte
	count    *int64
}

func list(tb testing.TB, conn *grpc.ClientConn, r *pb.ListRequest) (out listed, err error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), deadline)
	defer cancel()
	out.values = make(map[string]string)
	s, err := pb.NewCacheServiceClient(conn).List(ctx, r)
	if err != nil {
		return out, err
	}
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return out, wire.Error(err)
		}
		if out.revision != 0 && m.GetRevision() != out.revision {
			tb.Errorf("chunks at revisions %d and %d", out.revision, m.GetRevision())
		}
		out.revision, out.token, out.count = m.GetRevision(), m.GetNextPageToken(), m.Count
		for _, item := range m.GetKvs() {
			out.keys = append(out.keys, string(item.GetKey()))
			out.values[string(item.GetKey())] = string(item.GetValue())
		}
	}
}

func everything() *pb.ListRequest { return &pb.ListRequest{Key: []byte{0}, RangeEnd: []byte{0}} }

// model returns the history's state of a range at a revision.
func model(h *cachetest.Script, r kv.Range, at int64) map[string]string {
	out := make(map[string]string)
	for _, item := range h.State(r, kv.Revision(at)) {
		out[string(item.Key())] = string(item.Value())
	}
	return out
}

// pair returns two servers of one history. The second has the shards after "m". Each is asked by
// the other at its peer port.
func pair(t *testing.T, h *cachetest.Script) (here, there *running) {
	t.Helper()
	m := cachetest.Map(1, []string{"f", "m", "t"}, "here")
	m.Shards[2].Replicas, m.Shards[3].Replicas = []shard.NodeID{"gone", "there"}, []shard.NodeID{"there"}
	tune := func(c *server.Config) { c.FragmentBytes = 1 << 10 }
	here = start(t, h, options{self: "here", shards: m, server: tune})
	there = start(t, h, options{self: "there", shards: m, server: tune})
	here.node.Connect("there", dial(t, there.peers))
	there.node.Connect("here", dial(t, here.peers))
	return here, there
}

// While transactions write to all shards, each list over shards here and at another node has the
// state of exactly one revision, which is no older than the preceding write, with and without
// pages.
func TestListIsOneRevision(t *testing.T) {
	seed := testseed.Of(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	h := cachetest.New()
	here, there := pair(t, h)
	// A few transactions run beside each page. An unbounded writer would leave a slow machine ever
	// further behind.
	pages, stopped := make(chan struct{}, 4), make(chan struct{})
	go func() {
		defer close(stopped)
		rng := rand.New(rand.NewPCG(seed, 1))
		for range pages {
			var ops []cachetest.Op
			for _, i := range rng.Perm(26)[:4] {
				key := fmt.Sprintf("%c/%d", 'a'+i, rng.IntN(5))
				if rng.IntN(3) == 0 {
					ops = append(ops, cachetest.Delete(key))
				} else {
					ops = append(ops, cachetest.Put(key, fmt.Sprint(rng.Uint64())))
				}
			}
			h.Commit(ops...)
		}
	}()
	defer func() { close(pages); <-stopped }()
	for i := range 150 {
		node := []*running{here, there}[i%2]
		r := everything()
		whole := kv.Range{}
		if rng.IntN(2) == 0 {
			whole = kv.Range{Start: string(rune('a' + rng.IntN(10))), End: string(rune('l' + rng.IntN(10)))}
			r.Key, r.RangeEnd = whole.Etcd()
		}
		written := int64(h.Now())
		r.KeysOnly = rng.IntN(4) == 0
		r.Count = rng.IntN(2) == 0
		if rng.IntN(2) == 0 {
			r.Limit = int64(1 + rng.IntN(40))
		}
		var got listed
		for page := 0; ; page++ {
			for range cap(pages) {
				pages <- struct{}{}
			}
			part, err := list(t, node.conn, r)
			if err != nil {
				t.Fatalf("%v: %v", r, err)
			}
			counts(t, h, r, whole, part)
			if page > 0 && part.revision != got.revision {
				t.Fatalf("pages at revisions %d and %d", got.revision, part.revision)
			}
			if r.GetLimit() > 0 && int64(len(part.keys)) > r.GetLimit() {
				t.Fatalf("%d keys, the limit is %d", len(part.keys), r.GetLimit())
			}
			got.revision, got.keys = part.revision, append(got.keys, part.keys...)
			if got.values == nil {
				got.values = part.values
			}
			maps.Copy(got.values, part.values)
			if r.PageToken = part.token; len(part.token) == 0 {
				break
			}
			if int64(len(part.keys)) != r.GetLimit() {
				t.Fatalf("a page of %d keys has a next page, the limit is %d", len(part.keys), r.GetLimit())
			}
			node = []*running{here, there}[rng.IntN(2)] // a page token is valid on any node
		}
		want := model(h, whole, got.revision)
		if r.GetKeysOnly() {
			for key := range want {
				want[key] = ""
			}
		}
		if got.revision < written || !slices.IsSorted(got.keys) || len(got.keys) != len(want) || !maps.Equal(got.values, want) {
			t.Fatalf("list of %v at %d (written before: %d): %v\nwant %v", whole, got.revision, written, got.values, want)
		}
	}
}

// counts checks the count in a page.
func counts(t *testing.T, h *cachetest.Script, r *pb.ListRequest, whole kv.Range, page listed) {
	t.Helper()
	want := int64(len(model(h, whole, page.revision)))
	if (page.count != nil) != r.GetCount() || page.count != nil && *page.count != want {
		t.Fatalf("%v: %d keys, counted %v", r, want, page.count)
	}
}

func TestListEdges(t *testing.T) {
	h := cachetest.New()
	here, there := pair(t, h)
	h.Commit(cachetest.Put("a", "1"), cachetest.Put("z", "1"))
	h.Commit(cachetest.Put("a", "2"))
	now := int64(h.Now())
	page := wire.Position{Cluster: wire.ClusterKey("test"), Lineage: 1, Range: kv.Range{}, Revision: kv.Revision(now), Next: "b"}
	with := func(change func(*pb.ListRequest)) *pb.ListRequest {
		r := everything()
		change(r)
		return r
	}
	serializable := pb.Consistency_CONSISTENCY_SERIALIZABLE
	invalid := func(field string) func(error) bool {
		return func(err error) bool {
			var e *kv.InvalidError
			return errors.As(err, &e) && e.Field == field && e.Reason != ""
		}
	}
	for _, c := range []struct {
		name string
		r    *pb.ListRequest
		is   func(error) bool
	}{
		{"no key", &pb.ListRequest{}, invalid("key")},
		{"end before key", &pb.ListRequest{Key: []byte("b"), RangeEnd: []byte("a")}, invalid("range_end")},
		{"negative limit", with(func(r *pb.ListRequest) { r.Limit = -1 }), invalid("limit")},
		{"negative revision", with(func(r *pb.ListRequest) { r.Revision = -1 }), invalid("revision")},
		{"staleness of a linearizable read", with(func(r *pb.ListRequest) { r.MaxStaleness = durationpb.New(1) }), invalid("max_staleness")},
		{"negative staleness", with(func(r *pb.ListRequest) { r.Consistency, r.MaxStaleness = serializable, durationpb.New(-1) }), invalid("max_staleness")},
		{"consistency of a fixed revision", with(func(r *pb.ListRequest) { r.Consistency, r.Revision = serializable, now }), invalid("consistency")},
		{"unknown consistency", with(func(r *pb.ListRequest) { r.Consistency = 9 }), invalid("consistency")},
		{"token and revision", with(func(r *pb.ListRequest) { r.PageToken, r.Revision = wire.PageToken(page), now }), invalid("page_token")},
		{"a resume token", with(func(r *pb.ListRequest) { r.PageToken = wire.ResumeToken(page) }), invalid("page_token")},
		{"a token of another range", &pb.ListRequest{Key: []byte("a"), PageToken: wire.PageToken(page)}, invalid("page_token")},
		{"a revision in the future", with(func(r *pb.ListRequest) { r.Revision = now + 1 }), func(err error) bool {
			var e *kv.FutureError
			return errors.As(err, &e) && int64(e.Requested) == now+1 && int64(e.Current) == now
		}},
		{"a revision that is gone", with(func(r *pb.ListRequest) { r.Revision = 2 }), func(err error) bool {
			var e *kv.CompactedError
			return errors.As(err, &e) && e.Requested == 2 && e.Floor > 2
		}},
		{"a revision that is gone at the other node", &pb.ListRequest{Key: []byte("z"), Revision: 2}, func(err error) bool {
			var e *kv.CompactedError
			return errors.As(err, &e) && e.Requested == 2 && e.Floor > 2
		}},
	} {
		if _, err := list(t, here.conn, c.r); !c.is(err) {
			t.Errorf("%s: got error %v", c.name, err)
		}
	}
	for _, c := range []struct {
		name string
		r    *pb.ListRequest
		want map[string]string
	}{
		{"an older revision", with(func(r *pb.ListRequest) { r.Revision = now - 1 }), map[string]string{"a": "1", "z": "1"}},
		{"nothing there", &pb.ListRequest{Key: []byte("b"), RangeEnd: []byte("c")}, nil},
		{"nothing at the other node", &pb.ListRequest{Key: []byte("n"), RangeEnd: []byte("o")}, nil},
		{"nothing at the other node, as it is", &pb.ListRequest{Key: []byte("n"), RangeEnd: []byte("o"), Consistency: serializable}, nil},
		{"the greatest limit", with(func(r *pb.ListRequest) { r.Limit = math.MaxInt64 }), map[string]string{"a": "2", "z": "1"}},
		{"a limit that is just enough", with(func(r *pb.ListRequest) { r.Limit = 2 }), map[string]string{"a": "2", "z": "1"}},
	} {
		got, err := list(t, here.conn, c.r)
		if err != nil || !maps.Equal(got.values, c.want) || got.revision == 0 || got.token != nil || got.count != nil {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
		c.r.CountOnly = true
		if got, err = list(t, here.conn, c.r); err != nil || len(got.keys) > 0 || got.revision == 0 || got.count == nil || *got.count != int64(len(c.want)) {
			t.Errorf("%s, count only: %+v, %v", c.name, got, err)
		}
	}
	get, err := pb.NewCacheServiceClient(there.conn).Get(t.Context(), &pb.GetRequest{Key: []byte("a")})
	if err != nil || string(get.GetKv().GetValue()) != "2" || get.GetKv().GetModRevision() != now || get.GetRevision() < now {
		t.Errorf("get of a key of the other node: %v, %v", get, err)
	}
	if get, err = pb.NewCacheServiceClient(here.conn).Get(t.Context(), &pb.GetRequest{Key: []byte("none")}); err != nil || get.GetKv() != nil || get.GetRevision() < now {
		t.Errorf("get of a missing key: %v, %v", get, err)
	}
	// A node's peer port answers from its own shards and asks no other node.
	var notHere *kv.NotHereError
	if _, err := list(t, dial(t, here.peers), everything()); !errors.As(err, &notHere) || notHere.Shard != 3 || !slices.Contains(notHere.Endpoints, "there:7400") {
		t.Errorf("a list at the peer port: %v", err)
	}
	there.stop()
	var away *kv.UnavailableError
	if _, err := list(t, here.conn, everything()); !errors.As(err, &away) || away.RetryAfter == 0 || !strings.Contains(err.Error(), "node there") {
		t.Errorf("a list without the other node: %v", err)
	}
}

// Serializable reads from local data refuse data that is too old, and do not need etcd. Other reads
// report that etcd is unavailable.
func TestReadsWithoutEtcd(t *testing.T) {
	h := cachetest.New()
	r := start(t, h, options{})
	h.Commit(cachetest.Put("a", "1"))
	testkit.Eventually(t, "the caches have it", func() bool { return r.node.Replica(1).Progress() > cachetest.Start })
	h.Fail(errors.New("no answer"))
	is := func(err error, why kv.Unavailable) bool {
		var e *kv.UnavailableError
		return errors.As(err, &e) && e.Why == why && e.RetryAfter > 0
	}
	if _, err := list(t, r.conn, everything()); !is(err, kv.EtcdUnavailable) {
		t.Errorf("linearizable: %v", err)
	}
	stale := everything()
	stale.Consistency, stale.MaxStaleness = pb.Consistency_CONSISTENCY_SERIALIZABLE, durationpb.New(time.Hour)
	if _, err := list(t, r.conn, stale); !is(err, kv.Stale) || !strings.Contains(err.Error(), "not known") {
		t.Errorf("a read of data of unknown age: %v", err)
	}
	for id := shard.ID(1); id <= 2; id++ {
		r.node.Replica(id).Observe(time.Now(), cachetest.Start)
	}
	if got, err := list(t, r.conn, stale); err != nil || got.revision < int64(cachetest.Start) {
		t.Errorf("a read of fresh data: %+v, %v", got, err)
	}
	stale.MaxStaleness = durationpb.New(time.Nanosecond)
	if _, err := list(t, r.conn, stale); !is(err, kv.Stale) || !strings.Contains(err.Error(), "the read allows 1ns") {
		t.Errorf("a read of data that is too old: %v", err)
	}
}

// The error of a read names the shard that is still being loaded, or that lags.
func TestReadWhileAShardLoads(t *testing.T) {
	h := cachetest.New()
	gate := &cachetest.Gate{}
	gate.Close()
	r := start(t, h, options{shards: cachetest.Map(1, nil, "here"), cache: func(c *cache.Config) { c.Source = h.Source(gate) }})
	_, err := list(t, r.conn, everything())
	var e *kv.UnavailableError
	if !errors.As(err, &e) || e.Why != kv.NotReady || !strings.Contains(err.Error(), "shard 1") {
		t.Errorf("got %v (%v)", err, status.Code(err))
	}
	gate.Limit(cachetest.Start)
	<-r.node.Replica(1).Ready()
	h.Commit(cachetest.Put("a", "1"))
	if _, err = list(t, r.conn, everything()); !errors.As(err, &e) || e.Why != kv.NotReady || !strings.Contains(err.Error(), "did not reach") {
		t.Errorf("got %v", err)
	}
	gate.Limit(0)
	if got, err := list(t, r.conn, everything()); err != nil || got.values["a"] != "1" {
		t.Errorf("got %+v, %v", got, err)
	}
}
