package sim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/check"
)

// Watcher is a client's watch with its observations.
type Watcher struct {
	c     *Cluster
	watch check.Watch
	state bool
	done  chan struct{} // closed when the watch has ended

	mu      sync.Mutex
	ops     []check.Op      // guarded by mu
	reached kv.Revision     // guarded by mu; all events up to it were received
	resumes []client.Resume // guarded by mu; those that the consumer has not yet reached
	moves   []client.Resume // guarded by mu; all
	err     error           // guarded by mu; why the watch ended
}

// WatchRequest is the request of a Watcher.
type WatchRequest struct {
	Range kv.Range
	// From is the first revision; 0: from now on.
	From kv.Revision
	// State asks for the state first.
	State bool
	// Prev asks for previous values.
	Prev bool
}

// String returns the request for people.
func (r WatchRequest) String() string {
	s := r.Range.String()
	if r.From > 0 {
		s += fmt.Sprintf(" from %d", r.From)
	}
	if r.State {
		s += " state first"
	}
	if r.Prev {
		s += " prev"
	}
	return s
}

// Watch watches a prefix from now on, with a new client. It returns once the
// watch has begun.
func (c *Cluster) Watch(prefix string) *Watcher {
	c.t.Helper()
	w := c.WatchBy(c.Client("client"), WatchRequest{Range: kv.Prefix(prefix)})
	w.AwaitStart()
	return w
}

// WatchBy watches with a client. [Cluster.Check] judges every Watcher.
func (c *Cluster) WatchBy(cl *client.Client, r WatchRequest) *Watcher {
	w := &Watcher{
		c: c, state: r.State, done: make(chan struct{}),
		watch: check.Watch{
			Name: fmt.Sprintf("watcher %d of %v", len(c.watchers)+1, r), Range: r.Range, Start: r.From, Prev: r.Prev,
		},
	}
	opts := []client.WatchOption{client.WithProgress(), client.OnResume(w.resumed)}
	if r.From > 0 {
		opts = append(opts, client.FromRevision(int64(r.From)))
	}
	if r.State {
		opts = append(opts, client.WithState())
	}
	if r.Prev {
		opts = append(opts, client.WithPrevKV())
	}
	c.watchers = append(c.watchers, w)
	cw := cl.Watch(context.Background(), client.Between(r.Range.Start, r.Range.End), opts...)
	c.reading.Go(func() {
		defer close(w.done)
		for {
			u, err := cw.Next(context.Background())
			if err != nil {
				w.end(err)
				return
			}
			w.saw(u)
		}
	})
	return w
}

// resumed is called by the client, which may be ahead of the consumer.
func (w *Watcher) resumed(r client.Resume) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resumes = append(w.resumes, r)
	w.moves = append(w.moves, r)
}

func (w *Watcher) end(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
	if !errors.Is(err, client.ErrClosed) {
		w.c.Note("%s ended at %d: %v", w.watch.Name, w.reached, err)
	}
	w.ops = append(w.ops, check.Op{Kind: check.OpEnded})
}

func (w *Watcher) saw(u client.Update) {
	op := check.Op{Revision: kv.Revision(u.Revision)}
	switch u.Kind {
	case client.KindBatch:
		op.Kind, op.Events = check.OpBatch, eventsOf(u.Events)
	case client.KindState, client.KindResync:
		op.Kind = check.OpState
	case client.KindDelta, client.KindConflated:
		op.Kind, op.From = check.OpDelta, kv.Revision(u.From)
	case client.KindProgress:
		op.Kind = check.OpProgress
	}
	for i := range u.KVs {
		op.Items = append(op.Items, itemOf(&u.KVs[i]))
	}
	for _, key := range u.Deleted {
		op.Deleted = append(op.Deleted, string(key))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	// The watch resumed on another node after a position: there the break belongs.
	for len(w.resumes) > 0 && w.resumes[0].Revision < u.Revision {
		w.ops = append(w.ops, check.Op{Kind: check.OpResumed, Revision: kv.Revision(w.resumes[0].Revision + 1), Node: w.resumes[0].To})
		w.resumes = w.resumes[1:]
	}
	if len(w.ops) == 0 && w.watch.Start == 0 && !w.state && op.Kind == check.OpProgress {
		op.Kind = check.OpCreated // from now on: this has the revision of now
	}
	w.ops = append(w.ops, op)
	w.reached = max(w.reached, op.Revision)
}

// AwaitStart waits until the watch has begun.
func (w *Watcher) AwaitStart() {
	w.c.t.Helper()
	w.c.Await(10*time.Second, w.watch.Name+" begins", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.ops) > 0
	})
}

// Reached returns the revision up to which all events were received.
func (w *Watcher) Reached() kv.Revision {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reached
}

// Moves returns the times the watch resumed on another node, or on the same.
func (w *Watcher) Moves() []client.Resume {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.moves[:len(w.moves):len(w.moves)]
}

// Err returns why the watch ended; nil while it runs.
func (w *Watcher) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Seen returns the request and the observations of the watcher.
func (w *Watcher) Seen() check.Seen {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := check.Seen{Watch: w.watch, Ops: w.ops[:len(w.ops):len(w.ops)]}
	s.Merged = w.c.cut(s.Range) // ever: events of two former shards have no order in a merged one
	return s
}

func itemOf(k *client.KeyValue) check.Item {
	return check.Item{
		Key: string(k.Key), Value: check.HashValue(k.Value),
		Create: kv.Revision(k.CreateRevision), Mod: kv.Revision(k.ModRevision), Version: k.Version, Lease: k.Lease,
	}
}

func eventsOf(events []client.Event) []check.Event {
	out := make([]check.Event, len(events))
	for i := range events {
		e := &events[i]
		if e.Type == client.EventDelete {
			out[i] = check.Delete(string(e.KV.Key), kv.Revision(e.KV.ModRevision))
		} else {
			out[i] = check.Put(itemOf(&e.KV))
		}
		if e.Prev != nil {
			prev := itemOf(e.Prev)
			out[i].Prev = &prev
		}
	}
	return out
}
