package chaos

import (
	"fmt"
	"sync"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/check"
)

// answer is the answer to a read.
type answer struct {
	check.Read
	api string
	// countOnly: the answer has the number of keys, not the keys.
	countOnly bool
	// counted: the answer has the total number of keys in the range and whether more follow.
	counted bool
	count   int64
	more    bool
	// now is etcd's revision in the answer to a read at an exact revision; notBefore is the oldest
	// permitted one.
	now, notBefore kv.Revision
}

// check judges the answer. The history must have reached its revision. A read at an exact revision
// before the start of the history is not judged: after a restore, etcd still has these revisions,
// and the history does not.
func (a *answer) check(h *check.History) []check.Violation {
	r := a.Read
	if r.At > 0 && r.At < h.Base() {
		return nil
	}
	if !a.counted {
		return r.Check(h)
	}
	all := h.State(r.Range, r.Revision)
	if a.countOnly {
		r.Items = all // the client requested none
	}
	out := r.Check(h)
	wrong := func(expected, got any) {
		out = append(out, check.Violation{
			Promise: check.PromiseExact, Watcher: r.Name, Revision: r.Revision, Expected: fmt.Sprint(expected), Got: fmt.Sprint(got),
		})
	}
	if r.Revision > h.Head() {
		return out
	}
	if a.At > 0 && (a.now < a.notBefore || a.now > h.Head()) {
		wrong(fmt.Sprintf("a header of revision %d to %d", a.notBefore, h.Head()), a.now)
	}
	if int64(len(all)) != a.count {
		wrong(fmt.Sprintf("a count of %d", len(all)), a.count)
	}
	if more := !a.countOnly && r.Limit > 0 && len(all) > r.Limit; more != a.more {
		wrong(fmt.Sprintf("more: %v", more), a.more)
	}
	return out
}

// answers collects the reads of a cycle.
type answers struct {
	mu      sync.Mutex
	reads   []answer                  // guarded by mu
	muted   bool                      // guarded by mu
	refused map[string]map[string]int // guarded by mu; by API and error, for the report
}

func (a *answers) add(r answer, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.muted {
		return
	}
	if err == nil {
		a.reads = append(a.reads, r)
		return
	}
	if a.refused == nil {
		a.refused = map[string]map[string]int{}
	}
	if a.refused[r.api] == nil {
		a.refused[r.api] = map[string]int{}
	}
	a.refused[r.api][err.Error()]++
}

// mute ignores answers until it is switched off: the right answers are unknown while etcd has
// another history and some nodes have not noticed it.
func (a *answers) mute(on bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.muted = on
}

// newest returns the newest revision that an answer names.
func (a *answers) newest() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	newest := kv.Revision(0)
	for _, r := range a.reads {
		newest = max(newest, r.Revision, r.now)
	}
	return int64(newest)
}

// judged has the results of the reads by one API.
type judged struct {
	reads   int
	refused map[string]int // by error
	broken  []check.Violation
}

// judge checks all answers against the history and forgets them.
func (a *answers) judge(h *check.History) map[string]*judged {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[string]*judged{}
	of := func(api string) *judged {
		if out[api] == nil {
			out[api] = &judged{}
		}
		return out[api]
	}
	for _, r := range a.reads {
		j := of(r.api)
		j.reads++
		j.broken = append(j.broken, r.check(h)...)
	}
	for api, errs := range a.refused {
		of(api).refused = errs
	}
	a.reads, a.refused = nil, nil
	return out
}
