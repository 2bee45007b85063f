package client

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"sync"
	"time"
)

// Mirror is a local copy of a range, kept in step: reading it costs no
// network. Every revision appears in it at once: a reader never sees half of
// one. When the cluster cannot tell what was missed (compaction, a restore of
// etcd) the mirror reads the state again and applies the difference at once;
// until then it keeps what it has.
type Mirror struct {
	rng    Range
	hash   hasher
	w      func() *Watcher // starts a watch
	cancel context.CancelFunc
	done   chan struct{} // closed when run has returned
	ready  chan struct{} // closed with the first state

	mu      sync.RWMutex
	view    View          // guarded by mu
	changed chan struct{} // closed and replaced whenever view is; guarded by mu
	on      *Watcher      // guarded by mu
	resyncs int           // guarded by mu
	err     error         // why it ended; guarded by mu
}

// View is the content of a mirror at one revision. It never changes.
type View struct {
	root     *tree
	revision int64
	lineage  uint64
}

// Mirror starts a mirror of a range. Close it, or end ctx, when done.
func (c *Client) Mirror(ctx context.Context, r Range) *Mirror {
	ctx, cancel := context.WithCancel(ctx)
	m := &Mirror{
		rng: r, hash: hasher{seed: maphash.MakeSeed()}, cancel: cancel,
		done: make(chan struct{}), ready: make(chan struct{}), changed: make(chan struct{}),
	}
	m.w = func() *Watcher { return c.Watch(ctx, r, WithState(), WithProgress()) }
	if !c.spawn(m.run) {
		m.err = ErrClosed
		cancel()
		close(m.done)
	}
	return m
}

// Close ends the mirror; what it holds can still be read. It returns when
// nothing of the mirror runs any more, always nil, and may be called twice.
func (m *Mirror) Close() error {
	m.cancel()
	<-m.done
	return nil
}

// Ready is closed once the mirror holds the state for the first time.
func (m *Mirror) Ready() <-chan struct{} { return m.ready }

// Done is closed once the mirror has ended; [Mirror.Err] says why.
func (m *Mirror) Done() <-chan struct{} { return m.done }

// Err returns why the mirror has ended, nil while it lives.
func (m *Mirror) Err() error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.err
}

// View returns the content as it is now. Several reads of one view fit
// together.
func (m *Mirror) View() View {
	v, _ := m.now()
	return v
}

// Get returns a key, and whether it exists.
func (m *Mirror) Get(key string) (KeyValue, bool) { return m.View().Get(key) }

// All yields all keys in order, all at one revision.
func (m *Mirror) All() iter.Seq[KeyValue] { return m.View().All() }

// Range yields the keys of a range in order, all at one revision.
func (m *Mirror) Range(r Range) iter.Seq[KeyValue] { return m.View().Range(r) }

// Len returns the number of keys.
func (m *Mirror) Len() int { return m.View().Len() }

// Revision returns the revision up to which the mirror has everything; 0
// before it is ready.
func (m *Mirror) Revision() int64 { return m.View().Revision() }

// Resyncs counts how often the state had to be read again after the first
// time.
func (m *Mirror) Resyncs() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.resyncs
}

// Get returns a key, and whether it exists.
func (v View) Get(key string) (KeyValue, bool) {
	kv := v.root.get(key)
	if kv == nil {
		return KeyValue{}, false
	}
	return *kv, true
}

// All yields all keys in order.
func (v View) All() iter.Seq[KeyValue] { return v.Range(Range{}) }

// Range yields the keys of a range in order.
func (v View) Range(r Range) iter.Seq[KeyValue] {
	return func(yield func(KeyValue) bool) {
		v.root.walk(r, func(kv *KeyValue) bool { return yield(*kv) })
	}
}

// Len returns the number of keys.
func (v View) Len() int { return v.root.len() }

// Revision returns the revision of the content.
func (v View) Revision() int64 { return v.revision }

// Lineage returns the history the revision belongs to.
func (v View) Lineage() uint64 { return v.lineage }

// Changed returns a channel that is closed when the mirror moves on from what
// it holds now, be it by a change or by progress.
func (m *Mirror) Changed() <-chan struct{} {
	_, changed := m.now()
	return changed
}

// WaitFor waits until the mirror has everything up to revision, which it asks
// for at short intervals while the range is quiet. After a Put returned
// revision, the mirror shows it. It fails when ctx ends, or the mirror.
func (m *Mirror) WaitFor(ctx context.Context, revision int64) error {
	ask := time.NewTicker(100 * time.Millisecond)
	defer ask.Stop()
	for {
		v, changed := m.now()
		if v.revision >= revision {
			return nil
		}
		m.mu.RLock()
		on := m.on
		m.mu.RUnlock()
		if on != nil {
			on.RequestProgress()
		}
		select {
		case <-changed:
		case <-ask.C:
		case <-m.done:
			return fmt.Errorf("mirror %v: wait for revision %d: %w", m.rng, revision, m.Err())
		case <-ctx.Done():
			return fmt.Errorf("mirror %v: wait for revision %d, it is at %d: %w", m.rng, revision, v.revision, context.Cause(ctx))
		}
	}
}

// Change is the difference between two views of a mirror.
type Change struct {
	// View is the content after the change.
	View View
	// Events is one for each key that differs, in key order, with its value
	// before. What happened in between is merged: a key that came and went
	// does not appear, and when a key was deleted is not known.
	Events []Event
}

// Changes yields the difference to what it yielded last, the whole content at
// first, as fast as the consumer takes it: a slow consumer gets fewer, bigger
// changes, and the newest value of each key. At last it yields the error that
// ended ctx or the mirror.
func (m *Mirror) Changes(ctx context.Context) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		var last View
		for {
			v, changed := m.now()
			if c := changeBetween(last, v); len(c.Events) > 0 && !yield(c, nil) {
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
	c := Change{View: b}
	diff(a.root, b.root, func(before, after *KeyValue) {
		e := Event{Prev: before}
		if after != nil {
			e.KV = *after
		} else {
			e.Type, e.KV = Delete, KeyValue{Key: before.Key}
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

// run keeps the mirror in step: one watch after the other, each with the
// state first.
func (m *Mirror) run() {
	defer close(m.done)
	defer m.cancel()
	for {
		w := m.w()
		m.mu.Lock()
		m.on = w
		m.mu.Unlock()
		err := m.follow(w)
		w.Close()
		var compacted *CompactedError
		if !errors.As(err, &compacted) && !errors.Is(err, ErrLineage) {
			m.mu.Lock()
			m.err = err
			m.mu.Unlock()
			return
		}
		m.mu.Lock()
		m.resyncs++
		m.mu.Unlock()
	}
}

// follow applies one watch until it ends.
func (m *Mirror) follow(w *Watcher) error {
	for {
		u, err := w.Next(context.Background()) // the watch ends with the mirror's context
		if err != nil {
			return err
		}
		m.set(m.apply(m.View(), u))
		if u.Kind == KindState {
			select {
			case <-m.ready:
			default:
				close(m.ready)
			}
		}
	}
}

// apply returns v after u.
func (m *Mirror) apply(v View, u Update) View {
	switch u.Kind {
	case KindState:
		v.root = nil
		for i := range u.KVs {
			v.root = v.root.put(m.hash, &u.KVs[i])
		}
	case KindBatch:
		for i := range u.Events {
			e := &u.Events[i]
			if e.Type == Delete {
				v.root = v.root.remove(e.KV.Key)
			} else {
				v.root = v.root.put(m.hash, &e.KV)
			}
		}
	case KindProgress:
	}
	v.revision, v.lineage = u.Revision, u.Lineage
	return v
}

func (m *Mirror) set(v View) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.view = v
	close(m.changed)
	m.changed = make(chan struct{})
}
