package copies

import (
	"context"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// empty is an open source without keys at revision 5.
type empty struct{}

func (empty) Follow(ctx context.Context, _ kv.FollowRequest) iter.Seq2[kv.Update, error] {
	return func(yield func(kv.Update, error) bool) {
		if yield(kv.Update{Kind: kv.UpdateBegin, Revision: 5, Floor: 6}, nil) && yield(kv.Update{Kind: kv.UpdateReady, Revision: 5}, nil) {
			<-ctx.Done()
		}
	}
}

// A loaded replica has no age until etcd's revision has been read. Only then do reads with an age bound succeed,
// and only then is the node ready.
func TestLoadedWithoutAnAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := cache.Defaults()
		cfg.Source = empty{}
		h := &Copy{Cache: cache.New(cfg)}
		s := &Set{replicas: map[shard.ID]*Copy{1: h}, version: 1}
		expect := func(want Loading) {
			t.Helper()
			if got := s.Loading(); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		}
		expect(Loading{All: 1, Loads: 1, Begun: true})
		ctx, stop := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer stop()
		go func() { _ = h.Cache.Run(ctx) }()
		<-h.Cache.Ready()
		expect(Loading{All: 1, Ageless: 1, Begun: true})
		if !h.Cache.Observe(time.Now(), 6) {
			t.Error("Observe does not report that the cache is behind revision 6")
		}
		expect(Loading{All: 1, Ageless: 1, Begun: true}) // the cache lacks revision 6
		h.Cache.Observe(time.Now(), 5)
		expect(Loading{All: 1, Begun: true})
	})
}
