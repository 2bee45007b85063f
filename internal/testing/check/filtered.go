package check

import (
	"fmt"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// filtered needs no memory: it compares each event with the request.
type filtered struct{}

func (filtered) step(_ *History, w *Watch, op *Op, out []Violation) []Violation {
	if op.Kind != OpBatch {
		return out
	}
	if op.Revision < w.Start {
		out = append(out, Violation{
			Promise: PromiseFiltered, Watcher: w.Name, Revision: op.Revision, Key: firstKey(op.Events),
			Expected: fmt.Sprintf("revisions from %d on", w.Start), Got: "an older one",
		})
	}
	for _, e := range op.Events {
		if !w.wants(e.Type) {
			out = append(out, Violation{
				Promise: PromiseFiltered, Watcher: w.Name, Revision: op.Revision, Key: e.KV.Key,
				Expected: "the types of events asked for", Got: e.String(),
			})
		}
		if !w.Range.Contains(e.KV.Key) {
			out = append(out, Violation{
				Promise: PromiseFiltered, Watcher: w.Name, Revision: op.Revision, Key: e.KV.Key,
				Expected: "keys of " + w.Range.String(), Got: e.String(),
			})
		}
	}
	return out
}

func (filtered) finish(_ *History, _ *Watch, _ kv.Revision, out []Violation) []Violation {
	return out
}
