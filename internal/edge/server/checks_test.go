package server_test

import (
	"errors"
	"sync/atomic"
	"testing"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/edge/server"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// If etcd's history ends while a client is sent a unit of it, the watch ends at the client's
// position, and the rest of the unit is not sent.
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
			t.Errorf("the watch ended with %v, the client is at %d", e, f.at)
		}
		return
	}
	t.Error("the unit of the old history was sent to its end")
}

// clouded is a guard that cannot check read rights while etcd is unavailable.
type clouded struct {
	*warden
	away   atomic.Bool
	rounds atomic.Int32 // how often a watch has begun to wait for changes
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

// Watches continue while the node cannot check their callers' rights, and end when it finds that
// these rights are gone.
func TestWatchesSurviveWhileEtcdCannotCheckTheirRights(t *testing.T) {
	g := &clouded{warden: newWarden()}
	g.grant(map[string]string{"ann": "a"})
	r := start(t, cachetest.New(), options{server: func(c *server.Config) { c.Guard = g }})
	s := watchAs(t, "ann", r.conn)
	s.create(&pb.CreateWatch{WatchId: 1, Key: []byte("a"), Start: &pb.CreateWatch_StartRevision{StartRevision: first}})
	s.created(1)
	g.away.Store(true)
	for range 2 { // the second round begins after all watches were checked in the first
		rounds := g.rounds.Load()
		g.grant(map[string]string{"ann": "b"})
		testkit.Eventually(t, "the rights are checked again", func() bool { return g.rounds.Load() > rounds })
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

// Without a shard map, a node has neither a cluster nor a lineage to compare with. It redirects clients with a page
// token or a revision to other nodes, and does not reject their positions as foreign.
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
