package cache

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wait"
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
			c.cfg.Logger.Warn("history compacted at the source: fetching the difference; watchers below the new floor fall behind",
				"range", c.cfg.Range, "requested", compacted.Requested, "floor", compacted.Floor)
			c.behind = true
			continue
		}
		if time.Since(began) > longest {
			pause = shortest
		}
		c.cfg.Logger.Debug("source ended", "range", c.cfg.Range, "error", err)
		if !wait.Sleep(ctx, pause/2+rand.N(pause/2)) {
			return nil
		}
		pause = min(2*pause, longest)
	}
}

// follow applies the updates of the source until it ends.
func (c *Cache) follow(ctx context.Context) error {
	req := kv.FollowRequest{Range: c.cfg.Range, Lineage: c.cfg.Lineage, Want: new(kv.Demand), Idle: c.Idle}
	switch {
	case c.tree == nil:
		if c.cfg.History != nil {
			req.HistoryFrom = c.cfg.History.Progress + 1
		}
	case !c.behind:
		req.From = c.view.Load().progress + 1
	case !c.cfg.Stateless:
		req.Held, req.HeldAt = c.held, c.view.Load().progress
	}
	// Requests for progress end with their source: repeat the lowest. Waiters without a request
	// count too: a merged window (see router) requests further revisions once this one is reached.
	c.want.Store(req.Want)
	if revision := c.wakeups.nearest(true); revision > 0 {
		c.Demand(revision)
	}
	var l *loading // a state that is being received
	req.Progress = func(revision kv.Revision) bool {
		loaded := l == nil && c.tree != nil
		if loaded {
			c.advance(revision)
		}
		return loaded
	}
	for u, err := range c.cfg.Source.Follow(ctx, req) {
		if err != nil {
			return c.suspect(err)
		}
		switch u.Kind {
		case kv.UpdateBegin:
			have := c.view.Load().progress
			switch {
			case u.Leap && c.tree == nil:
				return outOfTurn(u)
			case u.Leap || req.From == 0:
				if u.Revision < have {
					return fmt.Errorf("the source has the state of revision %d, older than this copy's, %d", u.Revision, have)
				}
				l = c.newLoading(u)
			case u.Revision > have:
				return fmt.Errorf("the source begins after revision %d, this copy is complete only up to %d", u.Revision, have)
			}
		case kv.UpdateState, kv.UpdateHistory, kv.UpdateTombstones:
			if l == nil {
				return outOfTurn(u)
			}
			if err := l.add(u); err != nil {
				return c.suspect(err)
			}
		case kv.UpdateReady:
			if l != nil {
				c.behind = false
				if err := c.finish(l); err != nil {
					return c.suspect(err)
				}
				l = nil
			} else if c.tree == nil {
				return outOfTurn(u)
			}
		case kv.UpdateBatch, kv.UpdateProgress:
			if l != nil || c.tree == nil {
				return outOfTurn(u)
			}
			if u.Kind == kv.UpdateBatch {
				b := u.Batch // a copy, because the window keeps it
				c.apply(&b)
				continue
			}
			c.advance(u.Revision)
		}
	}
	return ctx.Err()
}

func outOfTurn(u kv.Update) error {
	return fmt.Errorf("the source sent an update of kind %d out of turn", u.Kind)
}

// held yields the keys of the state, in key order.
func (c *Cache) held(yield func(*kv.KeyValue) bool) {
	if root := c.view.Load().root; root != nil { // nil: released while a source still reads
		root.Scan(yield)
	}
}

// suspect reports err to OtherHistory when the source contradicts the cache's
// contents. While the cache has no state, it also drops cfg.History: the next state
// is loaded without it.
func (c *Cache) suspect(err error) error {
	var found *kv.ContradictionError
	if !errors.As(err, &found) {
		return err
	}
	if old := c.cfg.History; c.tree == nil && old != nil {
		found.Claims = append(found.Claims, old.claims()...)
		c.cfg.History = nil
	}
	if c.cfg.OtherHistory != nil {
		c.cfg.OtherHistory(found)
	}
	return err
}
