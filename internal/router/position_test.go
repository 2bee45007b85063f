package router_test

import (
	"sync"
	"testing"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// Position may be called concurrently with the watch in any state, and the revision that a
// merge holds back counts as undelivered.
func TestPositionOfAMerge(t *testing.T) {
	h := cachetest.New()
	n := cachetest.NewNode("here", h, nil)
	n.Use(cachetest.Map(1, []string{"h"}, "here"))
	for id := range n.Map().Shards {
		<-n.Replica(n.Map().Shards[id].ID).Ready()
	}
	r := start(t, h, n)
	one := open(t, r, kv.Range{}, cachetest.Start+1)
	stop := make(chan struct{})
	var asking sync.WaitGroup
	asking.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				one.w.Position()
			}
		}
	})
	lag := func(want kv.Revision) {
		t.Helper()
		testkit.Eventually(t, "the lag", func() bool {
			one.read(t, h)
			at, _ := one.w.Position()
			return at.Newest-at.Revision == want && at.Since.IsZero() == (want == 0)
		})
	}
	n.Gate(2).Limit(h.Now())
	first := h.Commit(cachetest.Put("a", "1"), cachetest.Put("p", "1"))
	lag(0) // the other shard holds it back: it cannot be delivered
	n.Gate(2).Limit(0)
	testkit.Eventually(t, "it can be delivered", func() bool { // both shards and their merge have the revision
		at, _ := one.w.Position()
		return one.last == first || at.Revision == first-1 && at.Newest == first && !at.Since.IsZero()
	})
	lag(0)
	n.Use(cachetest.Map(2, []string{"h", "m"}, "here")) // the watch moves
	h.Commit(cachetest.Put("a", "2"), cachetest.Put("p", "2"))
	testkit.Eventually(t, "the watch continues", func() bool { one.read(t, h); return one.last == h.Now() })
	close(stop)
	asking.Wait()
	one.w.Close()
	if _, open := one.w.Position(); open {
		t.Error("a closed watch has a position")
	}
}
