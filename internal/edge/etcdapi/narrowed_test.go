package etcdapi_test

import (
	"errors"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
)

// narrow makes the cluster serve only the keys of these ranges.
func (r *watchRig) narrow(ranges ...kv.Range) {
	r.tb.Helper()
	m := r.shards.Clone()
	m.Spec.Shards = 1
	next, err := shard.Apply(m, shard.Command{IfVersion: m.Version, Change: shard.Configure{Replicas: 1, Ranges: ranges}})
	if err != nil {
		r.tb.Fatal(err)
	}
	r.node.Use(next)
	r.router.Kick()
}

// When the cluster serves fewer keys, a watch of other keys ends with that reason. All other
// watches of its stream continue without a gap.
func TestANarrowerPrefixEndsOnlyTheWatchesOutside(t *testing.T) {
	r := startWatches(t, rigOptions{})
	s := r.watch()
	s.create(&etcdserverpb.WatchCreateRequest{Key: []byte("k")})
	s.created(0)
	s.create(&etcdserverpb.WatchCreateRequest{Key: []byte("a")})
	s.created(1)
	s.create(whole())
	s.created(2)
	r.h.Commit(cachetest.Put("k", "1"))
	for range 2 {
		s.next()
	}
	r.narrow(kv.Range{Start: "i", End: "p"})
	ended := map[int64]string{}
	for range 2 {
		m := s.next()
		if !m.GetCanceled() || m.GetCompactRevision() != 0 || !strings.Contains(m.GetCancelReason(), `is not served: this cluster serves ["i", "p")`) {
			t.Fatalf("got %v", m)
		}
		ended[m.GetWatchId()] = m.GetCancelReason()
	}
	if len(ended) != 2 || ended[0] != "" {
		t.Errorf("ended: %v", ended)
	}
	r.h.Commit(cachetest.Put("a", "2"), cachetest.Put("k", "2"))
	if m := s.next(); m.GetWatchId() != 0 || text(m) != "p:k=2" {
		t.Errorf("got %v", m)
	}
}

// A watch that catches up from etcd's log ends, too, and does not retry forever.
func TestANarrowerPrefixEndsAWatchThatCatchesUp(t *testing.T) {
	r := startWatches(t, rigOptions{cache: func(c *cache.Config) { c.WindowBytes = 4 << 10 }})
	var last kv.Revision
	for range 30 {
		last = r.h.Commit(cachetest.Put("a", strings.Repeat("x", 1024)))
	}
	if err := r.node.Replica(1).WaitProgress(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	r.etcd.mu.Lock()
	r.etcd.away = errors.New("away")
	r.etcd.mu.Unlock()
	s := r.watch()
	s.create(&etcdserverpb.WatchCreateRequest{Key: []byte("a"), StartRevision: first})
	s.created(0)
	s.create(&etcdserverpb.WatchCreateRequest{Key: []byte("k")})
	s.created(1)
	r.narrow(kv.Range{Start: "i", End: "p"})
	if m := s.canceled(0); !strings.Contains(m.GetCancelReason(), "is not served") || m.GetCompactRevision() != 0 {
		t.Errorf("got %v", m)
	}
	r.h.Commit(cachetest.Put("k", "2"))
	if m := s.next(); m.GetWatchId() != 1 || text(m) != "p:k=2" {
		t.Errorf("got %v", m)
	}
}
