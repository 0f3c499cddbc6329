package tunnel

import (
	"context"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/trace"
)

// Conn is a gRPC client to the services of the other side. It opens one stream
// with the first call, and one each with the first stream of the services Live
// and Remote: what people read slowly delays no other call. It ends with the
// session; callers do not close it.
func (s *Session) Conn() (grpc.ClientConnInterface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.dial(&s.client)
	if err != nil {
		return nil, err
	}
	return conn{c, s}, nil
}

// dial makes a client unless there is one; mu is held.
func (s *Session) dial(client **grpc.ClientConn) (*grpc.ClientConn, error) {
	if s.closed {
		return nil, fault.New(fault.Offline, "the other side of the link is not connected")
	}
	if *client == nil {
		// The target is never resolved: the dialler knows only this session.
		c, err := grpc.NewClient("passthrough:///link", s.dialOptions()...)
		if err != nil {
			return nil, err
		}
		*client = c
	}
	return *client, nil
}

// Services whose streams have a connection of their own each: logs, and what
// people type.
const (
	liveService   = "/link.v1.Live/"
	remoteService = "/link.v1.Remote/"
)

// conn sends streams of these services over other connections than all other
// calls.
type conn struct {
	*grpc.ClientConn
	s *Session
}

// NewStream opens a stream.
func (c conn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	client := &c.s.live
	switch {
	case strings.HasPrefix(method, remoteService):
		client = &c.s.remote
	case !strings.HasPrefix(method, liveService):
		return c.ClientConn.NewStream(ctx, desc, method, opts...)
	}
	c.s.mu.Lock()
	own, err := c.s.dial(client)
	c.s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return own.NewStream(ctx, desc, method, opts...)
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
