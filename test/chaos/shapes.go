package chaos

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/check"
)

// Mix is the percentage of watches of each shape; the rest watch single keys.
type Mix struct {
	// Prefixes watch one prefix, which is in one shard.
	Prefixes int
	// Everything watches all shards.
	Everything int
}

// start is where a watch begins.
type start uint8

const (
	fromRevision start = iota // after a revision of the client
	stateFirst                // from the state
	fromNow                   // from the current revision
	starts
)

// wish is the request of one watcher.
type wish struct {
	by    kind
	watch check.Watch
	start start

	// slow: it stops reading while the gate is closed; see [gate].
	slow bool
	// conflate: the latest values at this interval; 0: every event. Only for the native API.
	conflate time.Duration

	// Only for etcd's API.
	notify   bool // progress_notify
	fragment bool
	leader   bool // it requires a leader
}

// wishes returns n watches of mixed shapes and starts, the same for the same seed. The ones with a
// start revision start after at.
func wishes(by kind, n int, mix Mix, keys keyspace, at kv.Revision, rng *rand.Rand) []wish {
	out := make([]wish, n)
	for i := range out {
		w := wish{by: by, start: start(rng.IntN(int(starts)))}
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
		w.watch.Prev, w.slow = rng.IntN(2) == 0, i%10 == 3
		if by == nativeClient && i%20 == 7 {
			w.conflate, w.watch.Prev = 100*time.Millisecond<<rng.IntN(4), false
			shape = "conflated " + shape
		}
		if w.start == fromRevision {
			w.watch.Start = at + 1
		}
		if apiOf(by) == Etcd {
			shape = w.asOfEtcd(shape, keys, rng)
		}
		w.watch.Name = fmt.Sprintf("%s watcher %d (%s %v)", by, i, shape, w.watch.Range)
		out[i] = w
	}
	return out
}

// asOfEtcd adds options that only etcd's API has, and returns the name of the shape.
func (w *wish) asOfEtcd(shape string, keys keyspace, rng *rand.Rand) string {
	w.notify, w.fragment, w.leader = rng.IntN(2) == 0, rng.IntN(3) == 0, rng.IntN(2) == 0
	switch rng.IntN(8) {
	case 0:
		w.watch.NoPuts = true
		shape += " deletes"
	case 1, 2:
		w.watch.NoDeletes = true
		shape += " puts"
	}
	if w.watch.Range.IsSingle() || rng.IntN(2) == 0 {
		return shape
	}
	if !w.watch.Merged { // the middle of a prefix
		p := rng.IntN(keys.prefixes)
		w.watch.Range = kv.Range{Start: keys.key(p, keys.keys/4), End: keys.key(p, keys.keys*3/4)}
		return shape + " middle"
	}
	if rng.IntN(2) == 0 {
		w.watch.Range = kv.Range{} // all existing keys
	} else {
		w.watch.Range = kv.Range{Start: keys.key(keys.prefixes/3, 0)} // and all later ones
	}
	return shape
}
