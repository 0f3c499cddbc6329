package stack

import (
	"context"
	"encoding/hex"
	"net"
	"sync"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
)

// A Span is what a collector got of one.
type Span struct {
	Trace, ID, Parent string
	Name, Service     string
	Attributes        map[string]string
	Whole             string // all of it as text, with its status and events
}

// A Collector takes OpenTelemetry spans over OTLP/gRPC and keeps them.
type Collector struct {
	collector.UnimplementedTraceServiceServer
	Endpoint string // for OTEL_EXPORTER_OTLP_ENDPOINT

	mu    sync.Mutex
	spans []Span
	grpc  *grpc.Server
}

// StartCollector starts a collector on a port of the loopback interface.
func StartCollector(ctx context.Context) (*Collector, error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &Collector{Endpoint: "http://" + ln.Addr().String(), grpc: grpc.NewServer()}
	collector.RegisterTraceServiceServer(c.grpc, c)
	go func() { _ = c.grpc.Serve(ln) }() // ends with Stop
	return c, nil
}

// Stop ends the collector.
func (c *Collector) Stop() { c.grpc.Stop() }

// Spans are all that came so far.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span(nil), c.spans...)
}

// Export takes spans.
func (c *Collector) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, group := range r.GetResourceSpans() {
		service := ""
		for _, a := range group.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				service = a.GetValue().GetStringValue()
			}
		}
		for _, scope := range group.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				span := Span{
					Trace: hex.EncodeToString(s.GetTraceId()), ID: hex.EncodeToString(s.GetSpanId()), Parent: hex.EncodeToString(s.GetParentSpanId()),
					Name: s.GetName(), Service: service, Attributes: map[string]string{}, Whole: s.String(),
				}
				for _, a := range s.GetAttributes() {
					span.Attributes[a.GetKey()] = a.GetValue().GetStringValue()
				}
				c.spans = append(c.spans, span)
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}
