package etcdwatch

import (
	"slices"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/shardwatch/shardwatch/internal/edge/pump"
	"github.com/shardwatch/shardwatch/internal/router"
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
