package check

import (
	"fmt"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// resumable records the position of the watcher at a break, and waits for the
// first event after the break.
type resumable struct {
	pos    position
	broken bool
	where  string // "on node b from revision 8"
}

func (r *resumable) step(h *History, w *Watch, op *Op, out []Violation) []Violation {
	if !r.pos.start(w, op) {
		return out
	}
	switch op.Kind {
	case OpResumed:
		r.broken = true
		r.where = fmt.Sprintf("resumed on node %q from %d", op.Node, op.Revision)
		if op.Revision > 0 {
			out = missing(PromiseResumable, h, w, r.pos.rev, op.Revision-1, r.where, out)
		}
	case OpBatch:
		if r.broken {
			out = r.first(h, w, op, out)
			r.broken = false
		}
		r.pos.moveTo(op.Revision)
	case OpProgress, OpState, OpDelta:
		r.pos.moveTo(op.Revision)
	}
	return out
}

// first judges the first batch after a break.
func (r *resumable) first(h *History, w *Watch, op *Op, out []Violation) []Violation {
	v := Violation{
		Promise: PromiseResumable, Watcher: w.Name, Revision: op.Revision, Key: firstKey(op.Events),
		Got: fmt.Sprintf("revision %d (%s)", op.Revision, r.where),
	}
	if op.Revision <= r.pos.rev {
		v.Expected = fmt.Sprintf("a revision above %d, which was delivered before", r.pos.rev)
		return append(out, v)
	}
	if skipped := w.touching(h, r.pos.rev, op.Revision-1); len(skipped) > 0 {
		v.Expected = fmt.Sprintf("to resume with revision %d after %d", skipped[0], r.pos.rev)
		return append(out, v)
	}
	return out
}

func (r *resumable) finish(h *History, w *Watch, until kv.Revision, out []Violation) []Violation {
	if r.broken {
		out = missing(PromiseResumable, h, w, r.pos.rev, until, r.where+", and nothing came", out)
	}
	return out
}
