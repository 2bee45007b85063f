package check

import (
	"fmt"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// atomic needs no memory: each batch must be whole on its own.
type atomic struct{}

func (a *atomic) step(h *History, w *Watch, op *Op, out []Violation) []Violation {
	if op.Kind != OpBatch {
		return out
	}
	for _, e := range op.Events {
		if e.KV.Mod != op.Revision {
			out = append(out, Violation{
				Promise: PromiseAtomic, Watcher: w.Name, Revision: op.Revision, Key: e.KV.Key,
				Expected: "events of one revision", Got: e.String(),
			})
		}
	}
	truth := finder{events: w.events(h, op.Revision)}
	found := make([]bool, len(truth.events))
	n := 0
	for _, e := range op.Events {
		if i, ok := truth.find(e.KV.Key); ok && !found[i] {
			found[i] = true
			n++
		}
	}
	if n > 0 && n < len(found) {
		out = append(out, Violation{
			Promise: PromiseAtomic, Watcher: w.Name, Revision: op.Revision, Key: firstKey(op.Events),
			Expected: fmt.Sprintf("all %d events at once: %s", len(found), keysOf(truth.events)),
			Got:      fmt.Sprintf("%d: %s", n, keysOf(op.Events)),
		})
	}
	return out
}

func (a *atomic) finish(_ *History, _ *Watch, _ kv.Revision, out []Violation) []Violation {
	return out
}
