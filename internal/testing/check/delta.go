package check

import (
	"fmt"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// exactDeltas needs no memory: a delta carries its start revision.
type exactDeltas struct{}

func (exactDeltas) step(h *History, w *Watch, op *Op, out []Violation) []Violation {
	if op.Kind != OpDelta {
		return out
	}
	wrong := func(key, expected, got string) {
		out = append(out, Violation{Promise: PromiseDelta, Watcher: w.Name, Revision: op.Revision, Key: key, Expected: expected, Got: got})
	}
	if op.From > op.Revision || op.Revision > h.Head() {
		wrong("", fmt.Sprintf("a unit that ends between its start and etcd's own revision, %d", h.Head()), fmt.Sprintf("one from %d to %d", op.From, op.Revision))
		return out
	}
	now := map[string]Item{}
	for _, i := range h.State(w.Range, op.From) {
		now[i.Key] = i
	}
	seen := make(map[string]bool, len(op.Items)+len(op.Deleted))
	once := func(key string) {
		if seen[key] {
			wrong(key, "each key once in a delta", "it again")
		}
		seen[key] = true
		if !w.Range.Contains(key) {
			wrong(key, "keys of "+w.Range.String(), "another one")
		}
	}
	for _, i := range op.Items {
		once(i.Key)
		now[i.Key] = i
	}
	for _, key := range op.Deleted {
		once(key)
		delete(now, key)
	}
	made := make([]Item, 0, len(now))
	for _, i := range now {
		made = append(made, i)
	}
	return append(out, diff(PromiseDelta, fmt.Sprintf("%s, a delta from %d", w.Name, op.From), op.Revision, h.State(w.Range, op.Revision), made)...)
}

func (exactDeltas) finish(_ *History, _ *Watch, _ kv.Revision, out []Violation) []Violation {
	return out
}
