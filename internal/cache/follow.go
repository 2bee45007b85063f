package cache

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// Run follows the source until ctx ends, then retires the cache: its watchers
// get ErrRetired.
func (c *Cache) Run(ctx context.Context) error {
	defer c.retire()
	const shortest, longest = 50 * time.Millisecond, time.Second
	pause := shortest
	for {
		began := time.Now()
		err := c.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		var compacted *kv.CompactedError
		if errors.As(err, &compacted) {
			c.cfg.Logger.Warn("history is gone at the source: loading the state again; watchers behind the new floor are told",
				"range", c.cfg.Range, "requested", compacted.Requested, "floor", compacted.Floor)
			c.tree = nil // follow starts from nothing
			continue
		}
		if time.Since(began) > longest {
			pause = shortest
		}
		c.cfg.Logger.Debug("source ended", "range", c.cfg.Range, "error", err)
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-ctx.Done():
			return nil
		}
		pause = min(2*pause, longest)
	}
}

// follow applies what the source brings until it ends.
func (c *Cache) follow(ctx context.Context) error {
	req := kv.FollowRequest{Range: c.cfg.Range, Lineage: c.cfg.Lineage, Want: c.want}
	if c.tree != nil {
		req.From = c.view.Load().progress + 1
	}
	var l loading
	for u, err := range c.cfg.Source.Follow(ctx, req) {
		if err != nil {
			return err
		}
		switch u.Kind {
		case kv.UpdateBegin:
			l = loading{resumed: req.From > 0, revision: u.Revision, floor: u.Floor}
			if !l.resumed {
				l.tree = newTree()
			}
		case kv.UpdateState:
			for _, item := range u.KVs {
				l.tree.Load(item)
			}
		case kv.UpdateHistory:
			b := u.Batch
			l.batches = append(l.batches, &b)
		case kv.UpdateReady:
			if !l.resumed {
				c.load(l.tree, l.batches, l.floor, l.revision)
				req.From = l.revision + 1 // what begins after this is a resume
			}
			l = loading{}
		case kv.UpdateBatch:
			c.apply(&u.Batch)
		case kv.UpdateProgress:
			c.advance(u.Revision)
			if !u.FreshAt.IsZero() {
				c.freshness.confirm(u.FreshAt.Sub(c.start))
			}
		}
	}
	return ctx.Err()
}

// loading is a state on its way in.
type loading struct {
	resumed         bool
	tree            *tree
	batches         []*kv.Batch
	revision, floor kv.Revision
}

// load replaces all there is. Watchers from before have a gap, and are told.
func (c *Cache) load(t *tree, batches []*kv.Batch, floor, revision kv.Revision) {
	first := c.tree == nil && !c.view.Load().ready
	if !first {
		c.counters.resets.Add(1)
	}
	c.tree = t
	c.roots.clear()
	before := c.win.next
	c.win.reset(floor)
	var changed kv.Revision
	for _, b := range batches {
		c.win.append(b)
		changed = b.Revision
	}
	c.win.evict(time.Now())
	var bytes int64
	t.Scan(func(item *kv.KeyValue) bool {
		bytes += int64(item.Size())
		changed = max(changed, item.ModRevision())
		return true
	})
	c.counters.stateBytes.Store(bytes)
	v := &view{win: c.win.view(), root: t.Copy(), changed: changed, progress: revision, ready: true}
	c.view.Store(v)
	c.wakeAll(before) // below the new window: they have a gap
	c.settle(v)
	select {
	case <-c.ready:
	default:
		close(c.ready)
	}
}
