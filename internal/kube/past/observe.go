package past

import (
	"context"
	"maps"
	"slices"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// Observe returns a function that records former versions in the updates of one stream of another
// node: the deletes of its window, and the objects in c that its state replaces. Nodes answer a
// request without a version with their whole state, even if the caller holds an older state: the
// versions between the two states are a gap.
func (p *Past) Observe(c *cache.Cache, req kv.FollowRequest) func(*kv.Update) {
	var begin *kv.Update // of a state that replaces the held one
	var after kv.Revision
	var held []*kv.KeyValue
	var rest map[string]*kv.KeyValue // held objects that a whole state has not confirmed yet
	return func(u *kv.Update) {
		switch u.Kind {
		case kv.UpdateBegin:
			if begin = nil; u.Leap || req.From == 0 && req.Held != nil {
				begin, after, held, rest = u, c.Progress(), nil, map[string]*kv.KeyValue{}
			}
			if begin != nil && !u.Leap {
				for item := range req.Held {
					rest[string(item.Key())] = item
				}
			}
		case kv.UpdateHistory:
			p.Applied(&u.Batch)
		case kv.UpdateState:
			if begin == nil {
				return
			}
			held = append(held, replaced(c, u)...)
			for _, item := range u.KVs {
				delete(rest, string(item.Key()))
			}
		case kv.UpdateReady:
			if begin != nil {
				p.Gap(after, begin.Revision, slices.AppendSeq(held, maps.Values(rest)))
			}
			begin, held, rest = nil, nil, nil
		}
	}
}

// replaced returns the held objects that an update of a state changes or deletes.
func replaced(c *cache.Cache, u *kv.Update) (held []*kv.KeyValue) {
	state, err := c.At(context.Background(), 0)
	if err != nil {
		return nil // c is not loaded
	}
	for _, item := range u.KVs {
		if old := state.Get(string(item.Key())); old != nil && old.ModRevision() != item.ModRevision() {
			held = append(held, old)
		}
	}
	for _, key := range u.Gone {
		if old := state.Get(key); old != nil {
			held = append(held, old)
		}
	}
	return held
}
