package fleet

import (
	"context"

	"google.golang.org/grpc"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

// guard runs before every call. It decides by the method that the server found,
// never by the path, and refuses unknown methods.
func (s *Server) guard(ctx context.Context, method string) error {
	c, err := s.connFrom(ctx)
	if err != nil {
		return err
	}
	if method == linkv1.Identity_Enroll_FullMethodName {
		return nil
	}
	if _, ok := c.session.Peer(); !ok {
		return c.session.Refusal()
	}
	s.revoked.await(ctx)
	if err := s.revoked.check(c.peer); err != nil {
		return err
	}
	if !s.cfg.Clock.Now().Before(c.until) {
		return errExpired()
	}
	if c.session.Lane().Protocol == tunnel.BulkProtocol || method == linkv1.Session_Hello_FullMethodName || c.attached.Load() {
		return nil
	}
	return fault.New(fault.Conflict, "Hello comes before any other call")
}

// connFrom returns the connection of a call, unless it is being ended.
func (s *Server) connFrom(ctx context.Context) (*conn, error) {
	session, ok := tunnel.SessionFrom(ctx)
	if !ok {
		return nil, errNoSession()
	}
	c := s.agents.find(session)
	if c == nil {
		return nil, fault.New(fault.Offline, "the session has ended")
	}
	return c, c.ending()
}

func (s *Server) guardUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if err := s.guard(ctx, info.FullMethod); err != nil {
		s.turnedAway(ctx, req, err)
		return nil, err
	}
	return next(ctx, req)
}

// turnedAway notes an agent whose certificate is good no longer.
func (s *Server) turnedAway(ctx context.Context, req any, why error) {
	hello, ok := req.(*linkv1.HelloRequest)
	session, on := tunnel.SessionFrom(ctx)
	if !ok || !on || fault.KindOf(why) != fault.Denied && fault.KindOf(why) != fault.Unknown {
		return
	}
	if p, proved := session.Peer(); proved && plain(hello.GetAgentVersion(), mostText) {
		s.refuse(ctx, p, session.Address(), hello.GetAgentVersion(), stageCertificate, why)
	}
}

func (s *Server) guardStream(stream grpc.ServerStream, method string) (grpc.ServerStream, func(error), error) {
	return stream, nil, s.guard(stream.Context(), method)
}

func errExpired() error {
	return fault.With(fault.New(fault.Unknown, "the agent's certificate has expired"), "", "connect again with the renewed certificate")
}
