package check

import (
	"fmt"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// ordered needs only the newest delivered revision.
type ordered struct{ newest kv.Revision }

func (o *ordered) step(h *History, w *Watch, op *Op, out []Violation) []Violation {
	if op.Kind != OpBatch {
		return out
	}
	if op.Revision < o.newest {
		out = append(out, Violation{
			Promise: PromiseOrdered, Watcher: w.Name, Revision: op.Revision, Key: firstKey(op.Events),
			Expected: fmt.Sprintf("a revision above %d", o.newest), Got: fmt.Sprintf("revision %d behind it", op.Revision),
		})
	}
	o.newest = max(o.newest, op.Revision)
	if len(op.Events) > 1 && !w.Merged {
		out = o.within(h, w, op, out)
	}
	return out
}

// within compares the order of the events of one batch with etcd's.
func (o *ordered) within(h *History, w *Watch, op *Op, out []Violation) []Violation {
	truth := finder{events: w.events(h, op.Revision)}
	last := -1
	for i := range op.Events {
		at, ok := truth.find(op.Events[i].KV.Key)
		if !ok {
			continue
		}
		if at < last {
			return append(out, Violation{
				Promise: PromiseOrdered, Watcher: w.Name, Revision: op.Revision, Key: op.Events[i].KV.Key,
				Expected: "etcd's order " + keysOf(truth.events), Got: keysOf(op.Events),
			})
		}
		last = at
	}
	return out
}

func (o *ordered) finish(_ *History, _ *Watch, _ kv.Revision, out []Violation) []Violation {
	return out
}

func firstKey(events []Event) string {
	if len(events) == 0 {
		return ""
	}
	return events[0].KV.Key
}
