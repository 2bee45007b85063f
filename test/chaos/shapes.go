package chaos

import (
	"fmt"
	"math/rand/v2"

	"github.com/shardwatch/shardwatch/internal/check"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// Mix says how many watches of each shape there are, in percent; the rest
// watch single keys.
type Mix struct {
	// Prefixes watch one of the prefixes, which lies in one shard.
	Prefixes int
	// Everything watches all shards.
	Everything int
}

// start says how a watch begins.
type start uint8

const (
	fromRevision start = iota // behind a revision known to the client
	stateFirst                // with the state
	fromNow                   // with what comes
	starts
)

// wish is what one watcher asks for.
type wish struct {
	watch check.Watch
	start start
}

// wishes returns n watches of mixed shapes and starts, the same for the same
// seed. at is the revision that those start behind that start at one.
func wishes(n int, mix Mix, keys keyspace, at kv.Revision, rng *rand.Rand) []wish {
	out := make([]wish, n)
	for i := range out {
		w := wish{start: start(rng.IntN(int(starts)))}
		shape := "key"
		switch p := i * 100 / n; {
		case p < mix.Everything:
			shape = "everything"
			w.watch.Range, w.watch.Merged = kv.Prefix("/"), true
		case p < mix.Everything+mix.Prefixes:
			shape = "prefix"
			w.watch.Range = kv.Prefix(keys.prefix(rng.IntN(keys.prefixes)))
		default:
			w.watch.Range = kv.Single(keys.any(rng))
		}
		w.watch.Prev = rng.IntN(2) == 0
		if w.start == fromRevision {
			w.watch.Start = at + 1
		}
		w.watch.Name = fmt.Sprintf("watcher %d (%s %v)", i, shape, w.watch.Range)
		out[i] = w
	}
	return out
}
