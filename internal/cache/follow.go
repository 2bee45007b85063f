package cache

import (
	"context"
	"errors"
	"fmt"
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
		if errors.As(err, &compacted) && c.tree != nil {
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
	c.demandAgain() // what the last source was asked for went with it
	var l *loading  // a state on its way in
	for u, err := range c.cfg.Source.Follow(ctx, req) {
		if err != nil {
			return err
		}
		switch u.Kind {
		case kv.UpdateBegin:
			if c.tree == nil {
				l = newLoading(u)
			} else if have := c.view.Load().progress; u.Revision > have {
				return fmt.Errorf("the source begins behind revision %d, we have everything up to %d only", u.Revision, have)
			}
		case kv.UpdateState, kv.UpdateHistory:
			if l == nil {
				return outOfTurn(u)
			}
			l.add(u, c.cfg.Stateless)
		case kv.UpdateReady:
			if l != nil {
				if have := c.view.Load().progress; l.revision < have {
					return fmt.Errorf("the source has the state of revision %d, older than ours of %d", l.revision, have)
				}
				c.load(l.tree, l.batches, l.floor, l.revision)
				l = nil
			} else if c.tree == nil {
				return outOfTurn(u)
			}
		case kv.UpdateBatch, kv.UpdateProgress:
			if l != nil || c.tree == nil {
				return outOfTurn(u)
			}
			if u.Kind == kv.UpdateBatch {
				c.apply(&u.Batch)
				continue
			}
			c.advance(u.Revision)
			if !u.FreshAt.IsZero() {
				c.freshness.confirm(u.FreshAt.Sub(c.start))
			}
		}
	}
	return ctx.Err()
}

func outOfTurn(u kv.Update) error {
	return fmt.Errorf("the source sent an update of kind %d out of turn", u.Kind)
}

// firstRevision is that of an etcd to which nothing was written yet.
const firstRevision = 1

// loading is a state on its way in.
type loading struct {
	tree            *tree
	batches         []*kv.Batch
	revision, floor kv.Revision
}

func newLoading(begin kv.Update) *loading {
	l := &loading{tree: newTree(), revision: begin.Revision, floor: begin.Floor}
	if l.floor == 0 { // no history
		l.floor = l.revision + 1
	}
	return l
}

func (l *loading) add(u kv.Update, stateless bool) {
	if u.Kind == kv.UpdateHistory {
		l.batches = append(l.batches, &u.Batch)
		return
	}
	if stateless {
		return
	}
	for _, item := range u.KVs {
		l.tree.Load(item)
	}
}

// load replaces all there is. Watchers from before have a gap, and are told.
func (c *Cache) load(t *tree, batches []*kv.Batch, floor, revision kv.Revision) {
	if c.view.Load().ready {
		c.counters.resets.Add(1)
	}
	if revision <= firstRevision { // nothing can have happened before
		floor = min(floor, firstRevision)
	}
	c.tree = t
	c.roots.clear()
	before := c.win.next
	c.win.reset(floor)
	// The history is complete from the floor on: what happened before it is
	// not known, deletes least of all.
	changed := floor - 1
	for _, b := range batches {
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
