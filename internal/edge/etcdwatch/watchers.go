package etcdwatch

import (
	"iter"

	"github.com/shardwatch/shardwatch/internal/ops/tally"
)

// Watchers returns the open watches. It blocks no other caller, and may
// tell of some that have just ended.
func (x *Streams) Watchers() iter.Seq[tally.Watcher] {
	return func(yield func(tally.Watcher) bool) {
		for _, s := range x.list() {
			for _, w := range s.list() {
				if w.tally.Rung() != 0 && !yield(tally.Watcher{Client: s.from, User: w.caller, ID: w.id, Range: w.rng, Watch: &w.tally}) {
					return
				}
			}
		}
	}
}
