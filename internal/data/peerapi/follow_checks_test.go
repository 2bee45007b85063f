package peerapi_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	"github.com/shardwatch/shardwatch/internal/data/peerapi"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// loose is a node whose shards can lose their direct connection to etcd.
type loose struct {
	peerapi.Node
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

// A node refuses a follower with another lineage, another range or an old map. The follower would take the events
// for those of its own shard.
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
				t.Errorf("got %v, %v", first, err)
			}
			if b := first.GetBegin(); err == nil && (b.GetLineage() != 1 || b.GetEpoch() != 7 || b.GetRevision() != int64(r.h.Now())) {
				t.Errorf("the first message is %v, want lineage 1, epoch 7 and the newest revision", first)
			}
		})
	}
}

// A follower that requires events directly from etcd is refused, or its stream ends, if the events come through
// another node. A follower without that requirement stays.
func TestFollowerThatNeedsEtcdDirectly(t *testing.T) {
	l := &loose{changed: make(chan struct{})}
	r := start(t, cachetest.New(), options{service: func(c *peerapi.Config) { l.Node, c.Node = c.Node, l }})
	direct := func(f *peerv1.FollowRequest) { f.RequireDirect = true }
	refused := func(what string, err error) {
		t.Helper()
		var e *kv.UnavailableError
		if !errors.As(err, &e) || !strings.Contains(e.Detail, "does not come from etcd directly") {
			t.Fatalf("%s: got %v, want an error about a missing direct connection", what, err)
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
