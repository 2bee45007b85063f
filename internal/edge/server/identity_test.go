package server_test

import (
	"errors"
	"io"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// The position of another cluster allows only a resync, even if its lineage and revision exist
// here. Until the resync ends, the client keeps its last position.
func TestAnotherClustersPositionResyncs(t *testing.T) {
	h := cachetest.New()
	write(h, testseed.Rand(t), 100)
	r := start(t, h, options{server: brief})
	r.serving()
	foreign := wire.Position{Cluster: wire.ClusterKey("rebuilt"), Lineage: 1, Revision: h.Now() - 10}
	key, end := kv.Range{}.Etcd()
	for name, create := range map[string]*pb.CreateWatch{
		"by revision": {ClusterId: "rebuilt", Lineage: 1, Start: &pb.CreateWatch_StartRevision{StartRevision: int64(foreign.Revision) + 1}},
		"by token":    {Start: &pb.CreateWatch_ResumeToken{ResumeToken: wire.ResumeToken(foreign)}},
		"conflated":   {ClusterId: "rebuilt", Lineage: 1, Start: &pb.CreateWatch_StartRevision{StartRevision: int64(foreign.Revision) + 1}, Conflate: durationpb.New(10 * time.Millisecond)},
	} {
		t.Run(name, func(t *testing.T) {
			s := r.watch()
			defer s.end()
			create.WatchId, create.Key, create.RangeEnd, create.AllowSync = 1, key, end, true
			s.create(create)
			c := s.created(1)
			if c.GetClusterId() != "test" || c.GetLineage() != 1 || c.GetRevision() != 0 {
				t.Errorf("created in cluster %q, lineage %d, at %d", c.GetClusterId(), c.GetLineage(), c.GetRevision())
			}
			if got, err := wire.ParseResumeToken(c.GetResumeToken(), kv.Range{}); err != nil || got != foreign {
				t.Errorf("the token before the resync means %+v, %v", got, err)
			}
			keys, at := map[string]bool{}, int64(0)
			for at == 0 {
				m := s.next()
				switch y := m.GetSync(); {
				case y == nil && (m.GetProgress() == nil || m.GetProgress().GetRevision() != 0):
					t.Fatalf("got %v before the end of the resync", m)
				case y == nil: // progress of revision 0: the client has no position here yet
				case y.GetKind() != pb.SyncKind_SYNC_KIND_RESYNC:
					t.Fatalf("a unit of kind %v", y.GetKind())
				default:
					for _, item := range y.GetKvs() {
						keys[string(item.GetKey())] = true
					}
					if y.GetEnd() {
						at = y.GetRevision()
					}
				}
			}
			if want := h.State(kv.Range{}, kv.Revision(at)); len(want) != len(keys) {
				t.Errorf("%d keys at %d, want %d", len(keys), at, len(want))
			}
			s.cancel(1)
			if got, err := wire.ParseResumeToken(s.ended(1).GetResumeToken(), kv.Range{}); err != nil || got.Cluster != wire.ClusterKey("test") || int64(got.Revision) < at {
				t.Errorf("the token after the resync means %+v, %v", got, err)
			}
		})
	}
}

// A read at a revision of another history is refused, even if that revision exists here.
func TestReadsOfAnotherClustersRevision(t *testing.T) {
	h := cachetest.New()
	write(h, testseed.Rand(t), 20)
	r := start(t, h, options{server: brief})
	r.serving()
	now := int64(h.Now())
	cache := pb.NewCacheServiceClient(r.conn)
	list := func(l *pb.ListRequest) error {
		l.Key, l.RangeEnd = kv.Range{}.Etcd()
		s, err := cache.List(t.Context(), l)
		for err == nil {
			var m *pb.ListResponse
			if m, err = s.Recv(); err == nil && (m.GetClusterId() != "test" || m.GetLineage() != 1) {
				t.Errorf("a chunk of cluster %q, lineage %d", m.GetClusterId(), m.GetLineage())
			}
		}
		return wire.Error(err)
	}
	get := func(g *pb.GetRequest) error {
		g.Key = []byte("a")
		m, err := cache.Get(t.Context(), g)
		if err == nil && (m.GetClusterId() != "test" || m.GetLineage() != 1) {
			t.Errorf("a key of cluster %q, lineage %d", m.GetClusterId(), m.GetLineage())
		}
		return wire.Error(err)
	}
	page := wire.PageToken(wire.Position{Cluster: wire.ClusterKey("x"), Lineage: 1, Revision: kv.Revision(now), Next: "b"})
	for name, err := range map[string]error{
		"list at a revision":     list(&pb.ListRequest{Revision: now, ClusterId: "x", Lineage: 1}),
		"list at another's":      list(&pb.ListRequest{Revision: now + 100, ClusterId: "x"}),
		"list of a lineage":      list(&pb.ListRequest{Revision: now, ClusterId: "test", Lineage: 2}),
		"list of changes":        list(&pb.ListRequest{ChangedSince: now, ClusterId: "x", Lineage: 1}),
		"the next page":          list(&pb.ListRequest{PageToken: page, Limit: 1}),
		"get at a revision":      get(&pb.GetRequest{Revision: now, ClusterId: "x", Lineage: 1}),
		"get of another lineage": get(&pb.GetRequest{Revision: now, Lineage: 2}),
	} {
		if !errors.As(err, new(*kv.LineageError)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, err := range map[string]error{
		"list":            list(&pb.ListRequest{}),
		"list at ours":    list(&pb.ListRequest{Revision: now, ClusterId: "test", Lineage: 1}),
		"list, unnamed":   list(&pb.ListRequest{Revision: now}),
		"changes":         list(&pb.ListRequest{ChangedSince: now, ClusterId: "test", Lineage: 1}),
		"get at ours":     get(&pb.GetRequest{Revision: now, ClusterId: "test", Lineage: 1}),
		"get, by default": get(&pb.GetRequest{}),
	} {
		if err != nil && !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
