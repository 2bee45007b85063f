package check

import (
	"fmt"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// bookmarkable compares each progress revision with the events before and after it. A created
// watch and a state promise the same as progress: all events up to here are delivered.
type bookmarkable struct {
	pos    position    // delivered, or reported as progress
	marked kv.Revision // reported as progress
}

func (b *bookmarkable) step(h *History, w *Watch, op *Op, out []Violation) []Violation {
	if !b.pos.start(w, op) {
		return out
	}
	switch op.Kind {
	case OpProgress, OpCreated:
		if op.Kind == OpProgress && op.Revision > h.Head() {
			out = append(out, Violation{
				Promise: PromiseBookmarkable, Watcher: w.Name, Revision: op.Revision,
				Expected: fmt.Sprintf("at most etcd's own revision, %d", h.Head()), Got: "progress",
			})
		}
		// A watch that starts in the future has no event yet.
		if upTo := op.Revision; op.Kind == OpProgress || w.Start == 0 || upTo >= w.Start {
			out = missing(PromiseBookmarkable, h, w, b.pos.rev, upTo, fmt.Sprintf("%s %d before it", op.Kind, op.Revision), out)
			b.pos.moveTo(upTo)
			b.marked = max(b.marked, upTo)
		}
	case OpState, OpDelta:
		b.pos.moveTo(op.Revision)
		b.marked = max(b.marked, op.Revision)
	case OpBatch:
		if op.Revision <= b.marked {
			out = append(out, Violation{
				Promise: PromiseBookmarkable, Watcher: w.Name, Revision: op.Revision, Key: firstKey(op.Events),
				Expected: fmt.Sprintf("nothing up to %d any more", b.marked), Got: "an event",
			})
		}
		b.pos.moveTo(op.Revision)
	}
	return out
}

func (b *bookmarkable) finish(_ *History, _ *Watch, _ kv.Revision, out []Violation) []Violation {
	return out
}
