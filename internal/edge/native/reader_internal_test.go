package native

import (
	"testing"

	"github.com/shardwatch/shardwatch/internal/router"
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
