package chaos

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// loadFaults are changes of the shard map that the cluster makes by itself: no
// client may notice more than a pause.
func loadFaults() []Fault {
	return []Fault{{
		Name: "hot", About: "one prefix is written to until the cluster has split its shard by itself, then left alone until it has merged it again",
		Stall: 500 * time.Millisecond, Shards: 2, Flags: hotFlags, Inject: heat,
	}}
}

// mostSplits is how many splits it takes at most to cool a shard that has half as
// much load again as is too much: one, and another where the cut was uneven.
const mostSplits = 2

// quiet is how long the map must stay as it is when the load does: the leader
// looks at the load every ten seconds, and a load counts that lasts for as long.
const quiet = 25 * time.Second

func hotFlags(c Config) []string {
	return []string{"--split-events", strconv.Itoa(hotBound(c.Rate, c.Shards)), "--split-after", "10s", "--merge-after", "10s"}
}

// hotBound is how many events per second are too much for a shard: about six times
// what each has of the usual writes. So what one has is less than the quarter from
// which on two are merged, and what two have is more.
func hotBound(rate, shards int) int { return max(1, 7*rate/shards) }

// heat makes a prefix hot and lets it cool down again.
func heat(ctx context.Context, s *Scene) (heal, error) {
	s.last = nil
	first, err := s.Cluster.fullMap(ctx)
	if err != nil {
		return nil, err
	}
	prefix, events := s.rng().IntN(s.keys.prefixes), hotBound(s.load.rate, len(first.Shards))*4/3
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() { stopped <- s.load.heat(ctx, stop, prefix, events) }()
	cool := sync.OnceValue(func() error { close(stop); return <-stopped })
	mend := func(context.Context) error { return cool() }
	s.Say("%d events/s more for %s", events, s.keys.prefix(prefix))
	if err := s.Cluster.await(ctx, "the hot shard to be split", func(m *shard.Map) error {
		if splits, _ := mapChanges(first, m); splits == 0 {
			return fmt.Errorf("there are %d shards", len(m.Shards))
		}
		return nil
	}); err != nil {
		return mend, err
	}
	if err := pause(ctx, quiet); err != nil {
		return mend, err
	}
	hot, err := s.Cluster.fullMap(ctx)
	if err != nil {
		return mend, err
	}
	splits, merges := mapChanges(first, hot)
	if splits > mostSplits || merges > 0 {
		return mend, fmt.Errorf("%d splits and %d merges while the load was the same", splits, merges)
	}
	s.Say("%d splits; no more for %s", splits, s.keys.prefix(prefix))
	if err := cool(); err != nil {
		return mend, err
	}
	if err := s.Cluster.await(ctx, "what was split to be merged", func(m *shard.Map) error {
		if _, merges := mapChanges(hot, m); merges < splits {
			return fmt.Errorf("%d of %d are", merges, splits)
		}
		return nil
	}); err != nil {
		return mend, err
	}
	if err := pause(ctx, quiet); err != nil {
		return mend, err
	}
	last, err := s.Cluster.fullMap(ctx)
	if err != nil {
		return mend, err
	}
	if again, merges := mapChanges(hot, last); again > 0 || merges != splits {
		return mend, fmt.Errorf("%d splits and %d merges after %d splits, while nothing was hot", again, merges, splits)
	}
	return mend, nil
}

// mapChanges returns how many splits in two and how many merges of two made one map
// of another: a split makes one shard more with two new IDs, a merge one shard less
// with one.
func mapChanges(from, to *shard.Map) (splits, merges int) {
	more, ids := len(to.Shards)-len(from.Shards), int(to.NextID-from.NextID)
	splits = (ids + more) / 3
	return splits, splits - more
}
