package check

import (
	"fmt"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// reliable follows the history along with the watcher. The newest revision stays
// open until the watcher moves on, so that a revision that comes in two parts
// (which breaks another promise) does not count as missing.
type reliable struct {
	pos  position        // everything up to here is judged
	open kv.Revision     // above pos: the revision being delivered; 0: none
	got  map[string]bool // keys delivered at open
}

func (r *reliable) step(h *History, w *Watch, op *Op, out []Violation) []Violation {
	if !r.pos.start(w, op) {
		return out
	}
	switch op.Kind {
	case OpState:
		out = r.close(h, w, out)
		r.pos.moveTo(op.Revision)
	case OpDelta:
		out = r.close(h, w, out)
		out = missing(PromiseReliable, h, w, r.pos.rev, op.From, fmt.Sprintf("a delta from %d", op.From), out)
		r.pos.moveTo(op.Revision)
	case OpBatch:
		if op.Revision > max(r.pos.rev, r.open) {
			out = r.close(h, w, out)
			out = missing(PromiseReliable, h, w, r.pos.rev, op.Revision-1, "moved on to "+fmt.Sprint(op.Revision), out)
			r.pos.moveTo(op.Revision - 1)
			r.open = op.Revision
		}
		out = r.content(h, w, op, out)
	}
	return out
}

// content compares each event with the history.
func (r *reliable) content(h *History, w *Watch, op *Op, out []Violation) []Violation {
	truth := finder{events: w.events(h, op.Revision)}
	for _, e := range op.Events {
		if op.Revision == r.open {
			if r.got == nil {
				r.got = make(map[string]bool, len(op.Events))
			}
			r.got[e.KV.Key] = true
		}
		if !w.Range.Contains(e.KV.Key) || !w.wants(e.Type) {
			continue // another promise judges it
		}
		v := Violation{Promise: PromiseReliable, Watcher: w.Name, Revision: op.Revision, Key: e.KV.Key, Got: e.String()}
		i, ok := truth.find(e.KV.Key)
		switch {
		case !ok:
			v.Expected = "no event: the key did not change at this revision"
			out = append(out, v)
		case !e.same(truth.events[i]):
			v.Expected = truth.events[i].String()
			out = append(out, v)
		}
	}
	return out
}

// close judges the open revision, which the watcher has passed.
func (r *reliable) close(h *History, w *Watch, out []Violation) []Violation {
	if r.open == 0 {
		return out
	}
	for _, e := range w.events(h, r.open) {
		if !r.got[e.KV.Key] {
			out = append(out, Violation{
				Promise: PromiseReliable, Watcher: w.Name, Revision: r.open, Key: e.KV.Key,
				Expected: e.String(), Got: fmt.Sprintf("only %d other events of the revision", len(r.got)),
			})
		}
	}
	r.pos.moveTo(r.open)
	r.open, r.got = 0, nil
	return out
}

func (r *reliable) finish(h *History, w *Watch, until kv.Revision, out []Violation) []Violation {
	if !r.pos.known && w.Start > 0 { // there was no observation
		r.pos = position{rev: w.Start - 1, known: true}
	}
	if !r.pos.known {
		if len(w.touching(h, h.Base(), until)) == 0 {
			return out
		}
		return append(out, Violation{
			Promise: PromiseReliable, Watcher: w.Name, Revision: until,
			Expected: "a watch that has started", Got: "none",
		})
	}
	if r.open <= until {
		out = r.close(h, w, out)
	}
	out = missing(PromiseReliable, h, w, r.pos.rev, until, "nothing more", out)
	r.pos.moveTo(until)
	return out
}

// missing reports the missing events in (after, upTo], the first few one by one.
func missing(p Promise, h *History, w *Watch, after, upTo kv.Revision, got string, out []Violation) []Violation {
	const most = 3
	revs := w.touching(h, after, upTo)
	for i, rev := range revs {
		v := Violation{Promise: p, Watcher: w.Name, Revision: rev, Got: got}
		if i == most {
			v.Expected = fmt.Sprintf("the events of this and %d more revisions up to %d", len(revs)-most-1, upTo)
			return append(out, v)
		}
		events := w.events(h, rev)
		v.Key, v.Expected = firstKey(events), events[0].String()
		out = append(out, v)
	}
	return out
}
