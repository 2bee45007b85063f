package cache

import (
	"bytes"
	"fmt"
	"time"

	"github.com/shardwatch/shardwatch/internal/data/keytree"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// firstRevision is the revision of an etcd without any write.
const firstRevision = 1

// loading is a state that is being received.
type loading struct {
	had       *keytree.Tree // the state held meanwhile; nil: none, or a stateless cache
	at        kv.Revision   // the revision of had
	tree      *keytree.Tree
	leap      bool // tree begins as had: the source sends the differences
	stateless bool
	gone      []string // keys that a leap deleted from tree
	past      Past
	count     *counters
}

// newLoading begins to load a state from a source.
func (c *Cache) newLoading(begin kv.Update) *loading {
	l := &loading{
		tree: keytree.New(), leap: begin.Leap, stateless: c.cfg.Stateless, count: &c.counters,
		past: Past{Progress: begin.Revision, Floor: begin.Floor, DeltaFloor: begin.DeltaFloor},
	}
	if !l.stateless && c.tree != nil {
		v := c.view.Load()
		l.had, l.at = v.root, v.progress
	}
	if l.leap {
		l.tree = c.tree.Copy()
	}
	if l.past.Floor == 0 || l.leap { // no history
		l.past.Floor = begin.Revision + 1
	}
	if l.past.DeltaFloor == 0 || l.past.DeltaFloor > l.past.Floor {
		l.past.DeltaFloor = l.past.Floor
	}
	l.count.loadedState.Store(0)
	l.count.loadedWindow.Store(0)
	l.count.loadedDeletes.Store(0)
	return l
}

// add adds a part of the state or the history. It fails with kv.ErrOtherHistory.
func (l *loading) add(u kv.Update) error {
	switch u.Kind {
	case kv.UpdateHistory:
		b := u.Batch // a copy, because the window keeps it
		l.past.Batches = append(l.past.Batches, &b)
		l.count.loadedWindow.Add(int64(b.Size()))
	case kv.UpdateTombstones:
		l.past.Tombstones = append(l.past.Tombstones, u.Tombstones...)
		for i := range u.Tombstones {
			l.count.loadedDeletes.Add(int64(u.Tombstones[i].Size()))
		}
	case kv.UpdateState:
		if l.stateless {
			return nil
		}
		size := int64(0)
		for _, item := range u.KVs {
			if err := l.check(item); err != nil {
				return err
			}
			size += int64(item.Size()) + keytree.KeyOverhead
			if l.leap {
				l.tree.Set(item)
			} else {
				l.tree.Load(item)
			}
		}
		l.count.loadedState.Add(size)
		for _, key := range u.Gone {
			if l.leap {
				l.tree.Delete(keytree.Pivot(key))
				l.gone = append(l.gone, key)
			}
		}
	}
	return nil
}

// check compares a key with its held version.
func (l *loading) check(item *kv.KeyValue) error {
	if l.had == nil {
		return nil
	}
	old, ok := l.had.Get(item)
	switch {
	case !ok && item.ModRevision() <= l.at:
		return l.contradicted(item, nil, fmt.Sprintf("%q has mod revision %d, but did not exist when everything up to %d was held", item.Key(), item.ModRevision(), l.at))
	case !ok:
	case old.ModRevision() > item.ModRevision():
		return l.contradicted(item, old, fmt.Sprintf("%q was changed at revision %d, but now has mod revision %d", item.Key(), old.ModRevision(), item.ModRevision()))
	case old.ModRevision() == item.ModRevision() && !bytes.Equal(old.Encoded(), item.Encoded()):
		return l.contradicted(item, old, fmt.Sprintf("%q has two contents at mod revision %d", item.Key(), item.ModRevision()))
	}
	return nil
}

func (l *loading) contradicted(item, held *kv.KeyValue, detail string) error {
	return &kv.ContradictionError{Detail: detail, Claims: []kv.Claim{{Key: string(item.Key()), Revision: l.at, Held: held}}}
}

// finish replaces the cache's contents with the loaded state. It fails with
// kv.ErrOtherHistory.
func (c *Cache) finish(l *loading) error {
	if l.had == nil {
		old := c.cfg.History
		if old != nil {
			if err := old.agree(l.tree, l.past.Progress); err != nil {
				return err
			}
		}
		c.cfg.History = nil
		l.past.join(old)
		c.load(l.tree, &l.past)
		return nil
	}
	own, err := c.export()
	if err != nil {
		return err
	}
	c.counters.leaps.Add(1)
	past := own.Past()
	if l.past.DeltaFloor-1 <= past.Progress {
		l.past.join(past)
		c.load(l.tree, &l.past)
		return nil
	}
	// The events in between are not known, but their result is.
	over := hole{after: past.Progress, before: l.past.DeltaFloor - 1}
	c.changes.leap(l.tree, over, l.lost(), l.past.tombstones(), time.Now())
	c.replace(l.tree, &l.past)
	return nil
}

// lost returns the keys of the held state that no longer exist.
func (l *loading) lost() []string {
	if l.leap {
		return l.gone
	}
	var out []string
	l.had.Scan(func(old *kv.KeyValue) bool {
		if _, ok := l.tree.Get(old); !ok {
			out = append(out, string(old.Key()))
		}
		return true
	})
	return out
}

// load replaces state, window and change log.
func (c *Cache) load(t *keytree.Tree, past *Past) {
	if past.Progress <= firstRevision { // there were no events before
		past.Floor, past.DeltaFloor = min(past.Floor, firstRevision), min(past.DeltaFloor, firstRevision)
	}
	if !c.cfg.Stateless {
		c.changes.reset(t, past.tombstones(), past.DeltaFloor, time.Now())
	}
	c.replace(t, past)
}

// replace replaces state and window. Existing watchers have a gap, and are woken.
func (c *Cache) replace(t *keytree.Tree, past *Past) {
	if c.view.Load().ready {
		c.counters.resets.Add(1)
	}
	floor := past.Floor
	c.tree = t
	c.roots.Clear()
	old := c.view.Load()
	before := c.win.next
	c.win.reset(floor, old.progress)
	// The history is complete from the floor on: events before it are not known.
	changed := floor - 1
	for _, b := range past.Batches {
		c.win.append(b)
		changed = max(changed, b.Revision)
	}
	c.win.evict(time.Now())
	var bytes int64
	t.Scan(func(item *kv.KeyValue) bool {
		bytes += int64(item.Size())
		return true
	})
	c.counters.stateBytes.Store(bytes)
	v := &view{win: c.win.view(), root: t.Copy(), changed: changed, progress: past.Progress, ready: true}
	c.view.Store(v)
	c.wakeups.all(before) // a position below the new window: Next finds the gap
	c.settle(v)
	select {
	case <-c.ready:
	default:
		close(c.ready)
	}
}
