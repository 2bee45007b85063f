package cache

import (
	"time"

	"github.com/shardwatch/shardwatch/internal/data/keytree"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// apply adds one revision.
func (c *Cache) apply(b *kv.Batch) {
	old := c.view.Load()
	if b.Revision <= old.progress {
		// Two sources at a change-over may both bring it. Never twice.
		c.counters.late.Add(1)
		return
	}
	var replaced, grown int64
	if !c.cfg.Stateless {
		c.changes.mu.Lock()
		for i := range b.Events {
			e := &b.Events[i]
			var prev *kv.KeyValue
			if e.Type == kv.Delete {
				prev, _ = c.tree.Delete(e.KV)
			} else {
				prev, _ = c.tree.Set(e.KV)
				grown += int64(e.KV.Size())
			}
			e.Prev = prev
			c.changes.noteLocked(e, prev, b)
			if prev != nil && prev.ModRevision() == b.Revision {
				// A second change of the key within the revision: as etcd has it,
				// the previous value is that of the revision before.
				e.Prev, _ = old.root.Get(e.KV)
			}
			replaced += keytree.RootOverhead
			if prev != nil {
				replaced += int64(prev.Size())
				grown -= int64(prev.Size())
			}
		}
		c.changes.mu.Unlock()
		c.counters.stateBytes.Add(grown)
		c.roots.Push(old.changed, old.root, replaced, b.Received)
	}
	c.counters.batches.Add(1)
	c.counters.events.Add(int64(len(b.Events)))

	seq := c.win.next
	added := c.win.append(b)
	c.win.evict(b.Received)
	v := &view{win: c.win.view(), root: old.root, changed: b.Revision, progress: b.Revision, ready: true}
	if !c.cfg.Stateless {
		v.root = c.tree.Copy()
	}
	if c.cfg.Applied != nil {
		c.cfg.Applied(b)
	}
	c.view.Store(v)
	c.wakeMatching(added, seq)
	c.settle(v)
}

// advance notes progress.
func (c *Cache) advance(revision kv.Revision) {
	old := c.view.Load()
	now := time.Now()
	if now.Sub(c.trimmed) > time.Second {
		c.trimmed = now
		c.win.evict(now)
		c.roots.Trim(now)
		c.changes.trim(now)
		c.complain(now)
	} else if revision <= old.progress {
		return
	}
	v := *old
	v.win = c.win.view()
	v.progress = max(old.progress, revision)
	c.view.Store(&v)
	c.settle(&v)
	if now.Sub(c.demanded) > demandEvery {
		c.demanded = now
		c.demandAgain()
	}
}

// complainEvery is how often the early eviction of deletes is logged.
const complainEvery = time.Hour

// complain says so when deletes are evicted early.
func (c *Cache) complain(now time.Time) {
	_, bytes, floor, squeezed := c.changes.status()
	if squeezed == c.squeezed || now.Sub(c.complained) < complainEvery && c.squeezed > 0 {
		return
	}
	c.squeezed, c.complained = squeezed, now
	c.cfg.Logger.Warn("deletes evicted early: clients that were away for longer get the whole state (see --tombstone-bytes)",
		"range", c.cfg.Range, "delta_floor", floor, "bytes", bytes, "forgotten", squeezed)
}

// wakeMatching wakes the idle watchers whose range the batch touches. It visits
// each of them once: a revision may have 10,000 events, and readers that come or
// go wait for the lock.
func (c *Cache) wakeMatching(added *entry, seq uint64) {
	keys := added.keys(c.keys[:0])
	c.mu.Lock()
	size := int64(added.Size())
	c.index.find(keys, func(e *watchers) {
		for _, w := range e.list {
			if w.pendsLocked(w.wakeFor(seq), size) {
				c.woken = append(c.woken, w)
			}
		}
	})
	c.mu.Unlock()
	c.callWoken()
	clear(keys) // they pin the events
	if c.keys = keys; cap(keys) > maxKeys {
		c.keys = nil
	}
}

// Capacities up to which the writer's scratch slices are used again.
const (
	maxKeys  = 1 << 10
	maxWoken = 1 << 16
)

// wakeAll wakes every idle watcher at position seq, and those that have deferred it, to be
// told something.
func (c *Cache) wakeAll(seq uint64) {
	c.mu.Lock()
	c.index.all(func(e *watchers) {
		for _, w := range e.list {
			if w.wakeFor(seq) || w.deferral > 0 {
				c.woken = append(c.woken, w)
			}
		}
	})
	c.mu.Unlock()
	c.callWoken()
}

// callWoken calls the wakers outside the lock.
func (c *Cache) callWoken() {
	for i, w := range c.woken {
		w.waker.Wake()
		c.woken[i] = nil
	}
	c.woken = c.woken[:0]
	if cap(c.woken) > maxWoken {
		c.woken = nil
	}
}

// settle reports that every watcher concerned by v has been woken, and wakes those
// that wait for its progress.
func (c *Cache) settle(v *view) {
	c.settled.Store(v)
	c.freshness.reached(v.progress)
	for {
		c.mu.Lock()
		if len(c.waiting) == 0 || (c.waiting[0].revision > v.progress && !v.retired) {
			c.mu.Unlock()
			return
		}
		w := c.waiting[0]
		c.forgetLocked(w)
		c.mu.Unlock()
		w.waker.Wake()
	}
}

// retire ends the cache. What it holds stays readable for Split.
func (c *Cache) retire() {
	v := *c.view.Load()
	v.retired = true
	c.view.Store(&v)
	c.wakeAll(v.win.next) // at its end: idle, they have seen everything
	c.settle(&v)
}
