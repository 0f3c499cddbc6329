package trace

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/version"
)

// scope names the spans of the product.
const scope = "github.com/capstan-cd/capstan"

// lastExport is how long an ending process waits for the export of its last
// spans.
const lastExport = 3 * time.Second

// Setup makes the tracer that the standard OTEL_ variables configure: nil, for
// no tracing at all, unless OTEL_EXPORTER_OTLP_ENDPOINT or its form for traces
// is set. Protocol is gRPC. OTEL_TRACES_SAMPLER and OTEL_RESOURCE_ATTRIBUTES
// have their standard meaning; the sampler is parent-based by default.
func Setup(ctx context.Context, service, instance string, log *slog.Logger) (*Tracer, error) {
	if os.Getenv("OTEL_SDK_DISABLED") == "true" || strings.EqualFold(os.Getenv("OTEL_TRACES_EXPORTER"), "none") ||
		(os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "") {
		return nil, nil
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if v := os.Getenv(name); v != "" && v != "grpc" {
			return nil, fault.With(fault.New(fault.Invalid, "%s is %q, and only grpc is spoken", name, v), "", "set it to grpc and the endpoint to port 4317 of the collector")
		}
	}
	exporter, err := otlptracegrpc.New(ctx)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "the OTLP exporter cannot be made of the OTEL_ variables")
	}
	return newTracer(ctx, exporter, service, instance, log)
}

func newTracer(ctx context.Context, exporter *otlptrace.Exporter, service, instance string, log *slog.Logger) (*Tracer, error) {
	if name := os.Getenv("OTEL_SERVICE_NAME"); name != "" {
		service = name
	}
	about, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", service), attribute.String("service.version", version.Number),
		attribute.String("service.instance.id", instance)), resource.WithFromEnv())
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "OTEL_RESOURCE_ATTRIBUTES cannot be read")
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(quiet{exporter, log}), sdktrace.WithResource(about))
	return &Tracer{tracer: provider.Tracer(scope, oteltrace.WithInstrumentationVersion(version.Number)), stop: provider.Shutdown}, nil
}

// Stop exports the remaining spans, within a short time.
func (t *Tracer) Stop(ctx context.Context) error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastExport)
	defer cancel()
	if err := t.stop(ctx); err != nil {
		return fmt.Errorf("send the last spans: %w", err)
	}
	return nil
}

// quiet logs lost spans in our own log, not on standard error.
type quiet struct {
	sdktrace.SpanExporter
	log *slog.Logger
}

// ExportSpans sends spans. If the collector is unreachable, spans are lost, and
// nothing else happens.
func (q quiet) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if err := q.SpanExporter.ExportSpans(ctx, spans); err != nil {
		q.log.WarnContext(ctx, "spans not sent", logkey.Count, len(spans), logkey.Error, err)
	}
	return nil
}
