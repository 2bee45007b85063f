package server

import (
	"errors"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/ops/telemetry"
	"github.com/shardwatch/shardwatch/internal/ops/watchstats"
)

// Register registers the metrics of the clients' watches and calls.
func (s *Server) Register(m metric.Meter) error {
	return errors.Join(s.registerWatches(m), s.registerCalls(m), s.registerHeldBack(m))
}

// registerHeldBack registers the metrics of the events that streams to other nodes delay.
func (s *Server) registerHeldBack(m metric.Meter) error {
	in := telemetry.NewInstruments(m)
	streams := in.Gauge("shardwatch.server.held_back_streams", "{stream}", "Streams of shards to other nodes that send events with each ping, every 200 ms, since no client there watches or reads the shard.")
	bytes := in.Gauge("shardwatch.server.held_back", "By", "Bytes of events that streams of idle shards hold back until the next ping, at most 256 KiB each. The window of the shard has these events.")
	return in.Observe(func(o metric.Observer) {
		n, size := s.heldBack()
		o.ObserveInt64(streams, int64(n))
		o.ObserveInt64(bytes, size)
	})
}

// registerWatches registers the metrics of the clients' watches.
func (s *Server) registerWatches(m metric.Meter) error {
	in := telemetry.NewInstruments(m)
	gauge, seconds, counter, total := in.Gauge, in.Seconds, in.Counter, in.TotalSeconds
	var (
		watches     = gauge("shardwatch.server.watches", "{watch}", "Open watches of clients.")
		connections = gauge("shardwatch.server.connections", "{connection}", "Open connections of clients and nodes.")

		modes = gauge("shardwatch.server.watches_by_mode", "{watch}", "Open watches of clients by serve mode: window, delta, resync, conflated, or etcd's log.")
		lag   = gauge("shardwatch.server.watch_lag", "{revision}", "Revisions at this node that were not yet sent to a watch: median, 99th percentile and maximum over the watches.")
		units = counter("shardwatch.server.units", "{unit}", "Units sent to watches: changes (delta, conflated) or the whole state (state, resync).")
		keys  = counter("shardwatch.server.unit_keys", "{key}", "Keys sent in units.")
		bytes = counter("shardwatch.server.unit_sent", "By", "Bytes sent in units.")
		made  = counter("shardwatch.server.unit_made", "By", "Bytes of units that were built; units shared by watches count once.")
		begun = counter("shardwatch.server.units_begun", "{unit}", "Units begun; units shared by watches count once.")
		queue = gauge("shardwatch.server.units_waiting", "{watch}", "Watches waiting for a unit to begin.")
		opens = gauge("shardwatch.server.watches_opening", "{watch}", "New watches of both APIs that are opening and need etcd or other nodes.")
		stand = gauge("shardwatch.server.watches_waiting", "{watch}", "New watches of both APIs that are queued to open.")
		runs  = gauge("shardwatch.server.units_running", "{unit}", "Units that are being sent to the first of their watches.")

		behind = seconds("shardwatch.server.watch_behind", "Age of the oldest revision at this node that was not yet sent to a watch: median, 99th percentile and maximum over the watches.")
		waited = total("shardwatch.server.units_waited", "Total time that watches have waited for a unit to begin.")
	)
	return in.Observe(func(o metric.Observer) {
		connected, open := s.load()
		o.ObserveInt64(connections, connected)
		o.ObserveInt64(watches, open)
		for _, w := range s.WatchSummaries() {
			api := attribute.String("api", w.API)
			for _, r := range watchstats.Modes() {
				o.ObserveInt64(modes, w.Modes[r], metric.WithAttributes(api, attribute.String("mode", r.String())))
			}
			for i, q := range Quantiles() {
				label := metric.WithAttributes(api, attribute.Float64("quantile", q))
				o.ObserveInt64(lag, int64(w.Lag[i]), label)
				o.ObserveFloat64(behind, w.Behind[i].Seconds(), label)
			}
		}
		u := s.native.Batches()
		for kind, sent := range u.Sent {
			if kind == int(shardwatchv1.SyncKind_SYNC_KIND_UNSPECIFIED) {
				continue
			}
			name := strings.ToLower(strings.TrimPrefix(shardwatchv1.SyncKind(kind).String(), "SYNC_KIND_"))
			label := metric.WithAttributes(attribute.String("kind", name))
			o.ObserveInt64(units, sent.Batches, label)
			o.ObserveInt64(keys, sent.Keys, label)
			o.ObserveInt64(bytes, sent.Bytes, label)
		}
		running, waiting := s.cfg.OpenQueue.Figures()
		o.ObserveInt64(opens, int64(running))
		o.ObserveInt64(stand, int64(waiting))
		o.ObserveInt64(made, u.Made)
		o.ObserveInt64(begun, u.Begun)
		o.ObserveInt64(queue, int64(u.Waiting))
		o.ObserveInt64(runs, int64(u.Running))
		o.ObserveFloat64(waited, u.Waited.Seconds())
	})
}

// registerCalls registers the metrics of ended calls.
func (s *Server) registerCalls(m metric.Meter) error {
	in := telemetry.NewInstruments(m)
	ended := in.Counter("shardwatch.server.calls", "{call}", "Ended calls of clients by service, method and gRPC status code. A stream counts at its end.")
	return in.Observe(func(o metric.Observer) {
		s.Calls(func(method, code string, times int64) {
			service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
			o.ObserveInt64(ended, times, metric.WithAttributes(
				attribute.String("service", service), attribute.String("method", name), attribute.String("code", code)))
		})
	})
}
