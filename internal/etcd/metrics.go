package etcd

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/shardwatch/shardwatch/internal/ops/telemetry"
)

// Register registers the metrics of this node's requests to etcd.
func (c *Client) Register(m metric.Meter) error {
	in := telemetry.NewInstruments(m)
	gauge, counter := in.Gauge, in.Counter
	var (
		open    = gauge("shardwatch.etcd.watches", "{watch}", "Watches of this node that are open at etcd, including those catching up. Adjacent shards of an owner share one.")
		opened  = counter("shardwatch.etcd.watches_opened", "{watch}", "Watches opened at etcd.")
		streams = gauge("shardwatch.etcd.watch_streams", "{stream}", "Streams of these watches. Those that have caught up share one.")
		joins   = counter("shardwatch.etcd.shared_stream_joins", "{watch}", "Watches that caught up and moved to the shared stream.")
		leaves  = counter("shardwatch.etcd.shared_stream_leaves", "{watch}", "Watches that moved from the shared stream to separate streams, by reason: slow, because their data waited here to be applied, or other, such as compacted.")
		quiet   = counter("shardwatch.etcd.progress_questions", "{question}", "Progress requests to etcd. One serves all watches of a stream.")
		ended   = counter("shardwatch.etcd.watches_ended", "{watch}", "Watches at etcd that ended early, by reason: compacted, or silent while a caller waited.")
		lists   = counter("shardwatch.etcd.lists", "{list}", "Lists begun at etcd, by what: all keys and values of a shard (state), the difference from the cache (difference), keys alone, or again because etcd compacted their revision.")
		keys    = counter("shardwatch.etcd.listed", "{key}", "Keys that lists requested from etcd.")
		bytes   = counter("shardwatch.etcd.listed_size", "By", "Bytes of keys and values received by lists.")
		events  = counter("shardwatch.etcd.events", "{event}", "Events received by watches.")
		brought = counter("shardwatch.etcd.events_size", "By", "Bytes of keys and values received by watches.")
		far     = counter("shardwatch.etcd.far_behind", "{watch}", "Watches at etcd that started far behind and waited for a permit.")
		reads   = counter("shardwatch.etcd.revision_reads", "{read}", "Reads of etcd's revision.")
		asked   = counter("shardwatch.etcd.revision_questions", "{question}", "Requests for etcd's revision, or whether etcd has reached one: many share a read.")
		apart   = counter("shardwatch.etcd.disagreements", "{answer}", "Answers of a member of etcd that contradict another member's.")
	)
	return in.Observe(func(o metric.Observer) {
		s := c.Stats()
		labelled := func(of metric.Int64ObservableCounter, name, value string, times int64) {
			o.ObserveInt64(of, times, metric.WithAttributes(attribute.String(name, value)))
		}
		o.ObserveInt64(open, s.WatchesOpen)
		o.ObserveInt64(opened, s.Watches)
		o.ObserveInt64(streams, s.StreamsOpen)
		o.ObserveInt64(joins, s.Joins)
		labelled(leaves, "why", "slow", s.LeftSlow)
		labelled(leaves, "why", "other", s.LeftOther)
		o.ObserveInt64(quiet, s.ProgressAsked)
		labelled(ended, "why", "compacted", s.Compacted)
		labelled(ended, "why", "silent", s.Silenced)
		labelled(lists, "what", "state", s.Lists)
		labelled(lists, "what", "difference", s.Leaps)
		labelled(lists, "what", "keys", s.KeyLists)
		labelled(lists, "what", "again", s.ListRestarts)
		o.ObserveInt64(keys, s.ListedKeys+s.LeapKeys)
		o.ObserveInt64(bytes, s.ListedBytes+s.LeapBytes)
		o.ObserveInt64(events, s.Events)
		o.ObserveInt64(brought, s.EventBytes)
		o.ObserveInt64(far, s.FarBehind)
		o.ObserveInt64(reads, s.ClockReads)
		o.ObserveInt64(asked, s.ClockCalls+s.RevisionChecks)
		o.ObserveInt64(apart, s.Disagreements)
	})
}
