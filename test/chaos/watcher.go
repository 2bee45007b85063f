package chaos

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/check"
)

// watcher is one watch of a client, judged while it runs. Its client passes each update to it: see
// native.go, clientv3.go and stream.go.
type watcher struct {
	wish  wish
	truth *truth
	gate  *gate

	mu       sync.Mutex
	era      *era              // guarded by mu; the history that it watches
	earlier  []check.Violation // guarded by mu; of earlier eras
	more     int               // guarded by mu; violations beyond these
	checker  *check.Checker    // guarded by mu
	started  bool              // guarded by mu; the start of a watch from now is known
	resumes  []resume          // guarded by mu; not passed to the checker yet
	moved    int               // guarded by mu; resumes since the window began
	gap      time.Duration     // guarded by mu; longest delay since the window began
	gapAt    kv.Revision       // guarded by mu; the revision of that delay
	reasons  []string          // guarded by mu; why it moved since the window began
	events   int               // guarded by mu; since the window began
	blamed   []check.Violation // guarded by mu; found without the checker
	err      error             // guarded by mu; why the watch ended
	catchUps catchUps          // guarded by mu; since the window began
	leave    func()            // guarded by mu; restarts the watch; nil: it cannot
	asleep   bool              // guarded by mu; it stopped reading in this window
}

// catchUps counts how often a watcher caught up without a replay of events.
type catchUps struct {
	// Deltas and Resyncs are units of the native API. Relists are states that a client read after
	// its watch had ended.
	Deltas  int `json:"deltas"`
	Resyncs int `json:"resyncs"`
	Relists int `json:"relists"`
}

func (r *catchUps) add(o catchUps) {
	r.Deltas += o.Deltas
	r.Resyncs += o.Resyncs
	r.Relists += o.Relists
}

func newWatcher(w wish, t *truth) *watcher {
	return &watcher{wish: w, truth: t, era: t.now.Load(), checker: check.NewChecker(w.watch)}
}

// behind reports whether etcd was restored and the watcher has not noticed.
func (w *watcher) behind() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.era != w.truth.now.Load()
}

// noticed marks the start of another history, to which later updates belong. It must begin with the
// state.
func (w *watcher) noticed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.truth.now.Load()
	if now == w.era {
		const most = 20
		if len(w.blamed) < most {
			w.blamed = append(w.blamed, check.Violation{
				Promise: promiseLineage, Watcher: w.wish.watch.Name, Expected: "etcd's history to be the same", Got: "a new lineage",
			})
		}
		return
	}
	w.checker.Judge(w.era.history)
	first, all := w.checker.Violations()
	w.earlier = append(w.earlier, first...)
	w.more += all - len(first)
	watch := w.wish.watch
	watch.Start = 0
	w.era, w.checker, w.started, w.resumes = now, check.NewChecker(watch), false, nil
}

// promiseLineage: watches get no events of an ended history, and notice the new one.
const promiseLineage check.Promise = "lineage"

// resume is the resume of a watch, on another node or on the same one.
type resume struct {
	from, to string
	reason   error
	// behind is the position: the watch had everything up to it. 0: unknown.
	behind int64
	// wanted: the previous node had no fault.
	wanted bool
}

// resumed may be called before the updates before the resume are judged.
func (w *watcher) resumed(r resume) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resumes = append(w.resumes, r)
	if !r.wanted {
		w.moved++
	}
	w.reasons = append(w.reasons, fmt.Sprintf("%s → %s: %v", r.from, r.to, r.reason))
}

// ended records the permanent end of the watch.
func (w *watcher) ended(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
	w.checker.Feed(check.Op{Kind: check.OpEnded})
}

// blame records a violation found without the history.
func (w *watcher) blame(p check.Promise, rev int64, expected, got string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	const most = 20
	if len(w.blamed) < most {
		w.blamed = append(w.blamed, check.Violation{
			Promise: p, Watcher: w.wish.watch.Name, Revision: kv.Revision(rev), Expected: expected, Got: got,
		})
	}
}

// saw judges an update of the client.
func (w *watcher) saw(op check.Op, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	// The watch resumed after a position: the resume belongs between the updates there.
	for len(w.resumes) > 0 && kv.Revision(w.resumes[0].behind) < op.Revision {
		r := check.Op{Kind: check.OpResumed, Node: w.resumes[0].to}
		if w.resumes[0].behind > 0 {
			r.Revision = kv.Revision(w.resumes[0].behind + 1)
		}
		w.checker.Feed(r)
		w.resumes = w.resumes[1:]
	}
	w.started = true
	w.checker.Feed(op)
	switch op.Kind {
	case check.OpBatch:
		w.events += len(op.Events)
		w.late(op.Revision, now)
	case check.OpDelta:
		w.events += len(op.Items) + len(op.Deleted)
		if w.wish.conflate == 0 { // it was not requested
			w.catchUps.Deltas++
			if missed := w.era.history.Touching(w.wish.watch.Range, op.From, op.Revision); len(missed) > 0 {
				w.late(missed[0], now)
			}
		}
	}
}

// late records the delay of a revision.
func (w *watcher) late(rev kv.Revision, now time.Time) {
	if heard, ok := w.era.when(rev); ok && now.Sub(heard) > w.gap {
		w.gap, w.gapAt = now.Sub(heard), rev
	}
}

// resynced records a whole state that the node had to send.
func (w *watcher) resynced() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.catchUps.Resyncs++
}

// relisted records that the client had to read the state again.
func (w *watcher) relisted(why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.catchUps.Relists++
	w.reasons = append(w.reasons, fmt.Sprintf("relisted: %v", why))
}

// slept records that the watcher did not read, so that its delays are meaningless.
func (w *watcher) slept() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asleep = true
}

// judge judges the updates up to the history's head.
func (w *watcher) judge() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checker.Judge(w.era.history)
}

// complete returns nil if the watcher has everything up to rev, and otherwise an error with its
// position.
func (w *watcher) complete(rev kv.Revision) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return fmt.Errorf("%s ended: %w", w.wish.watch.Name, w.err)
	}
	if w.era != w.truth.now.Load() {
		return fmt.Errorf("%s has not noticed that etcd was restored", w.wish.watch.Name)
	}
	if !w.started && (w.wish.start != fromRevision || w.era.number > 0) {
		return fmt.Errorf("%s has not started", w.wish.watch.Name)
	}
	if !w.checker.Complete(w.era.history, rev) {
		return fmt.Errorf("%s is at revision %d of %d, and its moves were: %q", w.wish.watch.Name, w.checker.Reached(), rev, w.reasons)
	}
	return nil
}

// finish judges that the watcher has everything up to rev, and all its other updates. If it has
// more than the truth, finish returns false, unless must is set: then the surplus is wrong.
func (w *watcher) finish(rev kv.Revision, must bool) (done bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !must && w.checker.Reached() > w.era.history.Head() {
		return false
	}
	w.checker.Finish(w.era.history, rev)
	return true
}

// window has the measurements of a watcher since the last call.
type window struct {
	gap      time.Duration
	gapAt    kv.Revision
	moved    bool
	asleep   bool
	reasons  []string
	events   int
	catchUps catchUps
}

// take returns the measurements and resets them.
func (w *watcher) take() window {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := window{gap: w.gap, gapAt: w.gapAt, moved: w.moved > 0, asleep: w.asleep || w.wish.conflate > 0, reasons: w.reasons, events: w.events, catchUps: w.catchUps}
	w.gap, w.gapAt, w.moved, w.asleep, w.reasons, w.events, w.catchUps = 0, 0, 0, false, nil, 0, catchUps{}
	return out
}

// violations returns the first violations, and how many there were.
func (w *watcher) violations() ([]check.Violation, int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	first, all := w.checker.Violations()
	return slices.Concat(w.blamed, w.earlier, first), all + len(w.blamed) + len(w.earlier) + w.more
}
