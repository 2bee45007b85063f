package chaos

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/internal/check"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// watcher is one watch of a client, judged as it goes.
type watcher struct {
	wish  wish
	truth *truth

	mu      sync.Mutex
	checker *check.Checker  // guarded by mu
	started bool            // guarded by mu; a start from now is known
	resumes []client.Resume // guarded by mu; not fed to the checker yet
	moved   int             // guarded by mu; resumes since the window began
	gap     time.Duration   // guarded by mu; longest since the window began
	gapAt   kv.Revision     // guarded by mu; the revision that was so late
	reasons []string        // guarded by mu; why it moved since the window began
	events  int             // guarded by mu; since the window began
	err     error           // guarded by mu; why the watch ended
}

func newWatcher(w wish, t *truth) *watcher {
	return &watcher{wish: w, truth: t, checker: check.NewChecker(w.watch)}
}

// run watches until ctx ends.
func (w *watcher) run(ctx context.Context, c *client.Client) {
	opts := []client.WatchOption{client.WithProgress(), client.OnResume(w.resumed)}
	switch w.wish.start {
	case fromRevision:
		opts = append(opts, client.FromRevision(int64(w.wish.watch.Start)))
	case stateFirst:
		opts = append(opts, client.WithState())
	}
	if w.wish.watch.Prev {
		opts = append(opts, client.WithPrevKV())
	}
	r := w.wish.watch.Range
	cw := c.Watch(ctx, client.Between(r.Start, r.End), opts...)
	defer cw.Close()
	for {
		u, err := cw.Next(ctx)
		if err != nil {
			if ctx.Err() == nil {
				w.ended(err)
			}
			return
		}
		w.saw(u, time.Now())
	}
}

// resumed is called by the client, which may be ahead of the consumer.
func (w *watcher) resumed(r client.Resume) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resumes = append(w.resumes, r)
	w.moved++
	w.reasons = append(w.reasons, fmt.Sprintf("%s → %s: %v", r.From, r.To, r.Reason))
}

func (w *watcher) ended(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
	w.checker.Feed(check.Op{Kind: check.OpEnded})
}

// saw takes what the client delivered.
func (w *watcher) saw(u client.Update, now time.Time) {
	op := check.Op{Revision: kv.Revision(u.Revision)}
	switch u.Kind {
	case client.KindBatch:
		op.Kind, op.Events = check.OpBatch, eventsFrom(u.Events)
	case client.KindState:
		op.Kind, op.Items = check.OpState, itemsFrom(u.KVs)
	case client.KindProgress:
		op.Kind = check.OpProgress
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	// The watch went on elsewhere behind a position: that is where the break
	// belongs in what the consumer sees.
	for len(w.resumes) > 0 && w.resumes[0].Revision < u.Revision {
		w.checker.Feed(check.Op{Kind: check.OpResumed, Revision: kv.Revision(w.resumes[0].Revision + 1), Node: w.resumes[0].To})
		w.resumes = w.resumes[1:]
	}
	if w.wish.start == fromNow && !w.started && op.Kind == check.OpProgress {
		op.Kind = check.OpCreated // the client says so where the watch starts
	}
	w.started = true
	w.checker.Feed(op)
	if op.Kind == check.OpBatch {
		w.events += len(op.Events)
		if heard, ok := w.truth.when(op.Revision); ok && now.Sub(heard) > w.gap {
			w.gap, w.gapAt = now.Sub(heard), op.Revision
		}
	}
}

// judge judges what the history has reached.
func (w *watcher) judge() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checker.Judge(w.truth.history)
}

// complete returns nil when the watcher has everything up to rev, and else
// where it is.
func (w *watcher) complete(rev kv.Revision) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return fmt.Errorf("%s ended: %w", w.wish.watch.Name, w.err)
	}
	if !w.started && w.wish.start != fromRevision {
		return fmt.Errorf("%s has not started", w.wish.watch.Name)
	}
	if !w.checker.Complete(w.truth.history, rev) {
		return fmt.Errorf("%s is at revision %d of %d", w.wish.watch.Name, w.checker.Reached(), rev)
	}
	return nil
}

// finish judges that the watcher has everything up to rev.
func (w *watcher) finish(rev kv.Revision) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checker.Finish(w.truth.history, rev)
}

// window is what a watcher measured since the last call.
type window struct {
	gap     time.Duration
	gapAt   kv.Revision
	moved   bool
	reasons []string
	events  int
}

// take returns what was measured and begins anew.
func (w *watcher) take() window {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := window{gap: w.gap, gapAt: w.gapAt, moved: w.moved > 0, reasons: w.reasons, events: w.events}
	w.gap, w.gapAt, w.moved, w.reasons, w.events = 0, 0, 0, nil, 0
	return out
}

// violations returns the first violations, and how many there were.
func (w *watcher) violations() ([]check.Violation, int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.checker.Violations()
}

func itemFrom(k *client.KeyValue) check.Item {
	return check.Item{
		Key: string(k.Key), Value: check.HashValue(k.Value),
		Create: kv.Revision(k.CreateRevision), Mod: kv.Revision(k.ModRevision), Version: k.Version, Lease: k.Lease,
	}
}

func itemsFrom(kvs []client.KeyValue) []check.Item {
	out := make([]check.Item, len(kvs))
	for i := range kvs {
		out[i] = itemFrom(&kvs[i])
	}
	return out
}

func eventsFrom(events []client.Event) []check.Event {
	out := make([]check.Event, len(events))
	for i := range events {
		e := &events[i]
		if e.Type == client.Delete {
			out[i] = check.Delete(string(e.KV.Key), kv.Revision(e.KV.ModRevision))
		} else {
			out[i] = check.Put(itemFrom(&e.KV))
		}
		if e.Prev != nil {
			p := itemFrom(e.Prev)
			out[i].Prev = &p
		}
	}
	return out
}
