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
		// When the source changes, both sources may send a batch. It is applied once.
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
				// A second change of the key within the revision: as in etcd, the
				// previous value is the value at the revision before.
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
	c.wakeups.matching(added, seq)
	c.settle(v)
}

// advance records progress, and at most once per second trims by age.
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

// complain logs the early eviction of deletes.
func (c *Cache) complain(now time.Time) {
	_, bytes, floor, squeezed := c.changes.status()
	if squeezed == c.squeezed || now.Sub(c.complained) < complainEvery && c.squeezed > 0 {
		return
	}
	c.squeezed, c.complained = squeezed, now
	c.cfg.Logger.Warn("deletes evicted early: clients that were away for longer get the whole state (see --tombstone-bytes)",
		"range", c.cfg.Range, "delta_floor", floor, "bytes", bytes, "forgotten", squeezed)
}

// settle reports that every watcher concerned by v has been woken, and wakes those
// that wait for its progress.
func (c *Cache) settle(v *view) {
	c.settled.Store(v)
	c.freshness.reached(v.progress)
	c.wakeups.reached(v.progress, v.retired)
}

// retire ends the cache. Its contents remain, for Inherit and Since.
func (c *Cache) retire() {
	v := *c.view.Load()
	v.retired = true
	c.view.Store(&v)
	c.wakeups.all(v.win.next) // at the end of the window: idle watchers have read all batches
	c.settle(&v)
}

// Release frees the memory of a cache whose Run has returned, except for its window, because
// watchers have positions in it. A watcher whose client does not read can keep the cache reachable
// for long. After Release the cache counts as not loaded: it has no data for Inherit and Since.
func Release(c *Cache) {
	v := *c.view.Load()
	v.ready, v.root = false, nil
	c.view.Store(&v)
	c.settled.Store(&v)
	// Only after the view is stored: a reader with an older view that misses some of this data then
	// finds the cache retired.
	c.tree, c.cfg.History = nil, nil
	c.roots.Clear()
	c.changes.reset(keytree.New(), nil, v.progress+1, time.Now())
}
