package etcdwatch

import (
	"slices"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/edge/pump"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
)

// A reader sends nothing to watches that are cancelled or ending, and continues with the other
// watches.
func TestACancelledWatchGetsNothingMore(t *testing.T) {
	s := &stream{readers: make(map[readerKind]*reader)}
	r := &reader{s: s, inner: new(router.Watch)}
	for id := range int64(4) {
		r.watches = append(r.watches, &watch{s: s, id: id, reader: r, place: int(id)})
		r.ids = append(r.ids, id)
	}
	watches := slices.Clone(r.watches)
	watches[0].cancelled.Store(true)
	watches[2].ending.Store(new(etcdserverpb.WatchResponse))
	s.left.Add(1)
	r.run(&pump.Scratch{})
	slices.Sort(r.ids)
	if !slices.Equal(r.ids, []int64{1, 3}) {
		t.Errorf("sends to %v", r.ids)
	}
	for i, w := range r.watches {
		if w.place != i {
			t.Errorf("watch %d has place %d of %d", w.id, w.place, i)
		}
	}
}

// A reader that has closed its window is not offered to other watches, even if an event has woken
// it for one more turn: watches that join it would get no events.
func TestNoWatchJoinsAReaderWithoutWindow(t *testing.T) {
	s := &stream{readers: make(map[readerKind]*reader)}
	r := &reader{s: s, inner: new(router.Watch), ids: []int64{1}}
	r.watches = []*watch{{s: s, id: 1, reader: r}}
	r.run(&pump.Scratch{})
	if s.readers[r.readerKind] != r {
		t.Fatal("a reader that has sent everything is not offered")
	}
	r.giveUp()
	r.run(&pump.Scratch{})
	if len(s.readers) > 0 {
		t.Error("a reader without window is offered")
	}
}

// A reader is offered to other watches only once its stream has a second watch: the map would cost
// half a KiB for each connection.
func TestTheOnlyWatchHasNoMapOfReaders(t *testing.T) {
	s := new(stream)
	r := &reader{s: s, inner: new(router.Watch)}
	r.watches = []*watch{{s: s, reader: r}}
	if r.run(&pump.Scratch{}); s.readers != nil {
		t.Error("the only watch is offered to others")
	}
	s.several.Store(true)
	if r.run(&pump.Scratch{}); s.readers[r.readerKind] != r {
		t.Error("the first of two watches is not offered to the other")
	}
}

// A watch that gets a new reader, after it fell behind the window with others, leaves that reader when it ends.
func TestAWatchLeavesItsNewReader(t *testing.T) {
	s := new(stream)
	w := &watch{s: s, place: 2} // the third watch of its previous reader
	w.reader = &reader{s: s, inner: new(router.Watch), watches: []*watch{w}, ids: []int64{0}}
	w.follow()
	if w.reader.remove(w); len(w.reader.watches) > 0 {
		t.Error("the watch is still in its reader")
	}
}

// A turn of a reader examines a bounded number of batches without events of its watches. It reads all events in
// the next turns.
func TestATurnSkipsABoundedNumberOfBatches(t *testing.T) {
	const batches = 40_000
	h := cachetest.New()
	n := cachetest.NewNode("here", h, func(c *cache.Config) { c.WindowBytes = 1 << 30 })
	defer n.Stop()
	n.Use(cachetest.Map(1, nil, "here"))
	<-n.Replica(1).Ready()
	from := h.Now() + 1
	for i := range batches {
		key := "a"
		if i%500 == 0 {
			key = "b"
		}
		h.Commit(cachetest.Put(key, "1"))
	}
	if err := n.Replica(1).WaitProgress(t.Context(), h.Now()); err != nil {
		t.Fatal(err)
	}
	s := new(stream)
	// The filter drops the events, so that the test needs no stream of a client.
	r := &reader{s: s, readerKind: readerKind{rng: kv.Single("b"), noPut: true}, watches: []*watch{{s: s}}}
	var err error
	shards := router.New(router.Config{Shards: n, Clock: h, Self: "here"})
	if r.inner, err = shards.Watch(t.Context(), router.WatchRequest{Range: r.rng, From: from}, r); err != nil {
		t.Fatal(err)
	}
	defer r.inner.Close()
	turns := 0
	for last := from - 1; r.reached() < h.Now(); turns++ {
		r.run(&pump.Scratch{})
		if n := r.reached() - last; n > passSkipped+2<<10 || n == 0 {
			t.Fatalf("turn %d has examined %d batches", turns, n)
		}
		last = r.reached()
	}
}
