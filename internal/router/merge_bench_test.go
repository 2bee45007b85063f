package router_test

import (
	"fmt"
	"testing"

	"github.com/shardwatch/shardwatch/internal/cachetest"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
)

// BenchmarkMerge is what a revision costs a watch over several shards that
// replays a window: each has an event in one of them.
func BenchmarkMerge(b *testing.B) {
	const revisions = 10_000
	for _, shards := range []int{1, 2, 16} {
		b.Run(fmt.Sprintf("shards=%d", shards), func(b *testing.B) {
			h := cachetest.New()
			var cuts []string
			for i := 1; i < shards; i++ {
				cuts = append(cuts, letters[i:i+1])
			}
			n := cachetest.NewNode("here", h, nil)
			r := start(b, h, n)
			m := cachetest.Map(1, cuts, "here")
			n.Use(m)
			for i := range m.Shards {
				<-n.Replica(m.Shards[i].ID).Ready()
			}
			for i := range revisions {
				h.Commit(cachetest.Put(letters[i*7%16:][:1], "value"))
			}
			for i := range m.Shards {
				if err := n.Replica(m.Shards[i].ID).WaitProgress(b.Context(), h.Now()); err != nil {
					b.Fatal(err)
				}
			}
			var w *router.Watch
			var events []*kv.Event
			left := 0
			b.ReportAllocs()
			for b.Loop() {
				if left == 0 {
					b.StopTimer()
					if w != nil {
						w.Close()
					}
					var err error
					if w, err = r.Watch(b.Context(), router.WatchRequest{From: cachetest.Start + 1, Lineage: 1}, newBell()); err != nil {
						b.Fatal(err)
					}
					left = revisions
					b.StartTimer()
				}
				revision, got, err := w.Next(events[:0])
				if err != nil || revision != h.Now()-kv.Revision(left)+1 || len(got) != 1 {
					b.Fatal(revision, len(got), err)
				}
				events = got
				left--
			}
			w.Close()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
