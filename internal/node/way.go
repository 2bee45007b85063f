package node

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/shardwatch/shardwatch/internal/replica"
	"github.com/shardwatch/shardwatch/internal/server"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/telemetry"
	"github.com/shardwatch/shardwatch/internal/trail"
)

// story tells of what the node remembers, once it is over: as histograms, and as
// spans to a collector. What happens does not wait for it.
type story struct {
	n       *Node
	spans   *telemetry.Spans
	applied metric.Float64Histogram
	sent    metric.Float64Histogram
	changed metric.Float64Histogram
	counts  counts
}

// Rhythm of the story: a revision is told of when it has had some time to come to
// everybody. What comes later is in the lag of watches.
const (
	storyEvery  = 2 * time.Second
	storySettle = 3 * time.Second
)

func newStory(n *Node) (*story, error) {
	s := &story{n: n, spans: n.cfg.Spans}
	m := n.cfg.Meter
	if m == nil {
		m = noop.NewMeterProvider().Meter("")
	}
	var errs [3]error
	histogram := func(i int, name, help string) (h metric.Float64Histogram) {
		h, errs[i] = m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(help))
		return h
	}
	s.applied = histogram(0, "shardwatch.delivery.applied", "Time from when a revision was here in full until it could be read here.")
	s.sent = histogram(1, "shardwatch.delivery.sent", "Time from when a revision was here in full until it was sent to the last watch, or node, that was sent it within a few seconds.")
	s.changed = histogram(2, "shardwatch.shard.change_over", "Time that a shard here was without a source, from the loss of one until another one was followed.")
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

// run tells until ctx ends.
func (s *story) run(ctx context.Context) error {
	tick := time.NewTimer(replica.UntilBeat(storyEvery))
	defer tick.Stop()
	toNodes := metric.WithAttributeSet(attribute.NewSet(attribute.String("to", "nodes")))
	toWatches := metric.WithAttributeSet(attribute.NewSet(attribute.String("to", "watches")))
	for {
		select {
		case <-tick.C:
			tick.Reset(replica.UntilBeat(storyEvery))
		case <-ctx.Done():
			return nil
		}
		s.n.trail.Settled(time.Now().Add(-storySettle), func(w *trail.Way) {
			received := w.Received()
			for _, h := range w.Hops {
				s.applied.Record(ctx, h.Applied.Sub(h.Received).Seconds())
			}
			if w.Nodes.Times > 0 {
				s.sent.Record(ctx, w.Nodes.Last.Sub(received).Seconds(), toNodes)
			}
			if w.Watches.Times > 0 {
				s.sent.Record(ctx, w.Watches.Last.Sub(received).Seconds(), toWatches)
			}
			s.revision(w)
		})
	}
}

// revision sends the spans of a revision, if it is one of those that are sampled:
// one of the node, and within it what was done. The span of a node that had it
// from another one is a part of that one's: both know its name.
func (s *story) revision(w *trail.Way) {
	if !s.spans.On() {
		return
	}
	id := fmt.Sprintf("%s/%d/%d", s.n.placement.ClusterID(), w.Lineage, w.Revision)
	if !s.spans.Samples(id) {
		return
	}
	self := "node/" + string(s.n.self)
	shards := make([]string, 0, len(w.Hops))
	all := telemetry.Span{Name: "revision", Trace: id, ID: self, Begin: w.Received()}
	from := ""
	end := func(at time.Time) {
		if at.After(all.End) {
			all.End = at
		}
	}
	for _, h := range w.Hops {
		shards = append(shards, strconv.FormatUint(h.Shard, 10))
		if from = h.Source; from != "" && from != replica.Etcd {
			all.Parent = "node/" + from
		}
		end(h.Applied)
		s.spans.Tell(telemetry.Span{
			Name: "apply", Trace: id, Parent: self, Begin: h.Received, End: h.Applied,
			Attributes: s.about(h.Shard, attribute.Int64("shardwatch.revision", int64(w.Revision)), attribute.Bool("shardwatch.relay", h.Relay)),
		})
	}
	for name, sent := range map[string]*trail.Sent{"send to nodes": &w.Nodes, "send to watches": &w.Watches} {
		if sent.Times == 0 {
			continue
		}
		end(sent.Last)
		s.spans.Tell(telemetry.Span{
			Name: name, Trace: id, Parent: self, Begin: sent.First, End: sent.Last,
			Attributes: []attribute.KeyValue{
				attribute.String("shardwatch.node", string(s.n.self)), attribute.Int64("shardwatch.revision", int64(w.Revision)),
				attribute.Int64("shardwatch.sent", sent.Times),
			},
		})
	}
	all.Attributes = []attribute.KeyValue{
		attribute.String("shardwatch.node", string(s.n.self)), attribute.Int64("shardwatch.revision", int64(w.Revision)),
		attribute.StringSlice("shardwatch.shards", shards), attribute.String("shardwatch.source", from),
	}
	s.spans.Tell(all)
}

// happened tells of what has happened to a watch of a client; nil when nobody is
// told.
func (s *story) happened() func(server.Happening) {
	if !s.spans.On() {
		return nil
	}
	return func(x server.Happening) {
		s.spans.Tell(telemetry.Span{
			Name: x.What, Begin: x.Began, End: time.Now(), Always: !x.Often, Err: x.Err,
			Attributes: []attribute.KeyValue{
				attribute.String("shardwatch.node", string(s.n.self)), attribute.Int64("shardwatch.from", int64(x.From)),
				attribute.Int64("shardwatch.revision", int64(x.Revision)),
			},
		})
	}
}

// about are the attributes of what happens to a shard here.
func (s *story) about(id uint64, more ...attribute.KeyValue) []attribute.KeyValue {
	return append(more, attribute.String("shardwatch.node", string(s.n.self)), attribute.Int64("shardwatch.shard", int64(id))) //nolint:gosec // a count of shards
}

// noticed counts what a shard's source tells, and tells of it.
func (s *story) noticed(id shard.ID) func(replica.Notice) {
	return func(x replica.Notice) {
		if x.What == replica.SourceLost && s.n.takesLeave(shard.NodeID(x.Source)) {
			x.What = replica.HandedOn
		}
		s.n.digest.add(id, x)
		s.counts.add(x.What)
		now := time.Now()
		if x.What == replica.Followed {
			s.changed.Record(context.Background(), now.Sub(x.Began).Seconds())
		}
		if !s.spans.On() || x.Began.IsZero() {
			return
		}
		s.spans.Tell(telemetry.Span{
			Name: "failover " + x.What.Label(), Begin: x.Began, End: now, Always: true,
			Attributes: s.about(uint64(id), attribute.String("shardwatch.source", x.Source), attribute.Int64("shardwatch.revision", int64(x.Revision))),
		})
	}
}
