package check

import "github.com/shardwatch/shardwatch/internal/kv"

// promise judges one watcher by one promise, one Op at a time. It receives an
// Op only when the history has reached the Op's revision.
type promise interface {
	// step judges the next Op and appends violations to out.
	step(h *History, w *Watch, op *Op, out []Violation) []Violation
	// finish judges whether everything up to the revision until was delivered. Further steps may
	// follow.
	finish(h *History, w *Watch, until kv.Revision, out []Violation) []Violation
}

// promises returns a new judge for each promise.
func promises() []promise {
	return []promise{
		&ordered{}, &unique{}, &reliable{}, &atomic{}, &resumable{}, &bookmarkable{},
		&previousValues{}, &filtered{}, &exactStates{}, &exactDeltas{},
	}
}

// Watches judges one watcher by every promise.
func Watches(h *History, s Seen) []Violation { return judge(h, s, promises()...) }

// Ordered: revisions never go back, and the events of one come in etcd's
// order, unless the watch is [Watch.Merged].
func Ordered(h *History, s Seen) []Violation { return judge(h, s, &ordered{}) }

// Unique: no event comes twice.
func Unique(h *History, s Seen) []Violation { return judge(h, s, &unique{}) }

// Reliable: no event is missing between the start and the newest event, or s.Until, and each event
// matches the history.
func Reliable(h *History, s Seen) []Violation { return judge(h, s, &reliable{}) }

// Atomic: all events of a revision come at once, in one batch.
func Atomic(h *History, s Seen) []Violation { return judge(h, s, &atomic{}) }

// Resumable: after a break the watch resumes with the first event it had not
// delivered.
func Resumable(h *History, s Seen) []Violation { return judge(h, s, &resumable{}) }

// Bookmarkable: when progress reports R, all events up to R have been delivered,
// and none of them comes later.
func Bookmarkable(h *History, s Seen) []Violation { return judge(h, s, &bookmarkable{}) }

// PreviousValues: a watch that asked for previous values gets each event with the
// key as it was before, or without a previous value if the key did not exist.
func PreviousValues(h *History, s Seen) []Violation { return judge(h, s, &previousValues{}) }

// Filtered: every event is in the requested range and of a requested type.
func Filtered(h *History, s Seen) []Violation { return judge(h, s, &filtered{}) }

// ExactStates: a state is that of its revision, whole.
func ExactStates(h *History, s Seen) []Violation { return judge(h, s, &exactStates{}) }

// ExactDeltas: a delta turns the state at its start into the state at its end.
func ExactDeltas(h *History, s Seen) []Violation { return judge(h, s, &exactDeltas{}) }

func judge(h *History, s Seen, ps ...promise) []Violation {
	var out []Violation
	for _, p := range ps {
		for i := range s.Ops {
			out = p.step(h, &s.Watch, &s.Ops[i], out)
		}
		if s.Until > 0 {
			out = p.finish(h, &s.Watch, s.Until, out)
		}
	}
	return out
}
