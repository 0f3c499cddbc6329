package tunnel

import (
	"context"
	"errors"
	"net"

	"google.golang.org/grpc/credentials"
)

// sessionInfo is what a gRPC call knows about its connection.
type sessionInfo struct {
	credentials.CommonAuthInfo
	session *Session
}

// AuthType names the kind of authentication for gRPC.
func (sessionInfo) AuthType() string { return "capstan-link" }

// sessionCreds tells gRPC that a stream is already secured by its session, and
// refuses any other connection.
type sessionCreds struct{}

var errNotStream = errors.New("not a stream of a link session")

func (sessionCreds) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	s, ok := c.(*stream)
	if !ok {
		return nil, nil, errNotStream
	}
	return c, sessionInfo{
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
		session:        s.session,
	}, nil
}

func (c sessionCreds) ClientHandshake(_ context.Context, _ string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c.ServerHandshake(conn)
}

func (sessionCreds) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "capstan-link"}
}

func (c sessionCreds) Clone() credentials.TransportCredentials { return c }

func (sessionCreds) OverrideServerName(string) error { return nil }
