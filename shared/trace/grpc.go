package trace

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// ClientUnary propagates the trace of a call to the other side and creates a
// span for it. Streams of the link live as long as a session and have none.
func ClientUnary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if !Enabled(ctx) || ID(ctx) == "" {
		return next(ctx, method, req, reply, cc, opts...)
	}
	ctx, end := Start(ctx, method, "rpc.system", "grpc", "span.side", "client")
	err := next(metadata.AppendToOutgoingContext(ctx, parentHeader, Parent(ctx)), method, req, reply, cc, opts...)
	end(err)
	return err
}

// ClientStream propagates the trace of a call, such as a transfer of blobs.
func ClientStream(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if Enabled(ctx) && ID(ctx) != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, parentHeader, Parent(ctx))
	}
	return next(ctx, d, cc, method, opts...)
}

// ServerUnary continues the trace of a call. Calls without one have no span,
// such as heartbeats and Hello.
func (t *Tracer) ServerUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if t == nil {
		return next(ctx, req)
	}
	ctx = t.With(ctx)
	parent := incoming(ctx)
	if parent == "" {
		return next(ctx, req)
	}
	ctx, end := Start(Resume(ctx, parent), info.FullMethod, "rpc.system", "grpc", "span.side", "server")
	res, err := next(ctx, req)
	end(err)
	return res, err
}

// ServerStream continues the trace of a call.
func (t *Tracer) ServerStream(ss grpc.ServerStream, method string) (grpc.ServerStream, func(error), error) {
	if t == nil {
		return ss, nil, nil
	}
	ctx := t.With(ss.Context())
	parent := incoming(ctx)
	if parent == "" {
		return stream{ss, ctx}, nil, nil
	}
	ctx, end := Start(Resume(ctx, parent), method, "rpc.system", "grpc", "span.side", "server")
	return stream{ss, ctx}, end, nil
}

func incoming(ctx context.Context) string {
	md, _ := metadata.FromIncomingContext(ctx)
	if v := md.Get(parentHeader); len(v) == 1 {
		return v[0]
	}
	return ""
}

// stream is a stream under another context.
type stream struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // what a stream's Context gives
}

// Context is that of the span.
func (s stream) Context() context.Context { return s.ctx }
