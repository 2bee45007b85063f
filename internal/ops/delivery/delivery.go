package delivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/shardwatch/shardwatch/internal/beat"
	"github.com/shardwatch/shardwatch/internal/edge/native"
	"github.com/shardwatch/shardwatch/internal/ops/revtrace"
	"github.com/shardwatch/shardwatch/internal/ops/telemetry"
	"github.com/shardwatch/shardwatch/internal/replica"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// Config configures a Recorder. Its functions may be called from any goroutine.
type Config struct {
	Self shard.NodeID
	// Trace has the traces of the newest revisions.
	Trace *revtrace.Trace
	// Cluster returns the cluster's ID; "": unknown yet.
	Cluster func() string
	// Leaving reports whether a node drains or has left: it hands over its shards.
	Leaving func(shard.NodeID) bool
	// Spans sends spans to a collector, nil: none. Meter creates the histograms, nil: not exported.
	Spans  *telemetry.Spans
	Meter  metric.Meter
	Logger *slog.Logger
}

// Recorder records revision traces once they are complete: as histograms, as spans to a
// collector, and in the log. Deliveries do not wait for it.
type Recorder struct {
	cfg     Config
	applied metric.Float64Histogram
	sent    metric.Float64Histogram
	changed metric.Float64Histogram
	summary *summary

	mu     sync.Mutex
	counts map[replica.What]int64 // guarded by mu; notices of the sources of shards
}

// A revision is recorded settle after its arrival, when it should have reached all watches. Later sends show in
// the lag of watches.
const (
	recordEvery = 2 * time.Second
	settle      = 3 * time.Second
)

// New returns a Recorder that does nothing yet.
func New(cfg Config) (*Recorder, error) {
	s := &Recorder{cfg: cfg, summary: newSummary(cfg.Logger), counts: make(map[replica.What]int64)}
	m := cfg.Meter
	if m == nil {
		m = noop.NewMeterProvider().Meter("")
	}
	var errs [3]error
	histogram := func(i int, name, help string) (h metric.Float64Histogram) {
		h, errs[i] = m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(help))
		return h
	}
	s.applied = histogram(0, "shardwatch.delivery.applied", "Time from the complete arrival of a revision at this node until it could be read here.")
	s.sent = histogram(1, "shardwatch.delivery.sent", "Time from the complete arrival of a revision at this node until it was sent to the last watch, or node, among those that got it within a few seconds.")
	s.changed = histogram(2, "shardwatch.shard.change_over", "Time that a shard of this node had no source, from the loss of one to the first data of the next.")
	sources := telemetry.NewInstruments(m)
	told := sources.Counter("shardwatch.shard.sources", "{change}", "Changes of the sources of this node's shards, by kind: lost, changed over, state or history taken from another node.")
	return s, errors.Join(append(errs[:], sources.Observe(func(o metric.Observer) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, what := range replica.Whats() {
			o.ObserveInt64(told, s.counts[what], metric.WithAttributes(attribute.String("what", what.Label())))
		}
	}))...)
}

// Run records until ctx ends.
func (s *Recorder) Run(ctx context.Context) error {
	var logging sync.WaitGroup
	defer logging.Wait()
	logging.Go(func() { s.summary.run(ctx) })
	tick := time.NewTimer(beat.Until(recordEvery))
	defer tick.Stop()
	toNodes := metric.WithAttributeSet(attribute.NewSet(attribute.String("to", "nodes")))
	toWatches := metric.WithAttributeSet(attribute.NewSet(attribute.String("to", "watches")))
	for {
		select {
		case <-tick.C:
			tick.Reset(beat.Until(recordEvery))
		case <-ctx.Done():
			return nil
		}
		s.cfg.Trace.Settled(time.Now().Add(-settle), func(w *revtrace.Entry) {
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

// revision sends the spans of a sampled revision: one for the node, and within it one for each step. If another
// node sent the revision, this node's span is a child of that node's span: both nodes derive the same ID.
func (s *Recorder) revision(w *revtrace.Entry) {
	if !s.cfg.Spans.On() {
		return
	}
	id := fmt.Sprintf("%s/%d/%d", s.cfg.Cluster(), w.Lineage, w.Revision)
	if !s.cfg.Spans.Samples(id) {
		return
	}
	self := "node/" + string(s.cfg.Self)
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
		s.cfg.Spans.Tell(telemetry.Span{
			Name: "apply", Trace: id, Parent: self, Begin: h.Received, End: h.Applied,
			Attributes: s.about(h.Shard, attribute.Int64("shardwatch.revision", int64(w.Revision)), attribute.Bool("shardwatch.relay", h.Relay)),
		})
	}
	for name, sent := range map[string]*revtrace.Sent{"send to nodes": &w.Nodes, "send to watches": &w.Watches} {
		if sent.Times == 0 {
			continue
		}
		end(sent.Last)
		s.cfg.Spans.Tell(telemetry.Span{
			Name: name, Trace: id, Parent: self, Begin: sent.First, End: sent.Last,
			Attributes: []attribute.KeyValue{
				attribute.String("shardwatch.node", string(s.cfg.Self)), attribute.Int64("shardwatch.revision", int64(w.Revision)),
				attribute.Int64("shardwatch.sent", sent.Times),
			},
		})
	}
	all.Attributes = []attribute.KeyValue{
		attribute.String("shardwatch.node", string(s.cfg.Self)), attribute.Int64("shardwatch.revision", int64(w.Revision)),
		attribute.StringSlice("shardwatch.shards", shards), attribute.String("shardwatch.source", from),
	}
	s.cfg.Spans.Tell(all)
}

// Happened returns a function that records events of client watches; nil without a collector.
func (s *Recorder) Happened() func(native.Happening) {
	if !s.cfg.Spans.On() {
		return nil
	}
	return func(x native.Happening) {
		s.cfg.Spans.Tell(telemetry.Span{
			Name: x.What, Begin: x.Began, End: time.Now(), Always: !x.Often, Err: x.Err,
			Attributes: []attribute.KeyValue{
				attribute.String("shardwatch.node", string(s.cfg.Self)), attribute.Int64("shardwatch.from", int64(x.From)),
				attribute.Int64("shardwatch.revision", int64(x.Revision)),
			},
		})
	}
}

// about returns the attributes of an event of a shard on this node.
func (s *Recorder) about(id uint64, more ...attribute.KeyValue) []attribute.KeyValue {
	return append(more, attribute.String("shardwatch.node", string(s.cfg.Self)), attribute.Int64("shardwatch.shard", int64(id))) //nolint:gosec // a count of shards
}

// Noticed returns a function that records the events of a shard's source.
func (s *Recorder) Noticed(id shard.ID) func(replica.Notice) {
	return func(x replica.Notice) {
		if x.What == replica.SourceLost && s.cfg.Leaving(shard.NodeID(x.Source)) {
			x.What = replica.HandedOn
		}
		s.summary.add(id, x)
		s.mu.Lock()
		s.counts[x.What]++
		s.mu.Unlock()
		now := time.Now()
		if x.What == replica.Followed {
			s.changed.Record(context.Background(), now.Sub(x.Began).Seconds())
		}
		if !s.cfg.Spans.On() || x.Began.IsZero() {
			return
		}
		s.cfg.Spans.Tell(telemetry.Span{
			Name: "failover " + x.What.Label(), Begin: x.Began, End: now, Always: true,
			Attributes: s.about(uint64(id), attribute.String("shardwatch.source", x.Source), attribute.Int64("shardwatch.revision", int64(x.Revision))),
		})
	}
}
