package check

import "github.com/shardwatch/shardwatch/internal/kv"

// unique records the keys delivered at the newest revision. An event of an older
// revision is a repetition too, unless the watcher had skipped it: then it is
// late, which another promise judges.
type unique struct {
	pos     position
	newest  kv.Revision
	keys    map[string]bool      // delivered at newest
	skipped map[kv.Revision]bool // touched the range, passed over
}

func (u *unique) step(h *History, w *Watch, op *Op, out []Violation) []Violation {
	if !u.pos.start(w, op) || op.Kind != OpBatch || op.Revision <= u.pos.rev {
		return out
	}
	u.newest = max(u.newest, u.pos.rev)
	if op.Revision > u.newest {
		for _, rev := range w.touching(h, u.newest, op.Revision-1) {
			if u.skipped == nil {
				u.skipped = map[kv.Revision]bool{}
			}
			u.skipped[rev] = true
		}
		u.newest, u.keys = op.Revision, nil
	}
	back := op.Revision < u.newest && !u.skipped[op.Revision]
	delete(u.skipped, op.Revision)
	keys := u.keys
	if op.Revision < u.newest || keys == nil {
		keys = make(map[string]bool, len(op.Events))
	}
	for _, e := range op.Events {
		if back || keys[e.KV.Key] {
			out = append(out, Violation{
				Promise: PromiseUnique, Watcher: w.Name, Revision: op.Revision, Key: e.KV.Key,
				Expected: "each event once", Got: e.String() + " again",
			})
		}
		keys[e.KV.Key] = true
	}
	if op.Revision == u.newest {
		u.keys = keys
	}
	return out
}

func (u *unique) finish(_ *History, _ *Watch, _ kv.Revision, out []Violation) []Violation {
	return out
}
