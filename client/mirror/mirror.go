// Package mirror keeps copies of ranges in memory: reads need no network, and a reader
// never sees part of a revision. [New] starts a [Mirror] of the keys as they are in
// etcd, which reports the difference after each step. [NewTyped] starts a [Typed]
// mirror, whose values are decoded.
//
// A mirror runs a watch and one goroutine, a typed one two. It ends with its context, its
// Close, or the Close of its client.
package mirror

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	"google.golang.org/grpc"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/internal/keyrange"
	"github.com/shardwatch/shardwatch/client/internal/tree"
)

// Mirror is a local copy of a range, kept up to date: reads need no network. A revision
// becomes visible at once, and so does a unit that replaces revisions which are no
// longer available: readers never see a partial update. If the history changes, because
// etcd was restored, the mirror switches to the new history in one step and keeps its
// content until then; [Mirror.Changes] yields the difference, including deletes that no
// server could report.
type Mirror struct {
	c      *client.Client
	rng    client.Range
	hash   tree.Hasher
	w      *client.Watcher
	cancel context.CancelFunc
	done   chan struct{} // closed when run has returned
	ready  chan struct{} // closed at the first state or the end

	mu      sync.RWMutex
	view    View          // guarded by mu
	changed chan struct{} // closed and replaced whenever view is; guarded by mu
	err     error         // why the mirror ended; guarded by mu
}

// View is the content of a mirror at one revision. It never changes.
type View struct {
	root    *tree.Tree
	at      client.Position
	resyncs int64 // how often the state was replaced, after the first time
}

// New starts a mirror of a range:
//
//	m := mirror.New(ctx, c, client.Prefix("/routes/"))
//	if err := m.Sync(ctx); err != nil { ... }
//	kv, ok := m.Get("/routes/a")
//
// Close it, or end ctx, when done.
func New(ctx context.Context, c *client.Client, r client.Range, opts ...client.MirrorOption) *Mirror {
	ctx, cancel := context.WithCancel(ctx)
	m := &Mirror{
		c: c, rng: r, hash: tree.NewHasher(), cancel: cancel,
		done: make(chan struct{}), ready: make(chan struct{}), changed: make(chan struct{}),
	}
	own := []client.WatchOption{client.WithState(), client.WithProgress()}
	for _, o := range opts {
		own = append(own, o)
	}
	m.w = c.Watch(ctx, r, own...)
	if !c.Go(m.run) {
		cancel()
		m.end(client.ErrClosed)
	}
	return m
}

// Close ends the mirror; its content can still be read. It waits for all goroutines of
// the mirror, always returns nil, and may be called twice.
func (m *Mirror) Close() error {
	m.cancel()
	<-m.done
	return nil
}

// Ready is closed once the mirror has the state for the first time. It is also closed
// when the mirror ends before that; [Mirror.Err] returns the reason.
func (m *Mirror) Ready() <-chan struct{} { return m.ready }

// Sync waits until the mirror has the state for the first time. Otherwise it returns
// the error that ended the mirror, or the cause of ctx and, if known, the reason why no
// node serves the mirror's watch.
func (m *Mirror) Sync(ctx context.Context) error {
	select {
	case <-m.ready:
		if !m.View().held() {
			return fmt.Errorf("mirror %v: ended before it held the state: %w", m.rng, m.Err())
		}
		return nil
	case <-ctx.Done():
		err := context.Cause(ctx)
		if last := m.Stats().LastError; last != nil {
			err = fmt.Errorf("%w; last error: %w", err, last)
		}
		return fmt.Errorf("mirror %v: has no state yet: %w", m.rng, err)
	}
}

// Done is closed once the mirror has ended; [Mirror.Err] returns the reason.
func (m *Mirror) Done() <-chan struct{} { return m.done }

// Err returns the error that ended the mirror, nil until then.
func (m *Mirror) Err() error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.err
}

// View returns the current content. All reads of one view see the same revision.
func (m *Mirror) View() View {
	v, _ := m.now()
	return v
}

// Get returns a key and whether it exists.
func (m *Mirror) Get(key string) (client.KeyValue, bool) { return m.View().Get(key) }

// All yields all keys in order, all at one revision.
func (m *Mirror) All() iter.Seq[client.KeyValue] { return m.View().All() }

// Range yields the keys of a range in order, all at one revision.
func (m *Mirror) Range(r client.Range) iter.Seq[client.KeyValue] { return m.View().Range(r) }

// Len returns the number of keys.
func (m *Mirror) Len() int { return m.View().Len() }

// Revision returns the revision up to which the mirror is complete; 0 before it is ready.
func (m *Mirror) Revision() int64 { return m.View().Revision() }

// Stats returns the current statistics of the mirror's watch.
func (m *Mirror) Stats() client.WatcherStats { return m.w.Stats() }

// Resyncs returns how often the full state was read again after the first time.
func (m *Mirror) Resyncs() int { return int(m.Stats().Resyncs) }

// Get returns a key and whether it exists.
func (v View) Get(key string) (client.KeyValue, bool) {
	kv := v.root.Get(key)
	if kv == nil {
		return client.KeyValue{}, false
	}
	return client.KeyValue(*kv), true
}

// All yields all keys in order.
func (v View) All() iter.Seq[client.KeyValue] { return v.Range(client.Range{}) }

// Range yields the keys of a range in order.
func (v View) Range(r client.Range) iter.Seq[client.KeyValue] {
	return func(yield func(client.KeyValue) bool) {
		v.root.Walk(keyrange.Range(r), func(kv *tree.KeyValue) bool { return yield(client.KeyValue(*kv)) })
	}
}

// Len returns the number of keys.
func (v View) Len() int { return v.root.Len() }

// Revision returns the revision of the content.
func (v View) Revision() int64 { return v.at.Revision }

// Position returns the revision with the history it belongs to.
func (v View) Position() client.Position { return v.at }

// held reports whether the view is of a mirror that has the state.
func (v View) held() bool { return v.at.Revision > 0 }

// Changed returns a channel that is closed when the content or its revision changes, by
// events or by progress.
func (m *Mirror) Changed() <-chan struct{} {
	_, changed := m.now()
	return changed
}

// progressEvery is how often WaitFor requests progress while the range is quiet.
const progressEvery = 100 * time.Millisecond

// WaitFor waits until the mirror has everything up to a position: with the position that a
// Put returned, the mirror then shows that change. It fails when ctx or the mirror ends,
// and with [client.ErrLineage] when the mirror has switched to another history: the write
// may be lost. A position without a history is compared by its revision alone.
func (m *Mirror) WaitFor(ctx context.Context, p client.Position) error {
	ask := time.NewTicker(progressEvery)
	defer ask.Stop()
	failed := func(at client.Position, err error) error {
		return fmt.Errorf("mirror %v: wait for %v, it is at %v: %w", m.rng, p, at, err)
	}
	var looked time.Time
	for {
		v, changed := m.now()
		at := v.Position()
		switch {
		case fits(p, at):
			if at.Revision >= p.Revision {
				return nil
			}
		case at.Revision == 0: // nothing has arrived yet
		case p.Cluster == "" || p.Cluster == at.Cluster:
			if p.Lineage < at.Lineage {
				return failed(at, client.ErrLineage)
			}
		case time.Since(looked) >= progressEvery:
			looked = time.Now()
			if cluster, err := m.clusterNow(ctx); err == nil && cluster != p.Cluster {
				return failed(at, client.ErrCluster)
			} // else the mirror is about to switch to the history
		}
		m.w.RequestProgress()
		select {
		case <-changed:
		case <-ask.C:
		case <-m.done:
			return failed(at, m.Err())
		case <-ctx.Done():
			return failed(at, context.Cause(ctx))
		}
	}
}

// fits reports whether at can belong to the history of p, parts of which may be unknown.
func fits(p, at client.Position) bool {
	return (p.Cluster == "" || p.Cluster == at.Cluster) && (p.Lineage == 0 || p.Lineage == at.Lineage)
}

// clusterNow returns the ID of the cluster that a node belongs to.
func (m *Mirror) clusterNow(ctx context.Context) (string, error) {
	var id string
	err := m.c.Call(ctx, 0, func(ctx context.Context, node grpc.ClientConnInterface) error {
		s, err := pb.NewClusterServiceClient(node).Status(ctx, &pb.StatusRequest{})
		id = s.GetClusterId()
		return err //nolint:wrapcheck // Call maps it
	})
	return id, err //nolint:wrapcheck // the caller retries
}

// Change is the difference between two views of a mirror.
type Change struct {
	// View is the content after the change.
	View View
	// Events has one event for each key that differs, in key order, with its value
	// before. Intermediate changes are merged: a key that was created and deleted in
	// between is left out, and the revision of a delete is not known.
	Events []client.Event
	// Initial: it is the first change, and Events has a put for each key of View.
	Initial bool
	// Resync: the full state was sent again since the last change ([client.KindResync]). Events
	// still has only the keys that differ; the history may be another one ([View.Position]).
	Resync bool
}

// Changes yields the whole content once the mirror has the state, even if the range is
// empty. After that it yields the difference to the last change, as fast as the
// consumer reads: a slow consumer gets fewer, bigger changes, with the newest value of
// each key. A resync is yielded even if no key differs. Last it yields the error that
// ended ctx or the mirror.
func (m *Mirror) Changes(ctx context.Context) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		var last View
		for {
			v, changed := m.now()
			c := changeBetween(last, v)
			if (c.Initial || c.Resync || len(c.Events) > 0) && !yield(c, nil) {
				return
			}
			last = v
			var err error
			select {
			case <-changed:
				continue
			case <-m.done:
				if m.View() != last {
					continue
				}
				err = m.Err()
			case <-ctx.Done():
				err = context.Cause(ctx)
			}
			yield(Change{}, err)
			return
		}
	}
}

func changeBetween(a, b View) Change {
	c := Change{View: b, Initial: b.held() && !a.held(), Resync: a.held() && b.resyncs > a.resyncs}
	tree.Diff(a.root, b.root, func(before, after *tree.KeyValue) {
		e := client.Event{Prev: (*client.KeyValue)(before)}
		if after != nil {
			e.KV = client.KeyValue(*after)
		} else {
			e.Type, e.KV = client.EventDelete, client.KeyValue{Key: before.Key}
		}
		c.Events = append(c.Events, e)
	})
	return c
}

func (m *Mirror) now() (View, <-chan struct{}) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.view, m.changed
}

// run applies the watch until it ends.
func (m *Mirror) run() {
	for {
		u, err := m.w.Next(context.Background()) // the watch ends with the mirror's context
		if err != nil {
			m.w.Close()
			m.cancel()
			m.end(err)
			return
		}
		old := m.View()
		m.set(apply(m.hash, old, &u))
		if !old.held() {
			close(m.ready)
		}
	}
}

// end marks the mirror as ended.
func (m *Mirror) end(err error) {
	m.mu.Lock()
	m.err = err
	m.mu.Unlock()
	if !m.View().held() {
		close(m.ready)
	}
	close(m.done)
}

// apply returns v after u.
func apply(h tree.Hasher, v View, u *client.Update) View {
	switch u.Kind {
	case client.KindBatch:
		for i := range u.Events {
			if e := &u.Events[i]; e.Type == client.EventDelete {
				v.root = v.root.Remove(e.KV.Key)
			} else {
				v.root = put(h, v.root, e.KV)
			}
		}
	case client.KindDelta, client.KindConflated:
		for i := range u.KVs {
			v.root = put(h, v.root, u.KVs[i])
		}
		for _, key := range u.Deleted {
			v.root = v.root.Remove(key)
		}
	case client.KindState, client.KindResync:
		if v.held() {
			v.resyncs++
		}
		v.root = v.root.Replace(h, len(u.KVs), func(i int) *tree.KeyValue { return (*tree.KeyValue)(&u.KVs[i]) })
	case client.KindProgress:
	}
	v.at = u.Position()
	return v
}

// put returns t with a copy of kv, which does not keep the update in memory.
func put(h tree.Hasher, t *tree.Tree, kv client.KeyValue) *tree.Tree {
	return t.Put(h, (*tree.KeyValue)(&kv))
}

func (m *Mirror) set(v View) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.view = v
	close(m.changed)
	m.changed = make(chan struct{})
}
