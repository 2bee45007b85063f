package check

import (
	"fmt"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// Read is an answer to a list or a get.
type Read struct {
	// Name describes the reader and its request, for people.
	Name  string
	Range kv.Range
	// Revision is the revision that the answer reports.
	Revision kv.Revision
	// Items are the keys of the answer, in any order; all keys of the range
	// unless Limit is set.
	Items []Item
	// Limit: the answer has the first so many keys of the range; 0: all.
	Limit int
	// At is the exact requested revision; 0: none.
	At kv.Revision
	// NotBefore is the oldest revision that the answer may be taken at: of a
	// linearizable read the newest write acknowledged before it began, of
	// another the newest of max_staleness ago.
	NotBefore kv.Revision
	// Linearizable: the read had to see every acknowledged write.
	Linearizable bool
}

// Check judges the answer. The history must have reached r.Revision.
func (r Read) Check(h *History) []Violation {
	var out []Violation
	if r.Revision < r.NotBefore {
		p := PromiseFresh
		if r.Linearizable {
			p = PromiseLinearizable
		}
		out = append(out, Violation{
			Promise: p, Watcher: r.Name, Revision: r.Revision,
			Expected: fmt.Sprintf("revision %d or newer", r.NotBefore), Got: fmt.Sprintf("revision %d", r.Revision),
		})
	}
	if r.At > 0 && r.Revision != r.At {
		out = append(out, Violation{
			Promise: PromiseExact, Watcher: r.Name, Revision: r.Revision,
			Expected: fmt.Sprintf("revision %d, as asked", r.At), Got: fmt.Sprintf("revision %d", r.Revision),
		})
	}
	if head := h.Head(); r.Revision > head {
		return append(out, Violation{
			Promise: PromiseExact, Watcher: r.Name, Revision: r.Revision,
			Expected: fmt.Sprintf("at most etcd's own revision, %d", head), Got: "an answer from the future",
		})
	}
	want := h.State(r.Range, r.Revision)
	if r.Limit > 0 && len(want) > r.Limit {
		want = want[:r.Limit]
	}
	return append(out, diff(PromiseExact, r.Name, r.Revision, want, r.Items)...)
}
