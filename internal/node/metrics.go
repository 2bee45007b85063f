package node

import (
	"context"
	"errors"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/shardwatch/shardwatch/internal/netlimit"
)

// register has the node's state observed at each scrape: nothing is counted
// twice, and nothing costs the hot path.
func (n *Node) register(m metric.Meter) error {
	in := &instruments{m: m}
	gauge, seconds, counter, total := in.gauge, in.seconds, in.counter, in.total
	var (
		replicas    = gauge("shardwatch.node.replicas", "{replica}", "Shards that this node has a copy of.")
		relays      = gauge("shardwatch.node.relays", "{relay}", "Shards that this node follows for its clients without having a copy.")
		upstream    = gauge("shardwatch.node.etcd_watches", "{watch}", "Shards that this node watches at etcd itself.")
		loading     = gauge("shardwatch.node.loading", "{replica}", "Copies that are still being loaded.")
		watches     = gauge("shardwatch.server.watches", "{watch}", "Open watches of clients.")
		connections = gauge("shardwatch.server.connections", "{connection}", "Open connections of clients and nodes.")
		mapVersion  = gauge("shardwatch.node.map_version", "{version}", "Version of the shard map that this node acts on.")
		revision    = gauge("shardwatch.etcd.revision", "{revision}", "etcd's revision as read last.")

		permits      = gauge("shardwatch.etcd.permits", "{permit}", "Permits to list or to catch up far at etcd that this node has given out. One node of the cluster gives them.")
		permitsAsked = gauge("shardwatch.etcd.permits_asked", "{permit}", "Permits that are waited for at this node.")
		permitWaits  = gauge("shardwatch.etcd.permit_waits", "{permit}", "Lists, leaps and long catch-ups of this node that wait for a permit.")
		permitWait   = total("shardwatch.etcd.permit_wait", "Time that those have waited so far, together.")
		granted      = counter("shardwatch.etcd.permits_granted", "{permit}", "Permits that this node was given.")
		alone        = counter("shardwatch.etcd.permits_missed", "{permit}", "Times that this node went on without a permit of the cluster, because it reached nobody who gives them.")

		kept      = gauge("shardwatch.history.size", "By", "Bytes on disk of what is known of the past.")
		written   = counter("shardwatch.history.written", "By", "Bytes of it that were written.")
		unwritten = counter("shardwatch.history.failures", "{shard}", "Times that a shard's part of it could not be written.")
		failing   = gauge("shardwatch.history.failing", "{bool}", "1 while it cannot be written, as the log tells why.")
		discarded = counter("shardwatch.history.discarded", "{file}", "Parts of it that were not used at the start, as the log tells why: files, shards, ends of segments.")

		auth          = gauge("shardwatch.auth.on", "{bool}", "1 while etcd's authentication is on. Absent while that is not known.")
		authRevision  = gauge("shardwatch.auth.revision", "{revision}", "Revision of etcd's users and roles that reads are checked against.")
		users         = gauge("shardwatch.auth.users", "{user}", "etcd's users.")
		tokens        = gauge("shardwatch.auth.tokens", "{token}", "Tokens whose user is known here.")
		lookups       = counter("shardwatch.auth.lookups", "{token}", "Tokens that were new here, and looked up.")
		confirmations = counter("shardwatch.auth.confirmations", "{question}", "Times that etcd said it takes a token.")
		refusals      = counter("shardwatch.auth.refusals", "{call}", "Calls whose token was not taken.")
		denials       = counter("shardwatch.auth.denials", "{read}", "Reads and watches that were denied, or ended, because the user has no right to them.")

		progress   = gauge("shardwatch.shard.progress", "{revision}", "Revision up to which the shard is complete here.")
		floor      = gauge("shardwatch.shard.floor", "{revision}", "Oldest revision that a watch may start from.")
		keys       = gauge("shardwatch.shard.keys", "{key}", "Keys held.")
		state      = gauge("shardwatch.shard.state", "By", "Bytes of the keys and values held, with the indexes over them.")
		roots      = gauge("shardwatch.shard.roots", "By", "Bytes that states of older revisions hold beside the newest, for reads at exactly these.")
		window     = gauge("shardwatch.shard.window", "By", "Bytes of the event window.")
		span       = seconds("shardwatch.shard.window_span", "Age of the oldest event in the window.")
		age        = seconds("shardwatch.shard.age", "How old the shard's data may be. Absent while that is not known.")
		watchers   = gauge("shardwatch.shard.watchers", "{watcher}", "Watchers of the shard on this node, those of other nodes included.")
		events     = counter("shardwatch.shard.events", "{event}", "Events applied.")
		deltaFloor = gauge("shardwatch.shard.delta_floor", "{revision}", "Oldest revision from which on deletes are known: a watch that is not further behind is sent what has changed.")
		tombstones = gauge("shardwatch.shard.tombstones", "By", "Bytes of the deletes that are remembered.")
		deletes    = gauge("shardwatch.shard.deletes", "{delete}", "Deletes that are remembered.")
		squeezed   = counter("shardwatch.shard.deletes_squeezed", "{delete}", "Deletes that were forgotten before their time, because they took too many bytes (--tombstone-bytes).")
		leaps      = counter("shardwatch.shard.leaps", "{leap}", "Times the shard was behind what etcd has compacted, and took what differs.")
		duplicates = counter("shardwatch.shard.duplicates", "{revision}", "Revisions that came a second time when the source changed, and were dropped.")
		resets     = counter("shardwatch.shard.resets", "{reset}", "Times the state had to be loaded anew because history was gone: watches behind were told so.")
	)
	for _, err := range in.errs {
		if err != nil {
			return err
		}
	}
	_, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s, merged := n.server.Status(), n.router.Merged()
		nReplicas, nRelays, direct := int64(0), int64(0), int64(0)
		for _, h := range n.store.all() {
			if n.store.replica(h.id) != h {
				nRelays++
				continue
			}
			nReplicas++
			if _, d := h.source.Current(); d {
				direct++
			}
			c := h.cache.Status()
			label := metric.WithAttributes(attribute.String("shard", strconv.FormatUint(uint64(h.id), 10)))
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
			o.ObserveInt64(watchers, int64(c.Watchers+merged.Watches[h.cache]), label)
			o.ObserveInt64(events, c.Events, label)
			o.ObserveInt64(deltaFloor, int64(c.DeltaFloor), label)
			o.ObserveInt64(tombstones, c.TombstoneBytes, label)
			o.ObserveInt64(deletes, int64(c.Tombstones), label)
			o.ObserveInt64(squeezed, c.TombstonesSqueezed, label)
			o.ObserveInt64(leaps, c.Leaps, label)
			o.ObserveInt64(duplicates, c.Late, label)
			o.ObserveInt64(resets, c.Resets, label)
		}
		notLoaded, _, _ := n.store.loading()
		if g := n.guard.Status(); g.Known {
			on := int64(0)
			if g.On {
				on = 1
			}
			o.ObserveInt64(auth, on)
			o.ObserveInt64(authRevision, int64(g.Revision)) //nolint:gosec // a count of changes
			o.ObserveInt64(users, int64(g.Users))
			o.ObserveInt64(tokens, int64(g.Tokens))
			o.ObserveInt64(lookups, g.Lookups)
			o.ObserveInt64(confirmations, g.Confirmations)
			o.ObserveInt64(refusals, g.Refused)
			o.ObserveInt64(denials, g.Denied)
		}
		if h := n.history.store; h != nil {
			h := h.Status()
			bad := int64(0)
			if h.Failing != "" {
				bad = 1
			}
			o.ObserveInt64(kept, h.Bytes)
			o.ObserveInt64(written, h.Written)
			o.ObserveInt64(unwritten, h.Failed)
			o.ObserveInt64(failing, bad)
			o.ObserveInt64(discarded, h.Discarded)
		}
		out, asked := n.permits.grants.count()
		o.ObserveInt64(permits, int64(out))
		o.ObserveInt64(permitsAsked, int64(asked))
		o.ObserveInt64(permitWaits, n.permits.waiting.Load())
		o.ObserveFloat64(permitWait, time.Duration(n.permits.waited.Load()).Seconds())
		o.ObserveInt64(granted, n.permits.granted.Load())
		o.ObserveInt64(alone, n.permits.alone.Load())
		o.ObserveInt64(replicas, nReplicas)
		o.ObserveInt64(relays, nRelays)
		o.ObserveInt64(upstream, direct)
		o.ObserveInt64(loading, int64(notLoaded))
		o.ObserveInt64(watches, s.GetWatches())
		o.ObserveInt64(connections, s.GetConnections())
		o.ObserveInt64(mapVersion, int64(s.GetMapVersion())) //nolint:gosec // a count of changes
		o.ObserveInt64(revision, s.GetEtcdRevision())
		return nil
	}, replicas, relays, upstream, loading, watches, connections, mapVersion, revision,
		kept, written, unwritten, failing, discarded,
		permits, permitsAsked, permitWaits, permitWait, granted, alone,
		auth, authRevision, users, tokens, lookups, confirmations, refusals, denials,
		progress, floor, keys, state, roots, window, span, age, watchers, events, duplicates, resets,
		deltaFloor, tombstones, deletes, squeezed, leaps)
	if err != nil {
		return err
	}
	return errors.Join(netlimit.Register(m, n.limits.all()...), n.registerWatches(m), n.registerLineage(m), n.registerVerify(m), n.registerCluster(m), n.registerPlacement(m), n.registerHolding(m), n.registerEtcd(m), n.registerCalls(m), n.registerAccess(m), n.registerBudget(m))
}
