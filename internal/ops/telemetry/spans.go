package telemetry

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Span describes a completed operation. It is exported afterwards, so the operation does not wait for it. It
// holds revisions, shards and nodes, never keys or values.
type Span struct {
	// Name is the operation; it has few values.
	Name       string
	Begin, End time.Time
	// Trace names the trace: nodes that record the same event derive the same trace without communication; "":
	// a new trace.
	Trace string
	// ID names the span within the trace, Parent its parent span, which may be another node's; "": none.
	ID, Parent string
	// Always exports the span at any sampling rate.
	Always     bool
	Attributes []attribute.KeyValue
	Err        error
}

// Spans sends spans to a collector. A nil Spans sends none.
type Spans struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	sampler  sdktrace.Sampler
}

// newSpans exports a fraction of all traces, chosen by their names alone: each node chooses the same.
func newSpans(ratio float64, options ...sdktrace.TracerProviderOption) *Spans {
	s := &Spans{sampler: sdktrace.TraceIDRatioBased(ratio)}
	s.provider = sdktrace.NewTracerProvider(append(options,
		sdktrace.WithSampler(chosen{s.sampler, ratio > 0}), sdktrace.WithIDGenerator(named{}),
	)...)
	s.tracer = s.provider.Tracer("github.com/shardwatch/shardwatch")
	return s
}

// On reports whether spans are sent.
func (s *Spans) On() bool { return s != nil }

// Samples reports whether spans of a trace are sent.
func (s *Spans) Samples(name string) bool {
	if s == nil {
		return false
	}
	p := sdktrace.SamplingParameters{TraceID: traceID(name)}
	return s.sampler.ShouldSample(p).Decision == sdktrace.RecordAndSample
}

// Tell exports a span. It does not block: if the collector is too slow, spans are dropped.
func (s *Spans) Tell(x Span) { //nolint:gocritic // a value, built for the call
	if s == nil {
		return
	}
	ctx := context.WithValue(context.Background(), spanKey{}, &x)
	if x.Parent != "" {
		ctx = trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: traceID(x.Trace), SpanID: spanID(x.Trace, x.Parent), TraceFlags: trace.FlagsSampled, Remote: true,
		}))
	}
	_, span := s.tracer.Start(ctx, x.Name, trace.WithTimestamp(x.Begin), trace.WithAttributes(x.Attributes...))
	if x.Err != nil {
		span.SetStatus(otelcodes.Error, x.Err.Error())
	}
	span.End(trace.WithTimestamp(x.End))
}

type spanKey struct{}

func spanOf(ctx context.Context) *Span {
	x, _ := ctx.Value(spanKey{}).(*Span)
	return x
}

// chosen samples by the trace's name, and keeps spans marked as always recorded.
type chosen struct {
	sdktrace.Sampler
	some bool
}

// ShouldSample implements sdktrace.Sampler.
func (c chosen) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult { //nolint:gocritic // the interface's
	if x := spanOf(p.ParentContext); x != nil && x.Always && c.some {
		return sdktrace.SamplingResult{Decision: sdktrace.RecordAndSample}
	}
	return c.Sampler.ShouldSample(p)
}

// named derives the IDs of traces and spans from their names.
type named struct{}

// NewIDs implements sdktrace.IDGenerator.
func (g named) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	name := ""
	if x := spanOf(ctx); x != nil {
		name = x.Trace
	}
	id := traceID(name)
	return id, g.NewSpanID(ctx, id)
}

// NewSpanID implements sdktrace.IDGenerator.
func (named) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	if x := spanOf(ctx); x != nil {
		return spanID(x.Trace, x.ID)
	}
	return spanID("", "")
}

// traceID returns the ID of a trace; "": a random one.
func traceID(name string) (id trace.TraceID) {
	if name == "" {
		binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
		binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
		return id
	}
	sum := sha256.Sum256([]byte(name))
	copy(id[:], sum[:])
	return id
}

// spanID returns the ID of a span of a trace; "": a random one.
func spanID(of, name string) (id trace.SpanID) {
	if name == "" {
		binary.NativeEndian.PutUint64(id[:], rand.Uint64()|1)
		return id
	}
	sum := sha256.Sum256([]byte(of + "\x00" + name))
	copy(id[:], sum[:])
	return id
}
