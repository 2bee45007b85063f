package server_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/cachetest"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/server"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// etcd's history ends while a client is sent a unit of it: the watch ends at the
// client's position, and the rest of the unit is not sent.
func TestLineageEndsDuringAUnit(t *testing.T) {
	h := full(8000)
	r := start(t, h, options{server: func(c *server.Config) { brief(c); c.FragmentBytes = 64 << 10 }, cache: forgetful})
	r.serving()
	f := follow(t, h, kv.Range{})
	s := f.on(r.watch())
	for f.unit == nil {
		f.take(s.next())
	}
	next := cachetest.Map(2, []string{"h"}, "here")
	next.Lineage = 2
	r.node.Use(next)
	for f.unit != nil {
		m := s.next()
		e := m.GetEnded()
		if e == nil {
			f.take(m)
			continue
		}
		if e.GetReason() != pb.EndReason_END_REASON_LINEAGE || e.GetResumeRevision() != f.at+1 {
			t.Errorf("%v, the client is at %d", e, f.at)
		}
		return
	}
	t.Error("the unit of the old history was sent to its end")
}

// loose is a node whose shards stop coming from etcd directly.
type loose struct {
	server.Node
	mu      sync.Mutex
	direct  bool          // guarded by mu
	changed chan struct{} // guarded by mu
}

func (l *loose) Direct(shard.ID) (bool, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.direct, l.changed
}

func (l *loose) set(direct bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.direct = direct
	close(l.changed)
	l.changed = make(chan struct{})
}

// follows opens a peer's stream of a shard, and returns its first message.
func (r *running) follows(ctx context.Context, change func(*peerv1.FollowRequest)) (peerv1.PeerService_FollowClient, *peerv1.FollowResponse, error) {
	req := &peerv1.FollowRequest{ShardId: 1, Node: "there", Lineage: 1, FromRevision: int64(r.h.Now()) + 1}
	req.Key, req.RangeEnd = r.node.Map().Shards[0].Range.Etcd()
	change(req)
	s, err := peerv1.NewPeerServiceClient(dial(r.tb, r.peers)).Follow(ctx, req)
	if err != nil {
		return nil, nil, err
	}
	m, err := s.Recv()
	return s, m, wire.Error(err)
}

// A node with another lineage, another range or an old map is not given a shard's
// events, which it would take for its own.
func TestFollowersOfAnotherShardAreRefused(t *testing.T) {
	m := cachetest.Map(1, []string{"h"}, "here")
	m.Shards[0].Epoch, m.Shards[1].Epoch, m.Shards[1].Replicas = 7, 9, []shard.NodeID{"there"}
	r := start(t, cachetest.New(), options{shards: m})
	for name, x := range map[string]struct {
		change func(*peerv1.FollowRequest)
		want   func(error) bool
	}{
		"the same lineage": {func(*peerv1.FollowRequest) {}, func(err error) bool { return err == nil }},
		"any lineage":      {func(f *peerv1.FollowRequest) { f.Lineage = 0 }, func(err error) bool { return err == nil }},
		"another lineage": {func(f *peerv1.FollowRequest) { f.Lineage = 2 }, func(err error) bool {
			var e *kv.LineageError
			return errors.As(err, &e) && e.Requested == 2 && e.Current == 1
		}},
		"another range": {func(f *peerv1.FollowRequest) { f.RangeEnd = []byte("g") }, func(err error) bool {
			var e *kv.UnavailableError
			return errors.As(err, &e) && strings.Contains(e.Detail, "one of the two has an old map")
		}},
		"no range": {func(f *peerv1.FollowRequest) { f.Key = nil }, func(err error) bool {
			return errors.As(err, new(*kv.InvalidError))
		}},
		"a shard of another node": {func(f *peerv1.FollowRequest) { f.ShardId = 2 }, func(err error) bool {
			var e *kv.NotHereError
			return errors.As(err, &e) && e.Shard == 2 && e.Epoch == 9
		}},
		"no shard": {func(f *peerv1.FollowRequest) { f.ShardId = 99 }, func(err error) bool {
			var e *kv.NotHereError
			return errors.As(err, &e) && e.Shard == 99
		}},
	} {
		t.Run(name, func(t *testing.T) {
			_, first, err := r.follows(t.Context(), x.change)
			if !x.want(err) {
				t.Errorf("%v, %v", first, err)
			}
			if b := first.GetBegin(); err == nil && (b.GetLineage() != 1 || b.GetEpoch() != 7 || b.GetRevision() != int64(r.h.Now())) {
				t.Errorf("it begins with %v", first)
			}
		})
	}
}

// A follower that must have events from etcd directly is refused, or ended, when they
// come by another node; one that takes them from anywhere stays.
func TestFollowerThatNeedsEtcdDirectly(t *testing.T) {
	l := &loose{changed: make(chan struct{})}
	r := start(t, cachetest.New(), options{server: func(c *server.Config) { l.Node, c.Node = c.Node, l }})
	direct := func(f *peerv1.FollowRequest) { f.RequireDirect = true }
	refused := func(what string, err error) {
		t.Helper()
		var e *kv.UnavailableError
		if !errors.As(err, &e) || !strings.Contains(e.Detail, "does not come from etcd directly") {
			t.Fatalf("%s: %v", what, err)
		}
	}
	_, _, err := r.follows(t.Context(), direct)
	refused("at the beginning", err)
	tolerant, _, err := r.follows(t.Context(), func(*peerv1.FollowRequest) {})
	if err != nil {
		t.Fatal(err)
	}
	l.set(true)
	strict, _, err := r.follows(t.Context(), direct)
	if err != nil {
		t.Fatal(err)
	}
	l.set(false)
	for err = nil; err == nil; _, err = strict.Recv() { // the end of the beginning, and progress
	}
	refused("while it follows", wire.Error(err))
	now := int64(r.h.Commit(cachetest.Put("a", "1")))
	for {
		m, err := tolerant.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if m.GetRevision() == now {
			break
		}
	}
}

// clouded is a guard that cannot tell who may read while etcd is away.
type clouded struct {
	*warden
	away   atomic.Bool
	rounds atomic.Int32 // times that somebody began to wait for changes
}

func (g *clouded) MayRead(caller string, r kv.Range) error {
	if g.away.Load() {
		return wire.Status(&kv.UnavailableError{Why: kv.EtcdUnavailable, Detail: "away"})
	}
	return g.warden.MayRead(caller, r)
}

func (g *clouded) Changed() <-chan struct{} {
	g.rounds.Add(1)
	return g.warden.Changed()
}

// Watches go on while the node cannot find out whether their callers still have the
// right to them, and end when it finds that they have not.
func TestWatchesSurviveAnEtcdThatCannotTellTheirRights(t *testing.T) {
	g := &clouded{warden: newWarden()}
	g.grant(map[string]string{"ann": "a"})
	r := start(t, cachetest.New(), options{server: func(c *server.Config) { c.Guard = g }})
	s := watchAs(t, "ann", r.conn)
	s.create(&pb.CreateWatch{WatchId: 1, Key: []byte("a"), Start: &pb.CreateWatch_StartRevision{StartRevision: first}})
	s.created(1)
	g.away.Store(true)
	for range 2 { // the second round begins when the first has asked for all watches
		rounds := g.rounds.Load()
		g.grant(map[string]string{"ann": "b"})
		eventually(t, "rights are looked at again", func() bool { return g.rounds.Load() > rounds })
	}
	r.h.Commit(cachetest.Put("a", "1"))
	if m := s.next(); len(m.GetEvents()) != 1 {
		t.Fatalf("got %v", m)
	}
	g.away.Store(false)
	g.grant(map[string]string{"ann": "b"})
	if e := s.ended(1); e.GetReason() != pb.EndReason_END_REASON_DENIED {
		t.Errorf("got %v", e)
	}
}

// A node without a shard map knows neither its cluster nor its lineage: it sends
// clients with a page token or a revision elsewhere, and does not call them foreign.
func TestReadsOfAPositionWithoutAShardMap(t *testing.T) {
	r := start(t, cachetest.New(), options{founding: true})
	page := wire.PageToken(wire.Position{Cluster: wire.ClusterKey("test"), Lineage: 1, Revision: 5, Next: "b"})
	for name, l := range map[string]*pb.ListRequest{
		"page":     {PageToken: page, Limit: 1},
		"revision": {Revision: 5, ClusterId: "test", Lineage: 1},
	} {
		l.Key, l.RangeEnd = kv.Range{}.Etcd()
		s, err := pb.NewCacheServiceClient(r.conn).List(t.Context(), l)
		if err == nil {
			_, err = s.Recv()
		}
		if !errors.As(wire.Error(err), new(*kv.UnavailableError)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
