// Package trace follows one change through hub and agent as OpenTelemetry
// spans: from a request or a webhook to its result in a cluster. Spans contain
// no content, only names, ids and times. Stages of both binaries call Start;
// the daemons call Setup once. If the standard OTEL_ variables configure no
// exporter, every call returns at once and nothing is recorded.
package trace

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/capstan-cd/capstan/shared/fault"
)

// A Tracer makes the spans of one process. Nil makes none.
type Tracer struct {
	tracer oteltrace.Tracer
	stop   func(context.Context) error
}

type tracerKey struct{}

// With returns a context below which t traces.
func (t *Tracer) With(ctx context.Context) context.Context {
	if t == nil {
		return ctx
	}
	return context.WithValue(ctx, tracerKey{}, t)
}

// Enabled reports whether spans are made below ctx.
func Enabled(ctx context.Context) bool {
	t, _ := ctx.Value(tracerKey{}).(*Tracer)
	return t != nil
}

// Start begins a span below the one of ctx. The function ends it, with the
// error that the work ended with. Attributes are pairs of key and value.
func Start(ctx context.Context, name string, pairs ...string) (context.Context, func(error)) {
	t, _ := ctx.Value(tracerKey{}).(*Tracer)
	if t == nil {
		return ctx, func(error) {}
	}
	ctx, span := t.tracer.Start(ctx, name, oteltrace.WithAttributes(attributes(pairs)...))
	return ctx, func(err error) { end(span, err) }
}

func end(span oteltrace.Span, err error, options ...oteltrace.SpanEndOption) {
	if err != nil {
		// The sentence for people: an error's own text may quote its input.
		span.SetStatus(codes.Error, fault.Sentence(err))
	}
	span.End(options...)
}

func attributes(pairs []string) []attribute.KeyValue {
	out := make([]attribute.KeyValue, 0, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		out = append(out, attribute.String(pairs[i], pairs[i+1]))
	}
	return out
}

// Below returns ctx the span of another context.
func Below(ctx, of context.Context) context.Context {
	if !Enabled(ctx) {
		return ctx
	}
	return oteltrace.ContextWithSpan(ctx, oteltrace.SpanFromContext(of))
}

// Record makes a span of something that has ended, below the one of ctx.
func Record(ctx context.Context, name string, begin, over time.Time, err error, pairs ...string) {
	t, _ := ctx.Value(tracerKey{}).(*Tracer)
	if t == nil {
		return
	}
	_, span := t.tracer.Start(ctx, name, oteltrace.WithTimestamp(begin), oteltrace.WithAttributes(attributes(pairs)...))
	end(span, err, oteltrace.WithTimestamp(over))
}

// Note adds attributes to the span of ctx.
func Note(ctx context.Context, pairs ...string) {
	if span := oteltrace.SpanFromContext(ctx); span.IsRecording() {
		span.SetAttributes(attributes(pairs)...)
	}
}

// ID is the trace that ctx belongs to; empty: none.
func ID(ctx context.Context) string {
	if c := oteltrace.SpanContextFromContext(ctx); c.IsValid() {
		return c.TraceID().String()
	}
	return ""
}

// parentHeader is the only propagated field (W3C Trace Context).
const parentHeader = "traceparent"

// maxParent is the length of a traceparent of the version in use.
const maxParent = 55

// Parent returns the traceparent of the span of ctx; empty: none.
func Parent(ctx context.Context) string {
	if !oteltrace.SpanContextFromContext(ctx).IsValid() {
		return ""
	}
	c := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, c)
	return c[parentHeader]
}

// Resume makes ctx continue the span that a traceparent names. An invalid text
// leaves ctx unchanged.
func Resume(ctx context.Context, parent string) context.Context {
	if len(parent) != maxParent || !Enabled(ctx) {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{parentHeader: parent})
}
