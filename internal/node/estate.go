package node

import (
	"slices"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// estate is the caches that a change of the map ends, with those that have a
// state first.
type estate struct {
	held []*held
	live []kv.Range // those that somebody watches
}

func (e *estate) add(h *held) {
	if e.held = append(e.held, h); h.cache.Status().Watchers > 0 {
		e.live = append(e.live, h.cache.Range())
	}
}

// caches returns those of a lineage.
func (e *estate) caches(lineage uint64) []*cache.Cache {
	var out []*cache.Cache
	for _, h := range e.held {
		if h.cache.Lineage() == lineage {
			out = append(out, h.cache)
		}
	}
	return out
}

// watched reports whether somebody watches a part of r.
func (e *estate) watched(r kv.Range) bool { return slices.ContainsFunc(e.live, r.Overlaps) }
