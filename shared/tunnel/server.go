package tunnel

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"slices"
	"sync"

	"google.golang.org/grpc"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/logkey"
)

// A Server serves gRPC on the streams of any number of sessions. With one
// server for all sessions, a session needs only the memory of its streams.
type Server struct {
	grpc     *grpc.Server
	in       *serverListener
	wrappers []StreamWrapper
	caught   func(ctx context.Context, method string, value any) error
	log      *slog.Logger
}

// A StreamWrapper runs before a stream's handler. It may return another stream,
// and a function for the handler's error; an error ends the call. It is not an
// interceptor, because those stay on the stack: most streams are idle nearly
// always, and their stacks are a large part of the memory per agent.
type StreamWrapper func(ss grpc.ServerStream, method string) (grpc.ServerStream, func(error), error)

// ServerConfig is how a server is made.
type ServerConfig struct {
	Lane Lane
	// Unary runs before every call, and Stream before every stream, in order,
	// after the limit on calls was checked.
	Unary  []grpc.UnaryServerInterceptor
	Stream []StreamWrapper
	// Caught converts a panic in the handler of a stream to an error; nil: the
	// panic continues.
	Caught func(ctx context.Context, method string, value any) error
	Log    *slog.Logger
}

// NewServer makes a server without services.
func NewServer(cfg ServerConfig) *Server {
	s := &Server{in: newServerListener(), wrappers: cfg.Stream, caught: cfg.Caught, log: cfg.Log}
	unary := append([]grpc.UnaryServerInterceptor{s.unary}, cfg.Unary...)
	s.grpc = grpc.NewServer(
		grpc.Creds(sessionCreds{}),
		grpc.MaxRecvMsgSize(cfg.Lane.MaxMessage),
		grpc.MaxConcurrentStreams(maxCalls),
		grpc.MaxHeaderListSize(maxHeaderList),
		// A stream buffers received data until it is read, so gRPC needs no
		// buffer of its own; the write buffer is shared by all.
		grpc.ReadBufferSize(0),
		grpc.WriteBufferSize(cfg.Lane.WriteBuffer),
		grpc.StaticStreamWindowSize(cfg.Lane.CallWindow),
		grpc.StaticConnWindowSize(cfg.Lane.ConnWindow),
		grpc.ConnectionTimeout(greeting),
		grpc.WaitForHandlers(true),
		grpc.ChainUnaryInterceptor(unary...),
		grpc.StreamInterceptor(s.stream),
	)
	return s
}

// RegisterService adds a service, before Serve.
func (s *Server) RegisterService(d *grpc.ServiceDesc, impl any) { s.grpc.RegisterService(d, impl) }

// Serve answers calls until ctx ends. Then it ends the calls that run, waits
// for them and returns nil. Sessions stay open.
func (s *Server) Serve(ctx context.Context) error {
	stopped := make(chan struct{})
	release := context.AfterFunc(ctx, func() {
		defer close(stopped)
		s.grpc.Stop()
	})
	err := s.grpc.Serve(s.in)
	if release() { // Serve has failed
		s.grpc.Stop()
		return err
	}
	<-stopped
	return nil
}

// Attach serves the streams that the other side opens. It returns when the
// session, the server or ctx has ended, and does not close the session.
func (s *Server) Attach(ctx context.Context, session *Session) error {
	release := context.AfterFunc(ctx, func() { session.Close(context.Cause(ctx)) })
	defer release()
	for {
		c, err := session.Accept()
		if err != nil {
			return cmp.Or(session.Err(), err)
		}
		if err := s.hand(c, session); err != nil {
			return err
		}
	}
}

// Adopt is Attach for a session that this side did not open: it returns at once
// and no goroutine waits for streams. ended is called when the session or the
// server has ended; it may block.
func (s *Server) Adopt(ctx context.Context, session *Session, ended func(error)) {
	release := context.AfterFunc(ctx, func() { session.Close(context.Cause(ctx)) })
	over := func(err error) {
		release()
		ended(err)
	}
	take := func(c net.Conn) {
		if err := s.hand(c, session); err != nil {
			session.Close(err)
		}
	}
	if !session.deliver(take, over) {
		go func() { over(s.Attach(ctx, session)) }()
	}
}

// hand passes a stream to gRPC.
func (s *Server) hand(c net.Conn, session *Session) error {
	select {
	case s.in.conns <- c:
		return nil
	case <-session.Done():
	case <-s.in.done:
	}
	_ = c.Close() // the server has ended
	return net.ErrClosed
}

func (s *Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	done, err := enter(ctx)
	if err != nil {
		return nil, Status(err)
	}
	defer done()
	res, err := next(ctx, req)
	return res, s.statusOf(ctx, info.FullMethod, err)
}

func (s *Server) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	c := &streamCall{s: s, ss: ss, method: info.FullMethod}
	if err := c.begin(); err != nil {
		return c.end(err)
	}
	if s.caught != nil {
		defer func() {
			if v := recover(); v != nil {
				err = c.end(s.caught(c.ss.Context(), c.method, v))
			}
		}()
	}
	return c.end(next(srv, c.ss))
}

// streamCall runs concurrently with the handler of one stream.
type streamCall struct {
	s      *Server
	ss     grpc.ServerStream
	method string
	ends   []func(error)
}

func (c *streamCall) begin() error {
	done, err := enter(c.ss.Context())
	if err != nil {
		return err
	}
	c.ends = append(make([]func(error), 0, len(c.s.wrappers)+1), func(error) { done() })
	for _, wrap := range c.s.wrappers {
		ss, end, err := wrap(c.ss, c.method)
		if err != nil {
			return err
		}
		c.ss = ss
		if end != nil {
			c.ends = append(c.ends, end)
		}
	}
	return nil
}

// end calls the wrappers' functions, last one first, and converts the error to
// a status.
func (c *streamCall) end(err error) error {
	for _, end := range slices.Backward(c.ends) {
		end(err)
	}
	return c.s.statusOf(c.ss.Context(), c.method, err)
}

// statusOf converts a handler's error to a status, and logs the details that
// the other side must not see.
func (s *Server) statusOf(ctx context.Context, method string, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() == nil && unexplained(err) {
		p, _ := PeerFrom(ctx)
		s.log.ErrorContext(ctx, "call failed", logkey.Method, method, logkey.Tenant, p.Tenant, logkey.Cluster, p.Cluster, logkey.Error, err)
	}
	return Status(err)
}

// enter counts a call of a session and refuses it beyond the limit.
func enter(ctx context.Context) (func(), error) {
	session, ok := SessionFrom(ctx)
	if !ok {
		return nil, fault.New(fault.Unknown, "the call did not come over a link session")
	}
	if session.calls.Add(1) > maxCalls {
		session.calls.Add(-1)
		return nil, fault.New(fault.Exceeded, "more than %d calls are open on this session", maxCalls)
	}
	return func() { session.calls.Add(-1) }, nil
}

// serverListener is the listener of a server. gRPC closes its listener when it
// stops, and yamux sessions are listeners too: served directly, a stopped
// server would cut the calls of the other direction. This listener prevents
// that.
type serverListener struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func newServerListener() *serverListener {
	return &serverListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

// Accept waits for the next stream of any session.
func (i *serverListener) Accept() (net.Conn, error) {
	select {
	case c := <-i.conns:
		return c, nil
	case <-i.done:
		return nil, net.ErrClosed
	}
}

// Close stops Accept, and nothing else.
func (i *serverListener) Close() error {
	i.once.Do(func() { close(i.done) })
	return nil
}

// Addr is the listener's address for gRPC.
func (i *serverListener) Addr() net.Addr { return serverAddr{} }

type serverAddr struct{}

func (serverAddr) Network() string { return "link" }
func (serverAddr) String() string  { return "link" }
