package native

import (
	"fmt"
	"testing"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/edge/pump"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
)

// A turn of a stream examines a bounded number of batches for watches of other keys, and its next turns
// the others.
func TestATurnSkipsABoundedNumberOfBatches(t *testing.T) {
	const readers, batches = 16, 3000
	h := cachetest.New()
	n := cachetest.NewNode("here", h, func(c *cache.Config) { c.WindowBytes = 1 << 30 })
	defer n.Stop()
	n.Use(cachetest.Map(1, nil, "here"))
	<-n.Replica(1).Ready()
	from := h.Now() + 1
	for range batches {
		h.Commit(cachetest.Put("a", "1"))
	}
	if err := n.Replica(1).WaitProgress(t.Context(), h.Now()); err != nil {
		t.Fatal(err)
	}
	shards := router.New(router.Config{Shards: n, Clock: h, Self: "here"})
	s := new(stream)
	s.crowd.s, s.crowd.round = s, 1
	var list []*reader
	for i := range readers {
		r := &reader{s: s, live: true, watches: []*watch{{s: s}}, ids: []int64{int64(i)}}
		var err error
		r.Watch, err = shards.Watch(t.Context(), router.WatchRequest{Range: kv.Single(fmt.Sprintf("b%d", i)), From: from}, r)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		list = append(list, r)
		s.crowd.add(r)
	}
	examined := func() (sum int) {
		for _, r := range list {
			at, _ := r.Progress()
			sum += int(at - from + 1)
		}
		return sum
	}
	var own pump.Scratch
	turns := 0
	for before, again := 0, true; again; turns++ {
		again = s.crowd.run(&own)
		now := examined()
		if n := now - before; n > crowdSkipped+2<<10 {
			t.Fatalf("turn %d has examined %d batches", turns, n)
		}
		before = now
	}
	if examined() != readers*batches || turns > 1+2*readers*batches/crowdSkipped {
		t.Errorf("examined %d of %d batches in %d turns", examined(), readers*batches, turns)
	}
}
