package chaos

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// loadFaults are changes of the shard map that the cluster makes on its own. They may cause no more
// than a pause for clients.
func loadFaults() []Fault {
	return []Fault{{
		Name: "hot", About: "writes to one prefix make the cluster split its shard automatically; after they stop, it merges as many",
		Stall: 500 * time.Millisecond, Shards: 12, Flags: hotFlags, Inject: heat, // 12: see hotShards
	}}
}

// mostSplits bounds the splits that cool a shard with 1.5 times the permitted load: one, and
// another if the cut was uneven.
const mostSplits = 2

// quiet is the time without changes of the map under a steady load: the leader checks the load
// every ten seconds, and acts on a load that lasts that long.
const quiet = 25 * time.Second

func hotFlags(c Config) []string {
	shards := hotShards(c)
	return []string{"--shards", strconv.Itoa(shards), "--split-events", strconv.Itoa(hotBound(c.Rate, shards)), "--split-after", "10s", "--merge-after", "10s"}
}

// hotShards is the initial number of shards: one for each prefix. With few shards, as usual, too many
// events for a shard would be more than two cores can write and watch.
func hotShards(c Config) int { return max(c.Shards, c.Prefixes) }

// hotBound is the number of events per second that is too much for a shard: about five times the
// usual writes of each. So the rate of one shard is below the quarter up to which two are merged,
// and the rate of two is above it, when etcd reaches the target rate.
func hotBound(rate, shards int) int { return max(1, 5*rate/shards) }

// heat puts load on one prefix and removes it again.
func heat(ctx context.Context, s *Scene) (heal, error) {
	s.last = nil
	first, err := s.Cluster.fullMap(ctx)
	if err != nil {
		return nil, err
	}
	prefix := 0
	for _, prefix = range s.rng().Perm(s.keys.prefixes) {
		if s.keys.alone(first, prefix) {
			break
		}
	}
	events := hotBound(s.load.rate, len(first.Shards)) * 4 / 3
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() { stopped <- s.load.heat(ctx, stop, prefix, events) }()
	cool := sync.OnceValue(func() error { close(stop); return <-stopped })
	mend := func(context.Context) error { return cool() }
	s.Say("%d events/s more for %s", events, s.keys.prefix(prefix))
	hot, err := s.Cluster.rests(ctx, "the hot shard to be split", func(m *shard.Map) error {
		if n := len(s.keys.shards(m, prefix)); n == len(s.keys.shards(first, prefix)) {
			return fmt.Errorf("%s is in %d of %d shards", s.keys.prefix(prefix), n, len(m.Shards))
		}
		return nil
	})
	if err != nil {
		return mend, err
	}
	splits, merges := mapChanges(first, hot)
	if splits > mostSplits || merges > splits {
		return mend, fmt.Errorf("%d splits and %d merges while the load was the same", splits, merges)
	}
	s.Say("%d splits, %d merges; no more for %s", splits, merges, s.keys.prefix(prefix))
	if err := cool(); err != nil {
		return mend, err
	}
	last, err := s.Cluster.rests(ctx, "as many shards as there were", func(m *shard.Map) error {
		if len(m.Shards) != len(first.Shards) {
			return fmt.Errorf("there are %d, and %d were", len(m.Shards), len(first.Shards))
		}
		return nil
	})
	if err != nil {
		return mend, err
	}
	if again, _ := mapChanges(hot, last); again > 0 {
		return mend, fmt.Errorf("%d splits while nothing was hot", again)
	}
	return mend, nil
}

// rests waits until is accepts the map, and returns the map of a while later, which is must still
// accept.
func (c *Cluster) rests(ctx context.Context, what string, is func(*shard.Map) error) (*shard.Map, error) {
	if err := c.await(ctx, what, is); err != nil {
		return nil, err
	}
	if err := pause(ctx, quiet); err != nil {
		return nil, err
	}
	m, err := c.fullMap(ctx)
	if err != nil {
		return nil, err
	}
	if err := is(m); err != nil {
		return nil, fmt.Errorf("%s did not last: %w", what, err)
	}
	return m, nil
}

// shards returns the shards of m that contain keys of the i-th prefix.
func (k keyspace) shards(m *shard.Map, i int) (in []*shard.Shard) {
	for j := range m.Shards {
		if s := &m.Shards[j]; s.Range.Overlaps(kv.Prefix(k.prefix(i))) {
			in = append(in, s)
		}
	}
	return in
}

// alone reports whether the i-th prefix has a shard to itself.
func (k keyspace) alone(m *shard.Map, i int) bool {
	in := k.shards(m, i)
	for other := range k.prefixes {
		if other != i && in[0].Range.Overlaps(kv.Prefix(k.prefix(other))) {
			return false
		}
	}
	return len(in) == 1
}

// mapChanges returns the number of two-way splits and merges between two maps: a split makes one
// shard more with two new IDs, a merge one shard less with one new ID.
func mapChanges(from, to *shard.Map) (splits, merges int) {
	more, ids := len(to.Shards)-len(from.Shards), int(to.NextID-from.NextID)
	splits = (ids + more) / 3
	return splits, splits - more
}
