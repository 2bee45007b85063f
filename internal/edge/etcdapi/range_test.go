package etcdapi_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/edge/etcdapi"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// bubble is an API over scripted caches and a scripted etcd. Tests call it directly, so that
// everything runs in fake time.
type bubble struct {
	t    *testing.T
	h    *cachetest.Script
	etcd *scripted
	node *cachetest.Node
	api  *etcdapi.API

	passed, most atomic.Int64  // number of reads that etcd answered, and of concurrent ones
	hold         chan struct{} // if set, etcd answers when it is closed
}

// proxyConn answers forwarded calls in place of etcd.
type proxyConn struct {
	grpc.ClientConnInterface
	b *bubble
}

func (p proxyConn) Invoke(ctx context.Context, _ string, _, reply any, _ ...grpc.CallOption) error {
	now := p.b.passed.Add(1)
	for most := p.b.most.Load(); now > most && !p.b.most.CompareAndSwap(most, now); most = p.b.most.Load() {
	}
	if p.b.hold != nil {
		select {
		case <-p.b.hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return passed(reply)
}

// passed fills in an answer with a count that identifies it as etcd's.
func passed(reply any) error {
	b, err := proto.Marshal(&etcdserverpb.RangeResponse{Header: &etcdserverpb.ResponseHeader{Revision: 99}, Count: -1})
	reply.(*wire.Encoded).Buffers = mem.BufferSlice{mem.SliceBuffer(b)}
	return err
}

type passing struct {
	*scripted
	b *bubble
}

func (p passing) ProxyConn() grpc.ClientConnInterface { return proxyConn{b: p.b} }

// inBubble runs f with three shards of a history that has the keys "a", "i" and "z", each at
// version 2.
func inBubble(t *testing.T, tune func(*cache.Config, *etcdapi.Config, *router.Config), f func(b *bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := cachetest.New()
		b := &bubble{t: t, h: h, etcd: &scripted{script: h}}
		for _, v := range []string{"1", "2"} {
			h.Commit(cachetest.Put("a", v), cachetest.Put("i", v), cachetest.Put("z", v))
		}
		dc := etcdapi.Defaults()
		cc := cache.Defaults()
		rc := router.Config{Clock: h, Self: "here", MaxStaleness: time.Minute}
		if tune != nil {
			tune(&cc, &dc, &rc)
		}
		b.node = cachetest.NewNode("here", h, func(c *cache.Config) {
			c.RootsBytes, c.RootsTime = cc.RootsBytes, cc.RootsTime
		})
		defer b.node.Stop()
		m := cachetest.Map(1, []string{"h", "p"}, "here")
		m.Spec.Ranges = []kv.Range{{}}
		b.node.Use(m)
		for id := shard.ID(1); id <= 3; id++ {
			<-b.node.Replica(id).Ready()
		}
		b.observe()
		rc.Shards = b.node
		dc.Router, dc.Etcd, dc.Self = router.New(rc), passing{b.etcd, b}, "here"
		api, err := etcdapi.New(dc)
		if err != nil {
			t.Fatal(err)
		}
		b.api = api
		f(b)
	})
}

// observe tells the caches that their data is fresh up to their current revisions.
func (b *bubble) observe() {
	for id := shard.ID(1); id <= 3; id++ {
		c := b.node.Replica(id)
		c.Observe(time.Now(), c.Progress())
	}
}

func (b *bubble) get(ctx context.Context, r *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	b.t.Helper()
	e, err := b.api.Range(ctx, r)
	if err != nil {
		return nil, err
	}
	defer e.Buffers.Free()
	var out etcdserverpb.RangeResponse
	if err := proto.Unmarshal(e.Buffers.Materialize(), &out); err != nil {
		b.t.Fatal(err)
	}
	return &out, nil
}

// byEtcd expects an answer from etcd.
func (b *bubble) byEtcd(r *etcdserverpb.RangeRequest) {
	b.t.Helper()
	before := b.passed.Load()
	if got, err := b.get(b.t.Context(), r); err != nil || got.GetCount() != -1 || b.passed.Load() != before+1 {
		b.t.Errorf("%v: got %v, %v, want etcd's answer", r, got, err)
	}
}

// byUs expects an answer from the node.
func (b *bubble) byUs(r *etcdserverpb.RangeRequest, header kv.Revision, values ...string) {
	b.t.Helper()
	before := b.passed.Load()
	got, err := b.get(b.t.Context(), r)
	var found []string
	for _, item := range got.GetKvs() {
		found = append(found, string(item.GetValue()))
	}
	if err != nil || b.passed.Load() != before || got.GetHeader().GetRevision() != int64(header) || fmt.Sprint(found) != fmt.Sprint(values) || got.GetCount() != int64(len(values)) {
		b.t.Errorf("%v: got %v, %v, want %v at %d from memory", r, got, err, values, header)
	}
}

// fails expects an error that etcd would return, too.
func (b *bubble) fails(ctx context.Context, r *etcdserverpb.RangeRequest, want error) {
	b.t.Helper()
	before := b.passed.Load()
	if got, err := b.get(ctx, r); status.Code(err) != status.Code(want) || rpctypes.ErrorDesc(err) != rpctypes.ErrorDesc(want) || b.passed.Load() != before {
		b.t.Errorf("%v: got %v, %v, want %v", r, got, err, want)
	}
}

func all() *etcdserverpb.RangeRequest {
	return &etcdserverpb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}
}

func allAt(revision kv.Revision) *etcdserverpb.RangeRequest {
	r := all()
	r.Revision = int64(revision)
	return r
}

func serializable(r *etcdserverpb.RangeRequest) *etcdserverpb.RangeRequest {
	r.Serializable = true
	return r
}

func one(key string) *etcdserverpb.RangeRequest { return &etcdserverpb.RangeRequest{Key: []byte(key)} }

// A read that waits for a shard for more than three seconds is forwarded to etcd. A read with a
// shorter wait is not.
func TestRangeOfAShardThatIsHeldBack(t *testing.T) {
	inBubble(t, nil, func(b *bubble) {
		now := b.h.Now()
		b.node.Gate(2).Limit(now)
		b.h.Commit(cachetest.Put("a", "3"))
		for _, r := range []*etcdserverpb.RangeRequest{all(), one("i")} {
			began := time.Now()
			b.byEtcd(r)
			if waited := time.Since(began); waited != 3*time.Second {
				t.Errorf("%v: waited %v", r, waited)
			}
		}
		// Reads of other shards do not wait for this shard, and neither do serializable reads.
		b.byUs(one("a"), now+1, "3")
		b.observe()
		b.byUs(serializable(all()), now, "2", "2", "2")
		go func() {
			time.Sleep(2 * time.Second)
			b.node.Gate(2).Limit(0)
		}()
		began := time.Now()
		b.byUs(all(), now+1, "3", "2", "2")
		if waited := time.Since(began); waited != 2*time.Second {
			t.Errorf("waited %v for a shard that was away for 2s", waited)
		}
	})
}

// A busy shard may have dropped the revision of a read. The read then tries newer revisions for a
// second, before it is forwarded to etcd.
func TestRangeOfARevisionThatIsGone(t *testing.T) {
	const now = cachetest.Start + 2
	var clock fakeClock
	inBubble(t, func(cc *cache.Config, _ *etcdapi.Config, rc *router.Config) { cc.RootsBytes, rc.Clock = 0, &clock }, func(b *bubble) {
		clock.say = []kv.Revision{now, now + 1}
		b.h.Commit(cachetest.Put("a", "3"))
		synctest.Wait()
		b.byUs(all(), now+1, "3", "2", "2")
		clock.say = []kv.Revision{now}
		b.byEtcd(all())
		b.byEtcd(allAt(now))
		b.byUs(allAt(now+1), now+1, "3", "2", "2")
	})
}

// fakeClock returns the given results in order, and then repeats the last one.
type fakeClock struct{ say []kv.Revision }

func (c *fakeClock) Revision(context.Context) (kv.Revision, error) {
	next := c.say[0]
	if len(c.say) > 1 {
		c.say = c.say[1:]
	}
	return next, nil
}

func TestRangeAtRevisions(t *testing.T) {
	inBubble(t, nil, func(b *bubble) {
		now := b.h.Now()
		b.h.Commit(cachetest.Put("a", "3"), cachetest.Delete("z"))
		synctest.Wait()
		b.byUs(allAt(now), now+1, "2", "2", "2") // the header has etcd's current revision
		b.byUs(serializable(allAt(now)), now+1, "2", "2", "2")
		b.byUs(allAt(now+1), now+1, "3", "2")
		b.byUs(allAt(-5), now+1, "3", "2")
		b.fails(b.t.Context(), allAt(now+2), rpctypes.ErrGRPCFutureRev)
		b.byEtcd(allAt(now - 1)) // before the oldest revision in memory
		b.etcd.compact(now)
		b.fails(b.t.Context(), allAt(now-1), rpctypes.ErrGRPCCompacted)
		b.byUs(allAt(now), now+1, "2", "2", "2")
	})
}

// Without etcd, serializable reads are served from fresh local data.
func TestRangeWithoutEtcd(t *testing.T) {
	away := &kv.UnavailableError{Why: kv.EtcdUnavailable, Detail: "no endpoint answers"}
	inBubble(t, nil, func(b *bubble) {
		before := b.h.Now()
		b.h.Commit(cachetest.Put("a", "3"))
		b.byUs(all(), before+1, "3", "2", "2")
		b.h.Fail(away)
		b.etcd.away = away
		withLeader := metadata.NewIncomingContext(b.t.Context(), metadata.Pairs(requireLeader...))
		for _, r := range []*etcdserverpb.RangeRequest{all(), one("a"), allAt(before)} {
			b.fails(b.t.Context(), r, rpctypes.ErrGRPCTimeout)
			b.fails(withLeader, r, rpctypes.ErrGRPCNoLeader)
		}
		now := before + 1
		b.byUs(serializable(all()), now, "3", "2", "2")
		b.byUs(serializable(allAt(before)), now, "2", "2", "2")
		b.fails(b.t.Context(), serializable(allAt(now+1)), rpctypes.ErrGRPCFutureRev)
		time.Sleep(5*time.Second + 1)
		b.fails(b.t.Context(), serializable(all()), rpctypes.ErrGRPCNoLeader)
		b.fails(b.t.Context(), serializable(allAt(before)), rpctypes.ErrGRPCNoLeader)
	})
	inBubble(t, func(_ *cache.Config, dc *etcdapi.Config, _ *router.Config) { dc.MaxStaleness = 0 }, func(b *bubble) {
		b.h.Fail(away)
		time.Sleep(time.Hour)
		b.byUs(serializable(all()), b.h.Now(), "2", "2", "2")
	})
}

// Requests that this node cannot answer are forwarded to etcd.
func TestForwardedRanges(t *testing.T) {
	inBubble(t, nil, func(b *bubble) {
		b.byEtcd(&etcdserverpb.RangeRequest{Key: []byte("b"), RangeEnd: []byte("a")})
		b.byEtcd(&etcdserverpb.RangeRequest{Key: []byte("b"), RangeEnd: []byte("b")})
		for _, r := range []func() *etcdserverpb.RangeRequest{all, func() *etcdserverpb.RangeRequest { return one("i") }} {
			m := cachetest.Map(2, []string{"h", "p"}, "here")
			m.Shards[1].Replicas = []shard.NodeID{"nobody knows"}
			b.node.Use(m)
			b.byEtcd(r())
			b.byEtcd(serializable(r()))
			m = cachetest.Map(3, []string{"h", "p"}, "here")
			m.Spec.Ranges = []kv.Range{{End: "i"}, {Start: "j"}}
			b.node.Use(m)
			b.byEtcd(r())
		}
	})
}

func TestRangeRefused(t *testing.T) {
	inBubble(t, nil, func(b *bubble) {
		b.fails(b.t.Context(), &etcdserverpb.RangeRequest{}, rpctypes.ErrGRPCEmptyKey)
		b.fails(b.t.Context(), &etcdserverpb.RangeRequest{RangeEnd: []byte("a")}, rpctypes.ErrGRPCEmptyKey)
		b.fails(b.t.Context(), &etcdserverpb.RangeRequest{Key: []byte("a"), SortOrder: 3}, rpctypes.ErrGRPCInvalidSortOption)
		b.fails(b.t.Context(), &etcdserverpb.RangeRequest{Key: []byte("a"), SortTarget: -1}, rpctypes.ErrGRPCInvalidSortOption)
		gone, cancel := context.WithCancel(b.t.Context())
		cancel()
		b.node.Gate(1).Limit(b.h.Now())
		b.h.Commit(cachetest.Put("a", "3"))
		if _, err := b.get(gone, all()); !errors.Is(err, context.Canceled) || b.passed.Load() > 0 {
			t.Errorf("a read whose caller has canceled: %v", err)
		}
		late, cancel := context.WithTimeout(b.t.Context(), time.Second)
		defer cancel()
		if _, err := b.get(late, all()); !errors.Is(err, context.DeadlineExceeded) || b.passed.Load() > 0 {
			t.Errorf("a read with a deadline of one second: %v", err)
		}
	})
}

// guard lets "root" read everything, and other users one range.
type guard struct {
	caller string
	may    kv.Range
	err    error
	asked  []kv.Range
}

func (g *guard) Caller(context.Context) (string, error) { return g.caller, g.err }
func (g *guard) Changed() <-chan struct{}               { return nil }
func (*guard) Refresh(context.Context)                  {}
func (g *guard) MayRead(caller string, r kv.Range) error {
	g.asked = append(g.asked, r)
	if caller == "root" || g.may.Covers(r) {
		return nil
	}
	return rpctypes.ErrGRPCPermissionDenied
}

// A caller without the right to a range is refused before anything is read, for all forms of
// ranges. etcd checks the rights of the requests that are forwarded to it.
func TestRangeIsGuarded(t *testing.T) {
	g := &guard{may: kv.Range{Start: "a", End: "j"}}
	inBubble(t, func(_ *cache.Config, dc *etcdapi.Config, _ *router.Config) { dc.Guard = g }, func(b *bubble) {
		now := b.h.Now()
		b.byUs(one("a"), now, "2")
		b.byUs(&etcdserverpb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("j")}, now, "2", "2")
		for _, r := range []*etcdserverpb.RangeRequest{
			one("z"), all(), {Key: []byte("a"), RangeEnd: []byte{0}}, {Key: []byte{0}, RangeEnd: []byte("b")}, {Key: []byte("a"), RangeEnd: []byte("k")}, allAt(1 << 40),
		} {
			b.fails(b.t.Context(), r, rpctypes.ErrGRPCPermissionDenied)
			r.CountOnly = true
			b.fails(b.t.Context(), r, rpctypes.ErrGRPCPermissionDenied)
			r.Serializable = true
			b.fails(b.t.Context(), r, rpctypes.ErrGRPCPermissionDenied)
		}
		if whole := (kv.Range{}); g.asked[len(g.asked)-1] != whole {
			t.Errorf("asked about %v", g.asked)
		}
		b.byEtcd(&etcdserverpb.RangeRequest{Key: []byte("z"), RangeEnd: []byte("y")})
		g.caller = "root"
		b.byUs(all(), now, "2", "2", "2")
		g.err = rpctypes.ErrGRPCInvalidAuthToken
		b.fails(b.t.Context(), all(), rpctypes.ErrGRPCInvalidAuthToken)
		g.err = rpctypes.ErrGRPCUserEmpty
		b.fails(b.t.Context(), one("a"), rpctypes.ErrGRPCUserEmpty)
	})
}

// While a shard is unavailable, only a few lists at a time are forwarded to etcd, and they do not
// delay gets.
func TestListsForwardedToEtcdAreBounded(t *testing.T) {
	inBubble(t, nil, func(b *bubble) {
		b.hold = make(chan struct{})
		b.node.Gate(2).Limit(b.h.Now())
		b.h.Commit(cachetest.Put("a", "3"))
		const lists = 50
		answered := make(chan error, lists+1)
		ask := func(r *etcdserverpb.RangeRequest) {
			got, err := b.get(b.t.Context(), r)
			if err == nil && got.GetCount() != -1 {
				err = fmt.Errorf("got %v", got)
			}
			answered <- err
		}
		for range lists {
			go ask(all())
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if most := b.most.Load(); most != 16 {
			t.Errorf("%d lists at a time were forwarded to etcd, want 16", most)
		}
		go ask(one("i"))
		time.Sleep(time.Minute)
		synctest.Wait()
		if most := b.most.Load(); most != 17 {
			t.Errorf("with a get beside the lists, %d reads at a time were forwarded to etcd, want 17", most)
		}
		close(b.hold)
		for range lists + 1 {
			if err := <-answered; err != nil {
				t.Error(err)
			}
		}
	})
}

// recorder is a server stream that keeps all sent messages.
type recorder struct {
	grpc.ServerStream
	t    *testing.T
	ctx  context.Context
	sent []*etcdserverpb.RangeResponse
}

func (r *recorder) Context() context.Context { return r.ctx }
func (r *recorder) SendMsg(m any) error {
	var out etcdserverpb.RangeStreamResponse
	e := m.(*wire.Encoded)
	defer e.Buffers.Free()
	if err := proto.Unmarshal(e.Buffers.Materialize(), &out); err != nil {
		r.t.Fatal(err)
	}
	r.sent = append(r.sent, out.GetRangeResponse())
	return nil
}

func TestRangeStreamRefused(t *testing.T) {
	inBubble(t, nil, func(b *bubble) {
		out := &recorder{t: t, ctx: b.t.Context()}
		unimplemented := func(why string) error { return status.Error(codes.Unimplemented, why) }
		sorts, filters := unimplemented("RangeStream does not support custom sort orders"), unimplemented("RangeStream does not support revision filters")
		with := func(change func(*etcdserverpb.RangeRequest)) *etcdserverpb.RangeRequest {
			r := all()
			change(r)
			return r
		}
		for _, c := range []struct {
			r    *etcdserverpb.RangeRequest
			want error
		}{
			{&etcdserverpb.RangeRequest{}, rpctypes.ErrGRPCEmptyKey},
			{with(func(r *etcdserverpb.RangeRequest) { r.SortOrder = 7 }), rpctypes.ErrGRPCInvalidSortOption},
			{with(func(r *etcdserverpb.RangeRequest) { r.SortOrder = etcdserverpb.RangeRequest_DESCEND }), sorts},
			{with(func(r *etcdserverpb.RangeRequest) {
				r.SortOrder, r.SortTarget = etcdserverpb.RangeRequest_ASCEND, etcdserverpb.RangeRequest_MOD
			}), sorts},
			{with(func(r *etcdserverpb.RangeRequest) { r.MinModRevision = 1 }), filters},
			{with(func(r *etcdserverpb.RangeRequest) { r.MaxCreateRevision = -1 }), filters},
			{allAt(1 << 40), rpctypes.ErrGRPCFutureRev},
		} {
			if err := b.api.RangeStream(c.r, out); status.Code(err) != status.Code(c.want) || rpctypes.ErrorDesc(err) != rpctypes.ErrorDesc(c.want) || len(out.sent) > 0 {
				t.Errorf("%v: %v, want %v", c.r, err, c.want)
			}
		}
		if err := b.api.RangeStream(all(), out); err != nil || len(out.sent) != 1 || out.sent[0].GetCount() != 3 {
			t.Errorf("got %v, %v", out.sent, err)
		}
	})
}
