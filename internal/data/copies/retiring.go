package copies

import (
	"slices"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// retiring has the caches that a change of the map ends; caches with a state come
// first.
type retiring struct {
	held []*Copy
	live []kv.Range // watched ranges
}

func (e *retiring) add(h *Copy) {
	if e.held = append(e.held, h); h.Cache.Status().Watchers > 0 {
		e.live = append(e.live, h.Cache.Range())
	}
}

// caches returns the caches of a lineage.
func (e *retiring) caches(lineage uint64) []*cache.Cache {
	var out []*cache.Cache
	for _, h := range e.held {
		if h.Cache.Lineage() == lineage {
			out = append(out, h.Cache)
		}
	}
	return out
}

// watched reports whether a client watches a part of r.
func (e *retiring) watched(r kv.Range) bool { return slices.ContainsFunc(e.live, r.Overlaps) }
