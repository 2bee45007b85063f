package mirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/internal/index"
	"github.com/shardwatch/shardwatch/client/internal/keyrange"
	"github.com/shardwatch/shardwatch/client/internal/tree"
)

// Decoder decodes a key's value to a T. It may be called from any goroutine, and must
// not change the bytes.
type Decoder[T any] func(value []byte) (T, error)

// JSON is a [Decoder] of JSON.
func JSON[T any](value []byte) (T, error) { return Unmarshal[T](json.Unmarshal)(value) }

// Proto is a [Decoder] of a protobuf message; T is the generated pointer type.
func Proto[T proto.Message](value []byte) (T, error) {
	var none T
	m := none.ProtoReflect().New().Interface()
	if err := proto.Unmarshal(value, m); err != nil {
		return none, err //nolint:wrapcheck // the hook has the key
	}
	return m.(T), nil //nolint:forcetypeassert // it is of none's type
}

// Unmarshal returns a [Decoder] that calls an unmarshal function, such as those of YAML
// and TOML libraries: mirror.Unmarshal[Route](yaml.Unmarshal).
func Unmarshal[T any](unmarshal func(data []byte, into any) error) Decoder[T] {
	return func(value []byte) (T, error) {
		var v T
		err := unmarshal(value, &v)
		return v, err
	}
}

// Config configures a [Typed] mirror. The zero value decodes JSON.
type Config[T any] struct {
	// Decode decodes a value; nil: [JSON].
	Decode Decoder[T]
	// OnChange is called for each key that was created, changed or deleted, in key order, once
	// readers see all changes of that step. before is nil if the key is new, after if it is
	// deleted. The first calls are for the state; Sync returns after them. Calls do not overlap.
	// During a call the mirror does not change, and further changes are merged: before is always
	// the after of the last call for the key. It must not call Close.
	OnChange func(key string, before, after *T)
	// OnInvalid is called with each value that Decode rejects, before OnChange. The
	// mirror keeps the last valid value of the key, if there is one, until the key gets
	// a valid value or is deleted. It must not call Close.
	OnInvalid func(kv client.KeyValue, err error)
	// Indexes has the index functions by name. Each returns the terms by which
	// [Typed.By] finds a value. They must not call methods of the mirror.
	Indexes map[string]func(key string, value T) []string
}

// Typed is a [Mirror] whose values are decoded. Readers see all changes of a revision
// at once. The returned values are shared: do not change them.
type Typed[T any] struct {
	raw     *Mirror
	cfg     Config[T]
	indexes map[string]*index.Index
	done    chan struct{} // closed when run has returned
	ready   chan struct{} // closed once OnChange has returned for the state

	mu      sync.RWMutex
	view    View          // the decoded content; guarded by mu
	values  map[string]*T // the last valid ones; guarded by mu
	changed chan struct{} // closed and replaced whenever view is; guarded by mu
}

// NewTyped starts a mirror of a range whose values are decoded:
//
//	routes := mirror.NewTyped(ctx, c, client.Prefix("/routes/"), mirror.Config[Route]{})
//	if err := routes.Sync(ctx); err != nil { ... }
//	route, ok := routes.Get("/routes/a")
//
// Close it, or end ctx, when done.
func NewTyped[T any](ctx context.Context, c *client.Client, r client.Range, cfg Config[T], opts ...client.MirrorOption) *Typed[T] {
	if cfg.Decode == nil {
		cfg.Decode = JSON[T]
	}
	m := &Typed[T]{
		raw: New(ctx, c, r, opts...), cfg: cfg, indexes: map[string]*index.Index{},
		done: make(chan struct{}), ready: make(chan struct{}), values: map[string]*T{}, changed: make(chan struct{}),
	}
	for name := range cfg.Indexes {
		m.indexes[name] = index.New()
	}
	if !c.Go(m.run) {
		close(m.done)
	}
	return m
}

// Close ends the mirror; its content can still be read. It waits for all goroutines of
// the mirror, always returns nil, and may be called twice.
func (m *Typed[T]) Close() error {
	_ = m.raw.Close()
	<-m.done
	return nil
}

// Raw returns the mirror of the undecoded values: for statistics, mod revisions, and
// values that cannot be decoded. It may be ahead.
func (m *Typed[T]) Raw() *Mirror { return m.raw }

// Done is closed once the mirror has ended; the Err of [Typed.Raw] returns the reason.
func (m *Typed[T]) Done() <-chan struct{} { return m.done }

// Sync waits until the mirror has the state and OnChange has returned for each of its
// keys. Otherwise it returns the reason, as [Mirror.Sync] does.
func (m *Typed[T]) Sync(ctx context.Context) error {
	if err := m.raw.Sync(ctx); err != nil {
		return err
	}
	select {
	case <-m.ready:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("mirror %v: OnChange has not returned: %w", m.raw.rng, context.Cause(ctx))
	}
}

// Get returns the value of a key and whether there is one.
func (m *Typed[T]) Get(key string) (T, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if v := m.values[key]; v != nil {
		return *v, true
	}
	var none T
	return none, false
}

// All yields all values in key order, all at one revision.
func (m *Typed[T]) All() iter.Seq2[string, T] { return m.Range(client.Range{}) }

// Range yields the values of a range in key order, all at one revision.
func (m *Typed[T]) Range(r client.Range) iter.Seq2[string, T] {
	return func(yield func(string, T) bool) {
		m.mu.RLock()
		var keys []string
		var values []*T
		m.view.root.Walk(keyrange.Range(r), func(kv *tree.KeyValue) bool {
			if v := m.values[string(kv.Key)]; v != nil {
				keys, values = append(keys, string(kv.Key)), append(values, v)
			}
			return true
		})
		m.mu.RUnlock()
		yieldAll(keys, values, yield)
	}
}

// By yields the values that an index finds by a term, in key order, all at one revision.
// An index that is not in [Config] finds nothing.
func (m *Typed[T]) By(name, term string) iter.Seq2[string, T] {
	return func(yield func(string, T) bool) {
		m.mu.RLock()
		var keys []string
		if x := m.indexes[name]; x != nil {
			keys = x.Find(term)
		}
		values := make([]*T, len(keys))
		for i, key := range keys {
			values[i] = m.values[key]
		}
		m.mu.RUnlock()
		yieldAll(keys, values, yield)
	}
}

func yieldAll[T any](keys []string, values []*T, yield func(string, T) bool) {
	for i, key := range keys {
		if !yield(key, *values[i]) {
			return
		}
	}
}

// Len returns the number of keys that have a value.
func (m *Typed[T]) Len() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return len(m.values)
}

// Position returns the position of the decoded values; the zero one before the state.
func (m *Typed[T]) Position() client.Position {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.view.Position()
}

// WaitFor waits until the mirror shows everything up to a position, as [Mirror.WaitFor]
// does.
func (m *Typed[T]) WaitFor(ctx context.Context, p client.Position) error {
	for {
		if err := m.raw.WaitFor(ctx, p); err != nil {
			return err
		}
		m.mu.RLock()
		at, changed := m.view.Position(), m.changed
		m.mu.RUnlock()
		if fits(p, at) && at.Revision >= p.Revision {
			return nil
		}
		select {
		case <-changed:
		case <-m.done:
			return fmt.Errorf("mirror %v: wait for %v, it is at %v: %w", m.raw.rng, p, at, errors.Join(m.raw.Err(), client.ErrClosed))
		case <-ctx.Done():
			return fmt.Errorf("mirror %v: wait for %v, it is at %v: %w", m.raw.rng, p, at, context.Cause(ctx))
		}
	}
}

// run decodes the content of the raw mirror until that ends.
func (m *Typed[T]) run() {
	defer close(m.done)
	var last View
	for {
		v, changed := m.raw.now()
		if v != last {
			m.step(last, v)
			last = v
			continue
		}
		select {
		case <-changed:
		case <-m.raw.done:
			if m.raw.View() == last {
				return
			}
		}
	}
}

// revised is a key with the values that the mirror shows before and after a step; nil:
// none.
type revised[T any] struct {
	key           string
	before, after *T
}

// step replaces the last view by v and reports the differences.
func (m *Typed[T]) step(last, v View) {
	var all []revised[T]
	tree.Diff(last.root, v.root, func(before, after *tree.KeyValue) {
		if after == nil {
			if key := string(before.Key); m.values[key] != nil { // read without mu: no other goroutine writes
				all = append(all, revised[T]{key: key, before: m.values[key]})
			}
			return
		}
		value, err := m.cfg.Decode(after.Value)
		key := string(after.Key)
		switch kept := m.values[key]; {
		case err == nil:
			all = append(all, revised[T]{key, kept, &value})
		case kept != nil && before.CreateRevision != after.CreateRevision: // the key was deleted in between
			all = append(all, revised[T]{key: key, before: kept})
		}
		if err != nil && m.cfg.OnInvalid != nil {
			m.cfg.OnInvalid(client.KeyValue(*after), err)
		}
	})
	m.show(v, all)
	if m.cfg.OnChange != nil {
		for _, r := range all {
			m.cfg.OnChange(r.key, r.before, r.after)
		}
	}
	if v.held() && !last.held() {
		close(m.ready)
	}
}

// show replaces the values and the view that readers see.
func (m *Typed[T]) show(v View, all []revised[T]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range all {
		if r.after == nil {
			delete(m.values, r.key)
		} else {
			m.values[r.key] = r.after
		}
	}
	for name, x := range m.indexes {
		for _, r := range all {
			var terms []string
			if r.after != nil {
				terms = m.cfg.Indexes[name](r.key, *r.after)
			}
			x.Set(r.key, terms)
		}
	}
	m.view = v
	close(m.changed)
	m.changed = make(chan struct{})
}
