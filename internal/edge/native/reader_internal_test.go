package native

import (
	"testing"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
)

// A reader without watches is not offered to others, even if an event has woken it for one
// more turn: watches that join it would get no events.
func TestNoWatchJoinsAReaderWithoutWindow(t *testing.T) {
	s := &stream{}
	s.several.Store(true)
	r := &reader{s: s, Watch: new(router.Watch), ids: []int64{1}}
	w := &watch{s: s, id: 1, inner: r, phase: live}
	r.watches = []*watch{w}
	r.join()
	if s.crowd.readers[r.readerKind] != r {
		t.Fatal("a reader that has sent everything is not offered")
	}
	w.close()
	r.join()
	if len(s.crowd.readers) > 0 {
		t.Error("a reader without window is offered")
	}
}

// A stream with a single watch has no map of readers.
func TestTheOnlyWatchHasNoMapOfReaders(t *testing.T) {
	s := &stream{}
	r := &reader{s: s, Watch: new(router.Watch), ids: []int64{1}}
	r.watches = []*watch{{s: s, id: 1, inner: r, phase: live}}
	if r.join(); s.crowd.readers != nil {
		t.Error("the only watch is offered to others")
	}
	s.several.Store(true)
	if r.join(); s.crowd.readers[r.readerKind] != r {
		t.Error("the first of two watches is not offered to the other")
	}
}

// A watch joins the reader of others only at the same revision. Otherwise it would get events twice, or miss some.
func TestReadersAtDifferentRevisionsStayApart(t *testing.T) {
	h := cachetest.New()
	n := cachetest.NewNode("here", h, nil)
	defer n.Stop()
	n.Use(cachetest.Map(1, nil, "here"))
	<-n.Replica(1).Ready()
	shards := router.New(router.Config{Shards: n, Clock: h, Self: "here"})
	s := new(stream)
	s.several.Store(true)
	at := func(from kv.Revision) *watch {
		inner, err := shards.Watch(t.Context(), router.WatchRequest{Range: kv.Single("a"), From: from}, silent{})
		if err != nil {
			t.Fatal(err)
		}
		w := &watch{s: s, phase: live}
		w.inner = &reader{s: s, Watch: inner, watches: []*watch{w}, ids: []int64{0}}
		return w
	}
	now := h.Now()
	first, higher, same := at(now+1), at(now+2), at(now+2)
	for _, w := range []*watch{first, higher, same} {
		w.inner.join()
	}
	if first.inner == higher.inner || len(first.inner.watches) != 1 {
		t.Error("readers at different revisions have become one")
	}
	if same.inner != higher.inner || len(higher.inner.watches) != 2 {
		t.Error("readers at the same revision have not become one")
	}
	first.close()
	higher.inner.Close()
}

// A watch that gets a new reader, after it fell behind the window with others, leaves that reader when it ends.
func TestAWatchLeavesItsNewReader(t *testing.T) {
	s := new(stream)
	w := &watch{s: s, id: 3, place: 2, phase: syncing} // the third watch of its previous reader
	r := &reader{s: s, Watch: new(router.Watch), watches: []*watch{w}, ids: []int64{3}}
	w.resync.opened.Store(&opened{inner: r})
	if w.takeOpened(); w.phase != live || w.inner != r {
		t.Fatalf("the watch is in phase %v", w.phase)
	}
	if w.close(); len(r.watches) > 0 {
		t.Error("the watch is still in its reader")
	}
}
