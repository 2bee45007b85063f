package native

import (
	"testing"

	"github.com/shardwatch/shardwatch/internal/router"
)

// A reader that has no watches any more is offered to none to join, even if it has one
// more turn because an event woke it meanwhile: they would get nothing any more.
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

// The only watch of a stream costs no map of readers.
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
