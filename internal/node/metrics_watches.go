package node

import (
	"context"
	"errors"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/server"
	"github.com/shardwatch/shardwatch/internal/tally"
)

// registerWatches has what becomes of the clients' watches observed at each
// scrape.
func (n *Node) registerWatches(m metric.Meter) error {
	in := &instruments{m: m}
	gauge, seconds, counter, total := in.gauge, in.seconds, in.counter, in.total
	var (
		rungs = gauge("shardwatch.server.watches_by_rung", "{watch}", "Open watches of clients by how they are served: from the window, by a delta, by a resync, conflated, or from etcd's log.")
		lag   = gauge("shardwatch.server.watch_lag", "{revision}", "Revisions that a watch was not sent yet, though they are here: no more for half of the watches, for 99 % and for all.")
		units = counter("shardwatch.server.units", "{unit}", "Units that watches were sent: what has changed (delta, conflated) or all there is (state, resync).")
		keys  = counter("shardwatch.server.unit_keys", "{key}", "Keys sent in units.")
		bytes = counter("shardwatch.server.unit_sent", "By", "Bytes sent in units.")
		made  = counter("shardwatch.server.unit_made", "By", "Bytes of units that were made; what watches share counts once.")
		begun = counter("shardwatch.server.units_begun", "{unit}", "Units that have begun; what watches share counts once.")
		queue = gauge("shardwatch.server.units_waiting", "{watch}", "Watches that wait for a unit to begin.")
		opens = gauge("shardwatch.server.watches_opening", "{watch}", "New watches of both APIs that are being opened with the help of etcd or other nodes.")
		stand = gauge("shardwatch.server.watches_waiting", "{watch}", "New watches that wait for that.")
		runs  = gauge("shardwatch.server.units_running", "{unit}", "Units that are being sent to the first of their watches.")

		behind = seconds("shardwatch.server.watch_behind", "For how long revisions have been here that a watch was not sent yet: no longer for half of the watches, for 99 % and for all.")
		waited = total("shardwatch.server.units_waited", "Time that watches have waited for a unit to begin, together.")
	)
	if err := errors.Join(in.errs...); err != nil {
		return err
	}
	_, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for _, s := range n.server.WatchSummaries() {
			api := attribute.String("api", s.API)
			for _, r := range tally.Rungs() {
				o.ObserveInt64(rungs, s.Rungs[r], metric.WithAttributes(api, attribute.String("rung", r.String())))
			}
			for i, q := range server.Quantiles() {
				label := metric.WithAttributes(api, attribute.Float64("quantile", q))
				o.ObserveInt64(lag, int64(s.Lag[i]), label)
				o.ObserveFloat64(behind, s.Behind[i].Seconds(), label)
			}
		}
		u := n.server.Units()
		for kind, sent := range u.Sent {
			if kind == int(shardwatchv1.SyncKind_SYNC_KIND_UNSPECIFIED) {
				continue
			}
			name := strings.ToLower(strings.TrimPrefix(shardwatchv1.SyncKind(kind).String(), "SYNC_KIND_"))
			label := metric.WithAttributes(attribute.String("kind", name))
			o.ObserveInt64(units, sent.Units, label)
			o.ObserveInt64(keys, sent.Keys, label)
			o.ObserveInt64(bytes, sent.Bytes, label)
		}
		running, waiting := n.openings.Figures()
		o.ObserveInt64(opens, int64(running))
		o.ObserveInt64(stand, int64(waiting))
		o.ObserveInt64(made, u.Made)
		o.ObserveInt64(begun, u.Begun)
		o.ObserveInt64(queue, int64(u.Waiting))
		o.ObserveInt64(runs, int64(u.Running))
		o.ObserveFloat64(waited, u.Waited.Seconds())
		return nil
	}, rungs, lag, behind, units, keys, bytes, made, begun, queue, runs, waited, opens, stand)
	return err
}
