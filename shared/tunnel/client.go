package tunnel

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/trace"
)

// Conn is a gRPC client to the services of the other side. It opens its one
// stream with the first call. It ends with the session; callers do not close
// it.
func (s *Session) Conn() (grpc.ClientConnInterface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fault.New(fault.Offline, "the other side of the link is not connected")
	}
	if s.client != nil {
		return s.client, nil
	}
	// The target is never resolved: the dialler knows only this session.
	c, err := grpc.NewClient("passthrough:///link", s.dialOptions()...)
	if err != nil {
		return nil, err
	}
	s.client = c
	return c, nil
}

func (s *Session) dialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return s.Open() }),
		grpc.WithTransportCredentials(sessionCreds{}),
		grpc.WithAuthority("link"),
		grpc.WithIdleTimeout(s.idle),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithReadBufferSize(0), // a stream has its own
		grpc.WithWriteBufferSize(s.lane.WriteBuffer),
		grpc.WithStaticStreamWindowSize(s.lane.CallWindow),
		grpc.WithStaticConnWindowSize(s.lane.ConnWindow),
		grpc.WithMaxHeaderListSize(maxHeaderList),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(s.lane.MaxMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 2, Jitter: 0.5, MaxDelay: 5 * time.Second},
			MinConnectTimeout: greeting,
		}),
		grpc.WithChainUnaryInterceptor(faultUnary, trace.ClientUnary),
		grpc.WithChainStreamInterceptor(faultStream, trace.ClientStream),
	}
}
