package check

import "github.com/shardwatch/shardwatch/internal/kv"

// Checker judges one watcher by every promise while it runs, and keeps only the operations that
// the history has not reached yet.
type Checker struct {
	watch    Watch
	promises []promise
	pending  []Op
	// Events judged so far.
	events int
	reach  kv.Revision
	ended  bool
	broken []Violation
	more   int // the number of violations that broken does not hold
}

// maxViolations bounds the violations that a Checker keeps.
const maxViolations = 20

// NewChecker returns a checker for one watcher.
func NewChecker(w Watch) *Checker { return &Checker{watch: w, promises: promises()} }

// Watch returns the watcher's request.
func (c *Checker) Watch() Watch { return c.watch }

// Feed adds the next observation of the watcher. The checker keeps the values
// that op points to until it has judged it.
func (c *Checker) Feed(op Op) {
	switch op.Kind {
	case OpBatch, OpProgress, OpState, OpDelta:
		c.reach = max(c.reach, op.Revision)
	case OpCreated:
		if c.watch.Start == 0 {
			c.reach = max(c.reach, op.Revision)
		}
	case OpEnded:
		c.ended = true
	}
	c.pending = append(c.pending, op)
}

// Judge judges all fed operations within the history, in order.
func (c *Checker) Judge(h *History) { c.judgeUpTo(h, h.Head()) }

func (c *Checker) judgeUpTo(h *History, head kv.Revision) {
	n := 0
	for n < len(c.pending) && c.pending[n].Revision <= head {
		op := &c.pending[n]
		var out []Violation
		for _, p := range c.promises {
			out = p.step(h, &c.watch, op, out)
		}
		c.keep(out)
		switch op.Kind {
		case OpBatch:
			c.events += len(op.Events)
		case OpDelta:
			c.events += len(op.Items) + len(op.Deleted)
		}
		n++
	}
	rest := copy(c.pending, c.pending[n:])
	clear(c.pending[rest:])
	c.pending = c.pending[:rest]
	if rest == 0 && cap(c.pending) > 1024 {
		c.pending = nil
	}
}

// Finish judges the remaining operations, and that the watcher has everything up to
// until. The history must have reached until and every revision that the watcher can
// have seen. Further operations may be fed afterwards.
func (c *Checker) Finish(h *History, until kv.Revision) {
	c.judgeUpTo(h, 1<<62) // operations beyond the history are wrong now
	var out []Violation
	for _, p := range c.promises {
		out = p.finish(h, &c.watch, until, out)
	}
	c.keep(out)
}

func (c *Checker) keep(out []Violation) {
	room := min(len(out), maxViolations-len(c.broken))
	c.broken = append(c.broken, out[:room]...)
	c.more += len(out) - room
}

// Reached returns the newest revision that was reported to the watcher.
func (c *Checker) Reached() kv.Revision { return c.reach }

// Complete reports whether the watcher has all events in its range up to until.
// The history must have reached until.
func (c *Checker) Complete(h *History, until kv.Revision) bool {
	if c.reach >= until {
		return true
	}
	return len(c.watch.touching(h, max(c.reach, c.watch.Start-1), until)) == 0
}

// Ended reports whether the watch has ended.
func (c *Checker) Ended() bool { return c.ended }

// Events returns how many events have been judged.
func (c *Checker) Events() int { return c.events }

// Violations returns the first violations, and how many there were in all.
func (c *Checker) Violations() (first []Violation, all int) {
	return c.broken, len(c.broken) + c.more
}
