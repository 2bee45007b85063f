package copies

import (
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/ops/telemetry"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// Register registers the metrics of the caches here. readers returns how many watches
// read caches through merged windows, holding how long these windows wait for caches.
func (s *Set) Register(m metric.Meter, readers func() map[*cache.Cache]int, holding func() map[*cache.Cache]time.Duration) error {
	in := telemetry.NewInstruments(m)
	gauge, counter, seconds := in.Gauge, in.Counter, in.Seconds
	var (
		replicas = gauge("shardwatch.node.replicas", "{replica}", "Shards that this node has a copy of.")
		relays   = gauge("shardwatch.node.relays", "{relay}", "Shards that this node follows for its clients without having a copy.")
		upstream = gauge("shardwatch.node.etcd_watches", "{watch}", "Shards that this node watches at etcd itself.")
		loading  = gauge("shardwatch.node.loading", "{replica}", "Copies that are still loading.")

		progress   = gauge("shardwatch.shard.progress", "{revision}", "Revision up to which the shard is complete here.")
		floor      = gauge("shardwatch.shard.floor", "{revision}", "Oldest revision that a watch may start from.")
		keys       = gauge("shardwatch.shard.keys", "{key}", "Keys held.")
		state      = gauge("shardwatch.shard.state", "By", "Bytes of the keys and values held, with the indexes over them.")
		roots      = gauge("shardwatch.shard.roots", "By", "Bytes that states of older revisions hold beside the newest, for reads at exactly these.")
		window     = gauge("shardwatch.shard.window", "By", "Bytes of the event window.")
		span       = seconds("shardwatch.shard.window_span", "Age of the oldest event in the window.")
		age        = seconds("shardwatch.shard.age", "Upper bound of the age of the shard's data. Absent while unknown.")
		watchers   = gauge("shardwatch.shard.watchers", "{watcher}", "Watchers of the shard on this node, including other nodes that follow it.")
		events     = counter("shardwatch.shard.events", "{event}", "Events applied.")
		deltaFloor = gauge("shardwatch.shard.delta_floor", "{revision}", "Oldest revision from which deletes are known: a watch that resumes from it or later gets a delta.")
		tombstones = gauge("shardwatch.shard.tombstones", "By", "Bytes of the deletes that are remembered.")
		deletes    = gauge("shardwatch.shard.deletes", "{delete}", "Deletes that are remembered.")
		squeezed   = counter("shardwatch.shard.deletes_squeezed", "{delete}", "Deletes evicted early because they exceeded --tombstone-bytes.")
		leaps      = counter("shardwatch.shard.leaps", "{leap}", "Times the shard was below etcd's compact revision and fetched the difference.")
		duplicates = counter("shardwatch.shard.duplicates", "{revision}", "Duplicate revisions dropped after a change of source.")
		resets     = counter("shardwatch.shard.resets", "{reset}", "Times the state was reloaded because history was compacted: watches below the new floor fell behind.")
		holds      = seconds("shardwatch.shard.holds_back", "Time that watches over several shards have waited for this shard to reach a revision of the others. 0: none waits.")
	)
	return in.Observe(func(o metric.Observer) {
		read, by := readers(), holding()
		held := make(map[shard.ID]time.Duration)
		var nReplicas, nRelays, nUpstream, nLoading int64
		for _, h := range s.All() {
			held[h.ID] = max(held[h.ID], by[h.Cache]) // a shard may have a relay and a replica
			if s.IsRelay(h) {
				nRelays++
				continue
			}
			_, direct := h.Source.Current()
			nReplicas, nUpstream, nLoading = nReplicas+1, nUpstream+telemetry.Bool(direct), nLoading+telemetry.Bool(!h.Ready())
			label := ofShard(h.ID)
			c := h.Cache.Status()
			o.ObserveInt64(progress, int64(c.Progress), label)
			o.ObserveInt64(floor, int64(c.Floor), label)
			o.ObserveInt64(keys, int64(c.Keys), label)
			o.ObserveInt64(state, c.StateBytes, label)
			o.ObserveInt64(roots, c.RootsBytes, label)
			o.ObserveInt64(window, c.WindowBytes, label)
			o.ObserveFloat64(span, c.WindowSpan.Seconds(), label)
			if c.AgeKnown {
				o.ObserveFloat64(age, c.Age.Seconds(), label)
			}
			o.ObserveInt64(watchers, int64(c.Watchers+read[h.Cache]), label)
			o.ObserveInt64(events, c.Events, label)
			o.ObserveInt64(deltaFloor, int64(c.DeltaFloor), label)
			o.ObserveInt64(tombstones, c.TombstoneBytes, label)
			o.ObserveInt64(deletes, int64(c.Tombstones), label)
			o.ObserveInt64(squeezed, c.TombstonesSqueezed, label)
			o.ObserveInt64(leaps, c.Leaps, label)
			o.ObserveInt64(duplicates, c.Late, label)
			o.ObserveInt64(resets, c.Resets, label)
		}
		o.ObserveInt64(replicas, nReplicas)
		o.ObserveInt64(relays, nRelays)
		o.ObserveInt64(upstream, nUpstream)
		o.ObserveInt64(loading, nLoading)
		for id, age := range held {
			o.ObserveFloat64(holds, age.Seconds(), ofShard(id))
		}
	})
}

func ofShard(id shard.ID) metric.MeasurementOption {
	return metric.WithAttributes(attribute.String("shard", strconv.FormatUint(uint64(id), 10)))
}
