package placement

import (
	"fmt"
	"slices"
	"sync"

	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wait"
)

// versions holds the newest map that this node knows, from any source, and the deltas
// of the last versions.
//
// Invariant: all maps shown belong to one cluster, and their versions increase. Each
// step leads to the map from which the next step starts; the last step leads to m.
type versions struct {
	mu      sync.Mutex
	m       *shard.Map
	changed wait.Signal // notified when m is replaced

	steps  []*shard.Delta
	size   int                     // of steps, in shards
	deltas map[uint64]*shard.Delta // to m, by the version that they start from
}

// Steps are kept as long as they name fewer shards than the map has, or minSteps. A
// node that has missed more gets the map, which is cheaper.
const minSteps = 1024

// show makes m the newest map if its version is newer. A map of another cluster
// is refused with ErrForeign.
func (b *versions) show(m *shard.Map) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.m != nil {
		if m.ClusterID != b.m.ClusterID {
			return fmt.Errorf("shard map of cluster %s; this node's data directory belongs to cluster %s: %w", m.ClusterID, b.m.ClusterID, ErrForeign)
		}
		if m.Version <= b.m.Version {
			return nil
		}
		b.stepLocked(shard.Diff(b.m, m), len(m.Shards))
	}
	b.m = m
	b.deltas = make(map[uint64]*shard.Delta)
	b.changed.Notify()
	return nil
}

func (b *versions) watch() (*shard.Map, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.m, b.changed.Wait()
}

func (b *versions) stepLocked(d *shard.Delta, shards int) {
	b.steps = append(b.steps, d)
	b.size += d.Size() + 1
	drop := 0
	for b.size > max(minSteps, shards) && drop < len(b.steps) {
		b.size -= b.steps[drop].Size() + 1
		drop++
	}
	b.steps = slices.Delete(b.steps, 0, drop)
}

// since returns the newest map, and the delta to it from the given version of that
// cluster. All callers get the same delta, and share its encoding. The delta is nil
// if too much has changed since, or if the version is not known here.
func (b *versions) since(cluster string, version uint64) (*shard.Map, *shard.Delta) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.m == nil || b.m.ClusterID != cluster {
		return b.m, nil
	}
	if d := b.deltas[version]; d != nil {
		return b.m, d
	}
	i := slices.IndexFunc(b.steps, func(d *shard.Delta) bool { return d.From == version })
	if i < 0 {
		return b.m, nil
	}
	sum := b.steps[i]
	for _, next := range b.steps[i+1:] {
		sum = sum.Then(next)
	}
	b.deltas[version] = sum
	return b.m, sum
}
