package etcdwatch

import (
	"iter"

	"github.com/shardwatch/shardwatch/internal/ops/watchstats"
)

// Watchers returns the open watches. It blocks no other caller, and may
// include watches that have just ended.
func (x *Streams) Watchers() iter.Seq[watchstats.Watcher] {
	return func(yield func(watchstats.Watcher) bool) {
		for _, s := range x.list() {
			for _, w := range s.list() {
				if w.stats.Mode() != 0 && !yield(watchstats.Watcher{Client: s.from, User: w.caller, ID: w.id, Range: w.rng, Watch: &w.stats}) {
					return
				}
			}
		}
	}
}
