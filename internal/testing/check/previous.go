package check

import "github.com/shardwatch/shardwatch/internal/kv"

// previousValues keeps no state: the history has the previous values.
type previousValues struct{}

func (previousValues) step(h *History, w *Watch, op *Op, out []Violation) []Violation {
	if op.Kind != OpBatch {
		return out
	}
	truth := finder{events: w.events(h, op.Revision)}
	for _, e := range op.Events {
		i, ok := truth.find(e.KV.Key)
		if !ok {
			continue // not an event at all: reliable reports it
		}
		var want *Item
		if w.Prev {
			want = truth.events[i].Prev
		}
		if op.Forgetful && e.Prev == nil {
			continue
		}
		if (want == nil) != (e.Prev == nil) || (want != nil && *want != *e.Prev) {
			out = append(out, Violation{
				Promise: PromisePrevious, Watcher: w.Name, Revision: op.Revision, Key: e.KV.Key,
				Expected: previous(want), Got: previous(e.Prev),
			})
		}
	}
	return out
}

func (previousValues) finish(_ *History, _ *Watch, _ kv.Revision, out []Violation) []Violation {
	return out
}

func previous(i *Item) string {
	if i == nil {
		return "no previous value"
	}
	return "previous value " + i.String()
}
