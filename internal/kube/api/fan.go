package api

import (
	"context"
	"slices"
	"sync"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kube/object"
	"github.com/shardwatch/shardwatch/internal/kube/selector"
	"github.com/shardwatch/shardwatch/internal/kube/source"
	"github.com/shardwatch/shardwatch/internal/kube/transition"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wait"
)

// fan distributes the events of a feed to its watches. It reads each event once, evaluates
// each selector once for all watches that have it, and encodes each frame once. A watch
// that selects one value of a field, as a kubelet does with spec.nodeName, costs nothing for
// events with other values.
//
// A watch reads the cache on its own until it has all events that the fan has distributed, and
// then joins. It leaves, and reads on its own again, when it is too slow or when the fan falls
// behind the window.
type fan struct {
	f    *feed
	wake wait.Bell // events may be pending
	// queued bounds the queued frames of a watch, in bytes. One version may always be queued.
	queued int

	mu    sync.Mutex
	all   map[groupKey]*group    // guarded by mu
	plain map[string][]*group    // guarded by mu; the groups without an index, by namespace
	index map[string]*fieldIndex // guarded by mu; the other groups, by the field that they select

	watcher *cache.Watcher // guarded by mu; nil: there are no watches
	ended   bool           // guarded by mu; no watch may join
	at      kv.Revision    // guarded by mu; all events up to it are distributed
	events  []*kv.Event    // guarded by mu; buffer for events, reused
}

// groupKey identifies a group.
type groupKey struct {
	namespace, labels, fields string
	partial                   bool
}

// group is the set of watches that get the same frames.
type group struct {
	key         groupKey
	selector    selector.Selector
	path, value string // of the field that indexes it; path "": the namespace does
	members     []*member
}

// fieldIndex finds groups by the value of a field that they select.
type fieldIndex struct {
	field  object.Field
	groups map[string][]*group
}

// member is a watch that has joined, with its frames until it takes them.
type member struct {
	wake  cache.Waker
	group *group // guarded by fan.mu; nil: it has left
	place int    // guarded by fan.mu; index in the group

	mu     sync.Mutex
	frames [][]byte    // guarded by mu
	bytes  int         // guarded by mu; of frames
	last   kv.Revision // guarded by mu; the watch has all events up to this version
	joined kv.Revision // the watch has read all events up to this version on its own
	left   bool        // guarded by mu; the watch gets no more frames
}

// queuedBytes bounds the queued shared frames of a watch.
const queuedBytes = 256 << 10

func newFan(f *feed) *fan {
	return &fan{f: f, wake: wait.NewBell(), queued: queuedBytes, all: map[groupKey]*group{}, plain: map[string][]*group{}, index: map[string]*fieldIndex{}}
}

// run distributes events until ctx ends.
func (x *fan) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			x.end()
			return
		case <-x.wake:
			x.progress()
		}
	}
}

// end makes all watches read on their own, so that they notice the end of the feed.
func (x *fan) end() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ended = true
	if x.watcher != nil {
		x.releaseLocked()
	}
}

// progress distributes the pending events, and returns the version up to which all are distributed.
func (x *fan) progress() kv.Revision {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.passLocked()
	return x.at
}

func (x *fan) passLocked() {
	for x.watcher != nil {
		revision, events, err := x.watcher.Next(x.events[:0])
		x.events = events
		if err == nil && revision == 0 {
			x.at = x.watcher.Progress()
			return
		}
		for _, e := range events {
			if err == nil {
				err = x.handOutLocked(e, revision)
			}
		}
		if err != nil {
			x.releaseLocked() // each watch decides how it continues
		}
	}
}

// handOutLocked distributes one event.
func (x *fan) handOutLocked(e *kv.Event, revision kv.Revision) error {
	v, err := transition.Parse(x.f.r.Encoding, e, revision)
	if err != nil {
		return err
	}
	for _, g := range x.concernedLocked(v) {
		typ := v.TypeFor(&g.selector)
		if typ == "" {
			continue
		}
		frame, err := v.Frame(typ, g.key.partial)
		if err != nil {
			return err
		}
		for i := len(g.members) - 1; i >= 0; i-- { // backwards: a later member replaces one that leaves
			if m := g.members[i]; !m.push(frame, revision, x.queued) {
				x.removeLocked(m)
			}
		}
	}
	return nil
}

// concernedLocked returns the groups whose namespace and selected value match an event.
func (x *fan) concernedLocked(v *transition.Event) (groups []*group) {
	namespace := string(v.Now.Namespace)
	groups = append(groups, x.plain[""]...)
	if namespace != "" {
		groups = append(groups, x.plain[namespace]...)
	}
	for _, by := range x.index {
		now := by.field.Value(&v.Now)
		found := by.groups[now]
		if v.Existed {
			if before := by.field.Value(&v.Before); before != now {
				found = append(slices.Clip(found), by.groups[before]...)
			}
		}
		for _, g := range found {
			if g.key.namespace == "" || g.key.namespace == namespace {
				groups = append(groups, g)
			}
		}
	}
	return groups
}

// join adds a watch, which gets all events after those that it has read on its own. rest
// reads the remaining events and returns the version reached. join returns nil if the watch must
// read more on its own first.
func (x *fan) join(k groupKey, s *selector.Selector, kind source.Kind, wake cache.Waker, rest func() (kv.Revision, error)) (*member, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.passLocked()
	last, err := rest()
	if err != nil || x.ended {
		return nil, err
	}
	if x.watcher == nil {
		if x.watcher, err = x.f.cache.Watch(x.f.r.InNamespace(""), last+1, x.wake); err != nil {
			return nil, err
		}
		x.at = last
		x.wake.Wake() // events may be pending
	}
	if last < x.at {
		return nil, nil
	}
	g := x.all[k]
	if g == nil {
		g = &group{key: k, selector: *s}
		x.addLocked(g, kind)
	}
	m := &member{wake: wake, group: g, place: len(g.members), joined: last, last: last}
	g.members = append(g.members, m)
	return m, nil
}

// addLocked adds a group to the index by which events find it.
func (x *fan) addLocked(g *group, kind source.Kind) {
	x.all[g.key] = g
	path, value := g.selector.Demanded()
	field, ok := object.FieldOf(kind.APIVersion, kind.Kind, path)
	if !ok {
		x.plain[g.key.namespace] = append(x.plain[g.key.namespace], g)
		return
	}
	g.path, g.value = path, value
	by := x.index[path]
	if by == nil {
		by = &fieldIndex{field: field, groups: map[string][]*group{}}
		x.index[path] = by
	}
	by.groups[value] = append(by.groups[value], g)
}

// leave removes a watch. It may be called twice.
func (x *fan) leave(m *member) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.removeLocked(m)
	if len(x.all) == 0 && x.watcher != nil {
		x.watcher.Close()
		x.watcher = nil
	}
}

func (x *fan) removeLocked(m *member) {
	g := m.group
	if g == nil {
		return
	}
	m.group = nil
	end := len(g.members) - 1
	g.members[m.place] = g.members[end]
	g.members[m.place].place = m.place
	g.members[end] = nil
	g.members = g.members[:end]
	if end > 0 {
		return
	}
	delete(x.all, g.key)
	if g.path == "" {
		without(x.plain, g.key.namespace, g)
		return
	}
	by := x.index[g.path]
	if without(by.groups, g.value, g); len(by.groups) == 0 {
		delete(x.index, g.path)
	}
}

// without removes a group from the groups of a key.
func without(groups map[string][]*group, key string, g *group) {
	// A copy: a caller may be iterating over the old slice.
	rest := slices.DeleteFunc(slices.Clone(groups[key]), func(other *group) bool { return other == g })
	if groups[key] = rest; len(rest) == 0 {
		delete(groups, key)
	}
}

// releaseLocked removes all watches. They then read on their own.
func (x *fan) releaseLocked() {
	x.watcher.Close()
	x.watcher = nil
	for _, g := range x.all {
		for len(g.members) > 0 {
			m := g.members[len(g.members)-1]
			m.release(x.at)
			x.removeLocked(m)
		}
	}
}

// push adds a frame of a version. It returns false if the watch is too slow, and has to read on
// its own from that version on.
func (m *member) push(frame []byte, revision kv.Revision, most int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if revision <= m.joined {
		return true // the watch has read this event on its own
	}
	// Never between two events of one version: the watch could not resume there.
	if revision > m.last && len(m.frames) > 0 && m.bytes+len(frame) > most {
		m.left, m.last = true, revision-1
		return false
	}
	if len(m.frames) == 0 {
		m.wake.Wake()
	}
	m.frames, m.bytes, m.last = append(m.frames, frame), m.bytes+len(frame), revision
	return true
}

// release ends the frames of the watch, which has all events up to a version.
func (m *member) release(at kv.Revision) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left, m.last = true, max(m.last, at)
	m.wake.Wake()
}

// take returns the pending frames, the version up to which the watch has all events with
// them, and whether it has left. memory, a slice of earlier frames, is reused for the next frames.
func (m *member) take(memory [][]byte) (frames [][]byte, last kv.Revision, left bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	frames = m.frames
	m.frames, m.bytes = memory[:0], 0
	return frames, m.last, m.left
}
